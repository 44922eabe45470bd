-- Ends waiting tasks: new, enqueued or retriable_failure -> the outcome of each.
--
-- This is the only way from these to an end. Cancel, gates, orders, unique keys and dependencies
-- lead here. p_class and p_message are the reason for task_failure; null: the outcome says enough.
-- Returns the tasks whose end may have effects. The caller runs these effects or leaves a timer.
--
-- Locks: a timer that a store consumer has locked stays. The store consumer waits for the task next
-- and drops the timer of a task that has ended; to wait for it here would be a deadlock.
create or replace function tuskline_core.end_waiting(
  p_ids bigint[], p_outcome tuskline.status[], p_class text[], p_message text[], p_now timestamptz)
returns bigint[] language plpgsql as $$
declare
  v_first bigint := (select min(id) from unnest(p_ids) as id);
  v_last  bigint := (select max(id) from unnest(p_ids) as id);
  v_dead  bigint[];
  v_ids   bigint[];
  v_ended integer;
  v_cancelled bigint[];
  v_dropped bigint[];
begin
  if v_first is null then return '{}'; end if;
  with s as materialized (
    select t.id, t.next_trigger_at, w.outcome, w.class, w.message
      from unnest(p_ids, p_outcome, p_class, p_message) as w (id, outcome, class, message)
           join tuskline.task t on t.id = w.id
     where t.id = any (p_ids) and t.id between v_first and v_last
       and t.status in ('new', 'enqueued', 'retriable_failure')
     order by t.id for update of t
  ), u as (
    update tuskline.task t set status = s.outcome, finished_at = p_now, next_trigger_at = null
      from s where t.id = s.id and t.id = any (p_ids) and t.id between v_first and v_last
    returning t.id, t.lambda, t.priority, t.attempt, t.status, t.flags, s.class, s.message
  ), l as materialized (
    select m.due, m.task_id from tuskline.timer m
           join s on m.due = s.next_trigger_at and m.task_id = s.id
     where m.kind = 'due' for update of m skip locked
  ), m as (
    delete from tuskline.timer m using l
     where m.due = l.due and m.task_id = l.task_id and m.kind = 'due'
  ), f as (
    insert into tuskline.task_failure (task_id, fence, attempt, executor_id, error_class, message,
                                       fingerprint, failed_at)
    select u.id, nextval('tuskline.fence_seq'), u.attempt, 0, u.class, u.message,
           tuskline_core.fingerprint(u.class, u.lambda), p_now
      from u where u.class is not null)
  select array_agg(u.id) filter (where u.status in ('dead', 'fatal_failure')),
         coalesce(array_agg(u.id order by u.id) filter (
           where u.flags & 7 > 0 or q.has_policies
              or exists (select from tuskline_core.followed_lambda w
                          where w.lambda = u.lambda)), '{}'),
         count(*),
         array_agg(u.id) filter (where u.status = 'cancelled'),
         array_agg(u.id) filter (where u.status = 'dropped')
    into v_dead, v_ids, v_ended, v_cancelled, v_dropped
    from u left join tuskline.queue q on q.lambda = u.lambda and q.priority = u.priority;
  if v_ended < cardinality(p_ids) then
    v_ids := v_ids || tuskline_core.end_kept(p_ids, p_outcome[1], p_now);
  end if;
  perform tuskline_core.count_ends('cancelled', v_cancelled, p_now);
  perform tuskline_core.count_ends('dropped', v_dropped, p_now);
  perform tuskline_core.waiting_ended(p_ids, p_now);
  if v_dead is not null then perform tuskline_core.failures_noted(v_dead, '{dead}', p_now); end if;
  return v_ids;
end $$;
comment on function tuskline_core.end_waiting(
  bigint[], tuskline.status[], text[], text[], timestamptz) is
  'Ends waiting tasks: new, enqueued or retriable_failure -> an end, with its reason. '
  'Returns the tasks whose end may have effects.';

-- Ends tasks that wait in task_kept while their segment is dropped. Only cancel ends these.
create or replace function tuskline_core.end_kept(
  p_ids bigint[], p_outcome tuskline.status, p_now timestamptz)
returns bigint[] language plpgsql as $$
declare
  v_ids bigint[];
begin
  with s as materialized (
    select k.id, k.next_trigger_at from tuskline.task_kept k
     where k.id = any (p_ids) and k.status in ('new', 'retriable_failure') order by k.id for update
  ), u as (
    update tuskline.task_kept k set status = p_outcome, finished_at = p_now, next_trigger_at = null
      from s where k.id = s.id returning k.id, k.lambda, k.priority, k.flags
  ), l as materialized (
    select m.due, m.task_id from tuskline.timer m
           join s on m.due = s.next_trigger_at and m.task_id = s.id
     where m.kind = 'due' for update of m skip locked
  ), m as (
    delete from tuskline.timer m using l
     where m.due = l.due and m.task_id = l.task_id and m.kind = 'due'
  ), n as (
    insert into tuskline_core.event_count (at, lambda, priority, event, events, total_ms)
    select p_now, u.lambda, u.priority, 'cancelled', count(*), 0
      from u where p_outcome = 'cancelled' group by u.lambda, u.priority)
  select coalesce(array_agg(u.id order by u.id) filter (where u.flags & 7 > 0 or q.has_policies
           or exists (select from tuskline_core.followed_lambda w where w.lambda = u.lambda)), '{}')
    into v_ids from u left join tuskline.queue q on q.lambda = u.lambda and q.priority = u.priority;
  return v_ids;
end $$;
comment on function tuskline_core.end_kept(bigint[], tuskline.status, timestamptz) is
  'Ends waiting tasks of task_kept: new or retriable_failure -> an end. '
  'Returns the tasks whose end may have effects.';
