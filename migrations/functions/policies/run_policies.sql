-- Runs the policies that need a store consumer, a batch of each per call.
--
-- It opens gates and ends limits and throttles whose time is over, and sorts flagged queues. It
-- enqueues tasks parked by opened gates and tasks in the wait lists of dropped limits. It checks
-- backlogs and breakers and advances operations.
--
-- A store consumer calls this only while the column gates of enqueue_due is true.
-- Returns moved: how many rows it has looked at, and next_due_ms: when to call again. While moved
-- reaches p_limit, that is 0. Else a gate or throttle ends or an operation continues then; null:
-- none.
--
-- Locks: SKIP LOCKED and batches, so that a million parked or waiting tasks block no other
-- transaction.
create or replace function tuskline.run_policies(
  p_limit integer default 1000, p_installation text default 'default',
  out moved integer, out next_due_ms bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off set lock_timeout = '100ms' set plan_cache_mode = force_generic_plan
set enable_hashjoin = off set enable_mergejoin = off
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_now      timestamptz := tuskline.clock();
  v_limit_id bigint;
  v_again    timestamptz;
  v_seen     bigint;
  f          tuskline_core.flagged_queue;
  v_gate     bigint;
begin
  perform tuskline.check_installation(p_installation);
  moved := 0;
  -- One store consumer at a time: this part locks lambdas and flagged queues.
  if tuskline_core.lock_policies() then
    perform tuskline_core.note_backlogs();
    if exists (select from tuskline.breaker) then
      perform tuskline_core.check_breakers(v_now);
    end if;
    perform tuskline_core.open_gate(o.gate_id, v_now, 'its time was over')
       from (select s.gate_id from tuskline.gate s
                    join tuskline.lambda l on l.name = s.lambda
              where s.until <= v_now and s.opened_at is null
              order by s.gate_id for update of l skip locked) o;
    perform tuskline_core.end_limit(o.limit_id, v_now, 'its time was over')
       from (select s.limit_id from tuskline.task_limit s
                    join tuskline.lambda l on l.name = s.lambda
              where s.until <= v_now and s.dropped_at is null
              order by s.limit_id for update of l skip locked) o;
    for f in
      select s.* from tuskline_core.flagged_queue s
       where s.unsorted order by s.queue_id for update skip locked
    loop
      if f.paused @> v_now then
        moved := moved + tuskline_core.empty_of_permits(f, v_now, p_limit);
      else
        moved := moved + tuskline_core.sort_queue(f, v_now, p_limit);
      end if;
    end loop;
  end if;
  for v_gate in
    select s.gate_id from tuskline.gate s where s.opened_at is not null order by s.gate_id
  loop
    moved := moved + tuskline_core.release_parked(v_gate, v_now, p_limit);
  end loop;
  for v_limit_id in
    select r.limit_id from tuskline.task_limit r where r.dropped_at is not null order by r.limit_id
  loop
    moved := moved + tuskline_core.release_wait_list(v_limit_id, v_now, p_limit);
  end loop;
  if exists (select from tuskline.operation where ended_at is null) then
    select a.looked, a.next_at into v_seen, v_again
      from tuskline_core.advance_operations(v_now, p_limit) a;
    moved := moved + v_seen;
  end if;
  next_due_ms := case when moved >= p_limit then 0 else ceil(1000 * extract(epoch from (
    select min(d.due) - v_now
      from (select v_again as due
            union all
            select s.until from tuskline.gate s where s.until is not null and s.opened_at is null
            union all
            select r.until from tuskline.task_limit r
             where r.until is not null and r.dropped_at is null) d))) end;
end $$;
comment on function tuskline.run_policies(integer, text) is
  'Runs the policies that need a store consumer: gates, flagged queues, dropped limits, throttles, '
  'operations, breakers, backlogs. Returns how many rows it has looked at and when to call again '
  '(ms).';

-- Enqueues a batch of tasks that an opened gate has parked. Deletes the gate after the last one.
--
-- Returns how many parked tasks it has released.
-- Locks: the row of the gate, so one store consumer at a time handles it. Locked tasks are left for
-- the next call.
--
-- Planner: released tasks leave dead index entries at the start of the gate's rows. Therefore the
-- scan starts above the last released task (mark). Tasks below it that were parked later are found
-- by a scan from the start, before the gate is deleted.
create or replace function tuskline_core.release_parked(
  p_gate bigint, p_now timestamptz, p_limit integer)
returns integer language plpgsql as $$
declare
  v_mark   bigint;
  v_lambda text;
  v_ids    bigint[];
  v_since  timestamptz[]; -- when they were parked
begin
  select g.mark, g.lambda into v_mark, v_lambda from tuskline.gate g
   where g.gate_id = p_gate for no key update skip locked;
  if not found then return 0; end if;
  v_ids := tuskline_core.lock_parked(p_gate, v_mark, p_limit);
  if v_ids = '{}' then v_ids := tuskline_core.lock_parked(p_gate, 0, p_limit); end if;
  if v_ids = '{}' then
    delete from tuskline.parked k
     where k.gate_id = p_gate
       and not exists (select from tuskline_core.all_tasks t
                        where t.id = k.task_id and t.status in ('new', 'retriable_failure'));
    if exists (select from tuskline.parked k where k.gate_id = p_gate) then return 0; end if;
    delete from tuskline.gate where gate_id = (
      select s.gate_id from tuskline.gate s where s.gate_id = p_gate for update skip locked);
    return 0;
  end if;
  with d as (
    delete from tuskline.parked k where k.gate_id = p_gate and k.task_id = any (v_ids)
    returning k.parked_at)
  select array_agg(d.parked_at) into v_since from d;
  update tuskline.gate set mark = v_ids[cardinality(v_ids)] where gate_id = p_gate;
  perform tuskline_core.count_waits('gate', v_lambda, v_since, p_now);
  perform tuskline_core.run_effects('{}', v_ids, p_now, p_limit);
  return cardinality(v_ids);
end $$;
comment on function tuskline_core.release_parked(bigint, timestamptz, integer) is
  'Enqueues a batch of tasks that an opened gate has parked. Deletes the gate after the last one.';

-- Locks the first tasks that a gate has parked, above a mark. Skips tasks that another transaction
-- has locked.
--
-- Returns the locked tasks, in id order.
create or replace function tuskline_core.lock_parked(
  p_gate bigint, p_mark bigint, p_limit integer)
returns bigint[] language sql as $$
  select array(
    select t.id from tuskline.task t
     where t.id = any (array(select k.task_id from tuskline.parked k
                              where k.gate_id = p_gate and k.task_id > p_mark
                              order by k.task_id limit p_limit))
     order by t.id for update skip locked)
$$;
comment on function tuskline_core.lock_parked(bigint, bigint, integer) is
  'Locks the first tasks that a gate has parked, above a mark. Skips locked tasks.';

-- Enqueues a batch of tasks that wait for a dropped limit. Deletes the limit after the last one.
--
-- Tasks that another transaction has locked are left for the next call.
-- Returns how many tasks were enqueued.
--
-- Race: a transaction that read the limit before the drop may still commit waiters. The limit stays
-- until all such transactions have ended (late_joiners).
create or replace function tuskline_core.release_wait_list(
  p_limit_id bigint, p_now timestamptz, p_limit integer)
returns integer language plpgsql as $$
declare
  v_ids   bigint[];
  v_known text[];
  v_late  text[];
begin
  v_ids := array(
    select t.id from tuskline.task t
     where t.id = any (array(select l.task_id from tuskline.wait_list l
                              where l.limit_id = p_limit_id limit p_limit))
     order by t.id for update skip locked);
  delete from tuskline.wait_list l
   where l.task_id = any (v_ids) and l.limit_id + 0 = p_limit_id; -- + 0: use wait_list_task
  perform tuskline_core.run_effects('{}', v_ids, p_now, p_limit);
  if v_ids <> '{}' then return cardinality(v_ids); end if;

  select r.late_joiners into v_known from tuskline.task_limit r
   where r.limit_id = p_limit_id for no key update skip locked;
  if not found then return 0; end if;
  v_late := tuskline_core.late_joiners(v_known);
  if v_late = '{}' then
    delete from tuskline.wait_list l
     where l.limit_id = p_limit_id
       and not exists (select from tuskline_core.all_tasks t
                        where t.id = l.task_id and t.status in ('new', 'retriable_failure'));
    delete from tuskline.task_limit r
     where r.limit_id = p_limit_id
       and not exists (select from tuskline.wait_list l where l.limit_id = p_limit_id);
  elsif v_late is distinct from v_known then
    update tuskline.task_limit r set late_joiners = v_late where r.limit_id = p_limit_id;
  end if;
  return 0;
end $$;
comment on function tuskline_core.release_wait_list(bigint, timestamptz, integer) is
  'Enqueues a batch of tasks that wait for a dropped limit. Deletes the limit after the last one.';

-- Returns the transactions that may have read a limit before its drop and may still add waiters.
--
-- Such a transaction holds a lock on the table wait_list until its end. The first call after the
-- drop (p_known null) returns all holders. A transaction that begins later reads the limit as
-- dropped. Later calls restrict the result to p_known. A prepared transaction has another name
-- after a restart (-1/...), so each of these counts.
--
-- Race: the caller calls this before it reads the wait list. Otherwise a transaction could commit a
-- waiter between the two and be missed.
create or replace function tuskline_core.late_joiners(p_known text[]) returns text[]
language sql volatile as $$
  select array(
    select distinct l.virtualtransaction from pg_locks l
     where l.locktype = 'relation' and l.relation = 'tuskline.wait_list'::regclass and l.granted
       and l.mode = 'RowExclusiveLock' and l.pid is distinct from pg_backend_pid()
       and l.database = (select d.oid from pg_database d where d.datname = current_database())
       and (p_known is null or l.virtualtransaction = any (p_known)
            or l.virtualtransaction like '-1/%')
     order by 1)
$$;
comment on function tuskline_core.late_joiners(text[]) is
  'Open transactions that may still join wait lists, restricted to those of p_known (null: all).';
