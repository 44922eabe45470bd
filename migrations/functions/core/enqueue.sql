-- Enqueues waiting tasks that are due: new or retriable_failure -> enqueued, with a row in a queue.
--
-- Policies check tasks with flags and tasks of queues with policies. All other tasks are enqueued
-- at once. A task that is due later and has its own timer is left alone.
-- Returns verdicts.again: tasks whose effects are to run. They had ended already, or a policy ends
-- or stops them. Returns verdicts.due: further tasks that are to be enqueued.
-- Locks: tasks that policies check, with SKIP LOCKED. A locked one gets a timer in 200 ms. For all
-- other tasks it waits, as long as the caller's lock_timeout allows.
create or replace function tuskline_core.enqueue(p_ids bigint[], p_now timestamptz)
returns tuskline_core.verdicts language plpgsql as $$
declare
  v        tuskline_core.verdicts;
  v_first  bigint;
  v_last   bigint;
  v_asked  bigint[] := '{}';
  v_free   bigint[];
  v_ended  bigint[];
  v_ready  bigint[];
  v_queues integer[];
begin
  if exists (select from tuskline_core.policy_flag)
     or exists (select from tuskline_core.followed_lambda) then
    select min(id), max(id) into v_first, v_last from unnest(p_ids) as id;
    v_asked := array(
      select t.id from tuskline.task t
             join tuskline.queue q on q.lambda = t.lambda and q.priority = t.priority
       where t.id = any (p_ids) and t.id between v_first and v_last
         and (t.flags & 7 > 0 or q.has_policies));
  end if;
  if v_asked <> '{}' then
    select array_agg(l.id), array_agg(l.id) filter (where l.finished_at is not null),
           array_agg(l.id) filter (where l.status in ('new', 'retriable_failure')
             and (l.next_trigger_at <= p_now or not exists (select from tuskline.timer m
               where m.due = l.next_trigger_at and m.task_id = l.id and m.kind = 'due')))
      into v_free, v_ended, v_ready
      from (select t.id, t.status, t.finished_at, t.next_trigger_at from tuskline.task t
             where t.id = any (v_asked) and t.id between v_first and v_last
             order by t.id for update skip locked) l;
    perform tuskline_core.add_timers(
      array(select unnest(v_asked) except select unnest(v_free)),
      array[p_now + tuskline_core.relock_after()], 'due', p_now);
    if v_ready is not null then v := tuskline_core.before_enqueue(v_ready, p_now); end if;
    v.again := v_ended || v.stopped
      || tuskline_core.end_waiting(v.doomed, v.outcome, v.error_class, v.message, p_now);
    p_ids := array(select unnest(p_ids) except select unnest(v_asked)) || v.go;
  end if;
  with u as (
    update tuskline.task t
       set status = 'enqueued', next_trigger_at = p_now + tuskline_core.stalled_after(),
           flags = t.flags | (t.id = any (coalesce(v.permits, '{}')))::integer::smallint
      from (select distinct id from unnest(p_ids) as id order by id) d
     where t.id = d.id and t.status in ('new', 'retriable_failure')
       and (t.next_trigger_at <= p_now or not exists (select from tuskline.timer m
         where m.due = t.next_trigger_at and m.task_id = t.id and m.kind = 'due'))
    returning t.id, t.lambda, t.priority, tuskline_core.payload_bytes(t.payload) as bytes,
              case when t.fence = 0 and t.scheduled_at > t.created_at
                   then (1000 * extract(epoch from t.scheduled_at - t.created_at))::bigint end as ms
  ), c as (
    insert into tuskline_core.event_count (at, lambda, event, bucket, events, total_ms, max_ms)
    select p_now, u.lambda, 'due', tuskline_core.bucket_of(u.ms), count(*), sum(u.ms), max(u.ms)
      from u where u.ms is not null group by u.lambda, tuskline_core.bucket_of(u.ms)
  ), i as (
    insert into tuskline.queued (queue_id, bytes, task_id)
    select q.queue_id, u.bytes, u.id
      from u join tuskline.queue q on q.lambda = u.lambda and q.priority = u.priority
    returning queue_id)
  select array_agg(distinct queue_id) into v_queues from i;
  perform tuskline_core.wake(v_queues);
  return v;
end $$;
comment on function tuskline_core.enqueue(bigint[], timestamptz) is
  'new or retriable_failure -> enqueued, for tasks that are due and that no policy holds.';

-- Adds a row to the queue of each enqueued task. Wakes the workers that wait for these queues.
create or replace function tuskline_core.queue_tasks(p_ids bigint[]) returns void
language plpgsql as $$
declare
  v_first  bigint := (select min(id) from unnest(p_ids) as id);
  v_last   bigint := (select max(id) from unnest(p_ids) as id);
  v_queues integer[];
begin
  if v_first is null then return; end if;
  with i as (
    insert into tuskline.queued (queue_id, bytes, task_id)
    select q.queue_id, tuskline_core.payload_bytes(t.payload), t.id
      from tuskline.task t join tuskline.queue q on q.lambda = t.lambda and q.priority = t.priority
     where t.id = any (p_ids) and t.id between v_first and v_last and t.status = 'enqueued'
     order by t.id
    returning queue_id)
  select array_agg(distinct queue_id) into v_queues from i;
  perform tuskline_core.wake(v_queues);
end $$;
comment on function tuskline_core.queue_tasks(bigint[]) is
  'Adds a queue row for each enqueued task and wakes the workers that wait for these queues.';

-- Queues tasks that come back from a worker.
--
-- Claims of a sorted queue do not check limits, so the tasks acquire here the permits that they
-- lack: of a rate limit, because each claim needs one of its own, and of a limit that was set after
-- their claim. Tasks of paused queues do so when they are claimed.
create or replace function tuskline_core.queue_returned(p_ids bigint[], p_now timestamptz)
returns void language plpgsql as $$
declare
  v_first bigint;
  v_last  bigint;
  v_ask   bigint[];
begin
  if exists (select from tuskline_core.policy_flag) then
    select min(id), max(id) into v_first, v_last from unnest(p_ids) as id;
    v_ask := array(
      select t.id from tuskline.task t
             join tuskline.queue q on q.lambda = t.lambda and q.priority = t.priority
       where t.id = any (p_ids) and t.id between v_first and v_last
         and t.status = 'enqueued' and q.has_policies
         and t.id <> all (tuskline_core.in_paused_queues(p_ids, p_now))
       order by t.id);
    p_ids := array(select unnest(p_ids) except select unnest(v_ask))
      || tuskline_core.ask_before_claim(v_ask, p_now);
  end if;
  perform tuskline_core.queue_tasks(p_ids);
end $$;
comment on function tuskline_core.queue_returned(bigint[], timestamptz) is
  'Queues tasks that a worker has given back or that it held when it died. '
  'Tasks without permits acquire them first.';
