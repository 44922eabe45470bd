-- Restarts one task that ended without success, with all its attempts.
--
-- Tasks that depend on it wait for it again. A task that is due later keeps its due time; with
-- p_due_now it is due now.
-- Returns retried, too_early (it has not ended), succeeded, or unknown (also past its retention).
create or replace function tuskline.retry(p_task bigint, p_due_now boolean default false)
returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now    timestamptz := tuskline.clock();
  v_status tuskline.status;
  v_ended  boolean;
begin
  perform tuskline_core.need_on_task(p_task, 'operate');
  if tuskline_core.restart_tasks(array[p_task], v_now, p_due_now) = 0 then
    select t.status, t.finished_at is not null into v_status, v_ended
      from tuskline_core.all_tasks t where t.id = p_task;
    return case
      when v_status = 'success' then 'succeeded'
      when not v_ended then 'too_early'
      else 'unknown' end;
  end if;
  insert into tuskline.audit (at, verb, subject, detail)
  values (v_now, 'retry', 'task ' || p_task, case when p_due_now then 'due now' end);
  return 'retried';
end $$;
comment on function tuskline.retry(bigint, boolean) is
  'Restarts a task that ended without success, with all its attempts. It keeps its due time, or is '
  'due now (p_due_now). Returns retried, too_early, succeeded or unknown. Audited.';

-- Restarts all tasks of a chain that ended without success. Returns the chain and how many.
--
-- A branch that was not needed restarts, too. It is cancelled again when the chain reaches it.
-- Tasks that are due later keep their due times; with p_due_now they are due now.
create or replace function tuskline.retry_chain(
  p_task bigint, p_due_now boolean default false, out chain_id bigint, out retried integer)
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  chain_id := tuskline.chain_of(p_task);
  perform tuskline_core.need_on_task(c.task_id, 'operate')
     from tuskline.chain_task c where c.chain_id = retry_chain.chain_id;
  retried := tuskline_core.restart_tasks(
    array(select c.task_id from tuskline.chain_task c where c.chain_id = retry_chain.chain_id),
    tuskline.clock(), p_due_now);
  insert into tuskline.audit (at, verb, subject, detail)
  values (tuskline.clock(), 'retry_chain', 'chain ' || chain_id,
          format('%s tasks, by task %s', retried, p_task));
end $$;
comment on function tuskline.retry_chain(bigint, boolean) is
  'Restarts all tasks of a chain that ended without success. Returns the chain and how many. '
  'Audited.';

-- Restarts tasks: dead, fatal_failure, cancelled or dropped -> new.
--
-- A restarted task is due now, or at its due time if that is later: no task starts early. With
-- p_due_now its due time becomes now, so that invariants() can compare it with the start.
--
-- A task that is past its retention counts as deleted. Its segment may be retiring now, and a
-- restarted task would be dropped with it.
-- A task in task_kept moves into its segment and gets a timer if the segment is attached already.
-- Otherwise it waits in task_kept until the janitor creates that segment again. It then returns
-- (return_kept) and gets its timer (time_returned).
-- Returns how many tasks it has restarted.
--
-- Locks: the segments (pin_segments); then the tasks and their dependents, in id order; then the
-- tasks in task_kept. The lock on a dependent guards the state of the tasks that it depends on.
create or replace function tuskline_core.restart_tasks(
  p_ids bigint[], p_now timestamptz, p_due_now boolean default false)
returns integer language plpgsql as $$
declare
  v_all   bigint[] := p_ids || array( -- and the tasks that depend on them
    select d.task_id from tuskline.dependency d where d.parent_id = any (p_ids));
  v_first bigint := (select min(id) from unnest(v_all) as id);
  v_last  bigint := (select max(id) from unnest(v_all) as id);
  v_ids   bigint[]; -- restarted, in a segment, and when they are due
  v_due   timestamptz[];
  v_kept  bigint[]; -- restarted, in task_kept
begin
  perform tuskline_core.pin_segments(p_ids);
  perform from tuskline.task t
    where t.id = any (v_all) and t.id between v_first and v_last
    order by t.id for update;
  with u as (
    update tuskline.task t
       set status = 'new', attempt = 0, crashes = 0, flags = t.flags & ~2,
           started_at = null, finished_at = null,
           scheduled_at = tuskline_core.due_again(t.scheduled_at, p_now, p_due_now),
           next_trigger_at = greatest(
             p_now, tuskline_core.due_again(t.scheduled_at, p_now, p_due_now))
     where t.id = any (p_ids) and t.id between v_first and v_last
       and tuskline_core.may_restart(t.lambda, t.status, t.finished_at, p_now)
    returning t.id, t.next_trigger_at as due)
  select array_agg(u.id order by u.id), array_agg(u.due order by u.id) into v_ids, v_due from u;
  with u as (
    update tuskline.task_kept t
       set status = 'new', attempt = 0, crashes = 0, flags = t.flags & ~2,
           started_at = null, finished_at = null,
           scheduled_at = tuskline_core.due_again(t.scheduled_at, p_now, p_due_now),
           next_trigger_at = greatest(
             p_now, tuskline_core.due_again(t.scheduled_at, p_now, p_due_now))
     where t.id = any (array(select k.id from tuskline.task_kept k
                              where k.id = any (p_ids) order by k.id for update))
       and tuskline_core.may_restart(t.lambda, t.status, t.finished_at, p_now)
    returning t.id)
  select array_agg(u.id order by u.id) into v_kept from u;
  with n as materialized (
    select s.no
      from (select distinct tuskline_core.segment_of(id) as no from unnest(v_kept) as id) s
     where tuskline_core.is_attached(s.no)
  ), m as (
    delete from tuskline.task_kept k
     where k.id = any (v_kept) and tuskline_core.segment_of(k.id) in (select n.no from n)
    returning k.*
  ), i as (insert into tuskline_core.task_store select * from m returning id, next_trigger_at)
  select v_ids || array_agg(i.id), v_due || array_agg(i.next_trigger_at) into v_ids, v_due from i;
  select array_agg(id) into v_kept
    from unnest(v_kept) as id where id <> all (coalesce(v_ids, '{}'));
  perform tuskline_core.add_timers(v_ids, v_due, 'due', p_now);
  v_ids := v_ids || v_kept;
  if v_ids is null then return 0; end if;
  perform tuskline_core.unseal_segments(v_ids);
  delete from tuskline.dead_letter d where d.task_id = any (v_ids);
  delete from tuskline.redriven v where v.task_id = any (v_ids);
  perform tuskline_core.on_restart(v_ids, p_now);
  return cardinality(v_ids);
end $$;
comment on function tuskline_core.restart_tasks(bigint[], timestamptz, boolean) is
  'Restarts tasks that ended without success: status new, due now or at their later due time. '
  'Returns how many.';

-- Returns the due time of a task that restarts. Null: it was due when it was scheduled.
create or replace function tuskline_core.due_again(
  p_due timestamptz, p_now timestamptz, p_due_now boolean)
returns timestamptz language sql immutable as $$
  select case when p_due_now and p_due > p_now then p_now else p_due end
$$;
comment on function tuskline_core.due_again(timestamptz, timestamptz, boolean) is
  'The due time of a task that restarts: the one that it had, or now.';

create or replace function tuskline_core.may_restart(
  p_lambda text, p_status tuskline.status, p_finished_at timestamptz, p_now timestamptz)
returns boolean language sql stable as $$
  select p_status <> 'success'
     and p_finished_at > p_now - (
       select tuskline_core.kept_for(l, p_status) from tuskline.lambda l where l.name = p_lambda)
$$;
comment on function tuskline_core.may_restart(text, tuskline.status, timestamptz, timestamptz) is
  'True if a task may restart: it ended without success, and its retention is not over.';

-- Pins the segments of these tasks until the transaction ends.
--
-- Guarantees: no janitor finds that all tasks of a pinned segment have ended (segments_to_retire).
-- None decides which tasks outlive the segment (keep_remaining, return_kept).
--
-- Locks: the rows of the segments, in order of number. Callers share the lock (key share). A
-- janitor takes it alone (for update).
--
-- Race: a segment may be dropped or created again while we wait for its row. The row is then a new
-- one, or missing. So the loop repeats until it has locked every row that exists.
create or replace function tuskline_core.pin_segments(p_ids bigint[]) returns void
language plpgsql as $$
declare
  v_nos  bigint[] := array(select distinct tuskline_core.segment_of(id) from unnest(p_ids) as id);
  v_rows bigint;
begin
  loop
    perform from tuskline.segment s where s.segment_no = any (v_nos)
      order by s.segment_no for key share;
    get diagnostics v_rows = row_count;
    exit when tuskline_core.recall_segments(p_ids) = 0
      and v_rows = (select count(*) from tuskline.segment s where s.segment_no = any (v_nos));
  end loop;
end $$;
comment on function tuskline_core.pin_segments(bigint[]) is
  'Keeps the segments of these tasks from being sealed or retired until the transaction ends.';

-- Inserts the row of a dropped segment again, for tasks in task_kept that may restart.
--
-- The janitor finds by this row that the segment is needed again.
-- Returns how many rows it has inserted.
create or replace function tuskline_core.recall_segments(p_ids bigint[]) returns bigint
language plpgsql as $$
declare
  v_rows bigint;
begin
  insert into tuskline.segment (segment_no)
  select distinct tuskline_core.segment_of(k.id) from tuskline.task_kept k
   where k.id = any (p_ids)
     and tuskline_core.may_restart(k.lambda, k.status, k.finished_at, tuskline.clock())
   order by 1 on conflict do nothing;
  get diagnostics v_rows = row_count;
  return v_rows;
end $$;
comment on function tuskline_core.recall_segments(bigint[]) is
  'Inserts the rows of dropped segments again, if one of these tasks outlived them. '
  'Returns how many.';

-- Clears sealed_at of the segments of restarted tasks, so a rebuild of the queues reads them.
create or replace function tuskline_core.unseal_segments(p_ids bigint[]) returns void
language plpgsql as $$
begin
  update tuskline.segment s set sealed_at = null
   where s.segment_no = any (array(
     select g.segment_no from tuskline.segment g
      where g.segment_no in (select tuskline_core.segment_of(id) from unnest(p_ids) as id)
        and g.sealed_at is not null
      order by g.segment_no for no key update));
end $$;
comment on function tuskline_core.unseal_segments(bigint[]) is
  'Clears sealed_at of the segments of restarted tasks, so a rebuild of the queues reads them.';
