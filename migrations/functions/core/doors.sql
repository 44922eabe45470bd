-- Doors: the only functions of the policies that the core calls.
--
-- A door calls the policies one after the other and returns their verdicts. The core then writes
-- these into its tables. hold_key has a file of its own.
--
--   door             called when                                    policies
--   before_accept    a task is about to be accepted                 orders, unique keys, backlogs
--   hold_key         a task with a unique key is to be accepted     unique keys
--   on_accept        tasks were accepted                            limits, orders
--   on_postpone      waiting tasks are postponed                    gates, limits, orders
--   before_enqueue   tasks come due                                 dependencies, gates, limits
--   before_claim     tasks of a flagged queue are popped or sorted  gates, limits
--   attempt_ended    attempts have ended, or a policy stops tasks   limits, orders
--   waiting_ended    waiting tasks have ended                       gates, limits
--   followed_tasks   attempts have ended                            listeners, dependencies
--   task_ended       tasks have ended                               listeners, dependencies
--   failures_noted   failures were written to task_failure          dead letters, breakers
--   on_restart       ended tasks start again                        dependencies

-- Checks the policies that may refuse a task.
--
-- Returns the name of the mistake for refuse_task; null: there is none.
create or replace function tuskline_core.before_accept(t tuskline.task, p_is_full boolean)
returns text language plpgsql stable as $$
begin
  return case
    when t.ordering_key is not null and not exists (select from tuskline.task_limit r
         where r.lambda = t.lambda and r.kind = 'order' and r.dropped_at is null) then 'no_order'
    when t.unique_key is not null and not exists (
         select from tuskline.unique_policy u where u.lambda = t.lambda) then 'no_unique_keys'
    when p_is_full then 'backlog_full'
  end;
end $$;
comment on function tuskline_core.before_accept(tuskline.task, boolean) is
  'Door: name of the mistake for which policies refuse a task; null: there is none.';

-- Lets accepted tasks join wait lists. The tasks are new.
--
-- Returns the tasks that joined a wait list behind another task. These need no timer.
create or replace function tuskline_core.on_accept(p_ids bigint[], p_now timestamptz)
returns bigint[] language plpgsql as $$
begin
  return tuskline_core.join_wait_lists(p_ids, p_now);
end $$;
comment on function tuskline_core.on_accept(bigint[], timestamptz) is
  'Door: lets accepted tasks join wait lists. Returns the tasks that need no timer.';

-- Takes waiting tasks, which will be due at another time, out of gates, permits and wait lists.
create or replace function tuskline_core.on_postpone(p_ids bigint[], p_now timestamptz) returns void
language plpgsql as $$
begin
  if exists (select from tuskline_core.policy_flag) then
    delete from tuskline.parked k where k.task_id = any (p_ids);
    perform tuskline_core.withdraw(p_ids, null, p_now);
  end if;
end $$;
comment on function tuskline_core.on_postpone(bigint[], timestamptz) is
  'Door: takes postponed tasks out of their gates, permits and wait lists.';

-- Checks dependencies, gates and limits of tasks that come due. The caller holds their row locks.
create or replace function tuskline_core.before_enqueue(p_ids bigint[], p_now timestamptz)
returns tuskline_core.verdicts language plpgsql as $$
declare
  v tuskline_core.verdicts;
  d tuskline_core.verdicts;
begin
  d := tuskline_core.check_dependencies(p_ids, p_now);
  v := tuskline_core.ask_gates_and_limits(d.go, tuskline_core.in_paused_queues(d.go, p_now), p_now);
  v.stopped := v.stopped || tuskline_core.permit_holders(d.stopped);
  v.doomed := d.doomed || v.doomed;
  v.outcome := d.outcome || v.outcome;
  v.error_class := d.error_class || v.error_class;
  v.message := d.message || v.message;
  return v;
end $$;
comment on function tuskline_core.before_enqueue(bigint[], timestamptz) is
  'Door: verdicts of dependencies, gates and limits on tasks that come due.';

create or replace function tuskline_core.before_claim(p_ids bigint[], p_now timestamptz)
returns tuskline_core.verdicts language plpgsql as $$
begin
  return tuskline_core.ask_gates_and_limits(p_ids, '{}', p_now);
end $$;
comment on function tuskline_core.before_claim(bigint[], timestamptz) is
  'Door: verdicts of gates and limits on tasks that are about to be claimed.';

-- Applies gates to tasks, then acquires permits for those that pass.
--
-- p_paused: tasks of paused queues. They are enqueued without permits and acquire them when they
-- are claimed. If one holds a permit, it is also returned as stopped, so that it releases the
-- permit: tasks of another priority may use it.
create or replace function tuskline_core.ask_gates_and_limits(
  p_ids bigint[], p_paused bigint[], p_now timestamptz)
returns tuskline_core.verdicts language plpgsql as $$
declare
  v tuskline_core.verdicts;
  l tuskline_core.verdicts;
begin
  v := tuskline_core.apply_gates(p_ids, p_now);
  if p_paused <> '{}' then
    p_paused := array(select id from unnest(v.go) as id where id = any (p_paused));
    v.go := array(select unnest(v.go) except select unnest(p_paused));
  end if;
  if v.stopped <> '{}' or v.doomed <> '{}' or p_paused <> '{}' then
    perform tuskline_core.leave_wait_lists(v.stopped || v.doomed || p_paused, p_now, 100);
    v.stopped := tuskline_core.permit_holders(v.stopped || p_paused);
  end if;
  l := tuskline_core.acquire_permits(v.go, p_now);
  v.go := l.go || p_paused;
  v.permits := l.permits;
  v.due := l.due;
  return v;
end $$;
comment on function tuskline_core.ask_gates_and_limits(bigint[], bigint[], timestamptz) is
  'Verdicts of gates and limits on tasks. Tasks of paused queues acquire no permit.';

-- Takes ended tasks out of wait lists and gates.
--
-- It runs in the transaction that ends them, which may be the caller's. Otherwise a wait list could
-- grant a permit to a task whose end is not committed yet.
create or replace function tuskline_core.waiting_ended(p_ids bigint[], p_now timestamptz)
returns void language plpgsql as $$
begin
  if exists (select from tuskline.gate) then
    delete from tuskline.parked k where k.task_id = any (p_ids);
  end if;
  if exists (select from tuskline_core.policy_flag) then
    perform tuskline_core.leave_wait_lists(p_ids, p_now, 1);
  end if;
end $$;
comment on function tuskline_core.waiting_ended(bigint[], timestamptz) is
  'Door: takes tasks that ended while they waited out of their wait lists and gates.';

create or replace function tuskline_core.attempt_ended(
  p_ids bigint[], p_max integer, p_now timestamptz)
returns tuskline_core.verdicts language plpgsql as $$
begin
  return tuskline_core.release_permits(p_ids, p_max, p_now);
end $$;
comment on function tuskline_core.attempt_ended(bigint[], integer, timestamptz) is
  'Door: releases permits after the end of attempts. Verdicts of limits and orders.';

create or replace function tuskline_core.task_ended(
  p_ids bigint[], p_max integer, p_now timestamptz)
returns tuskline_core.verdicts language plpgsql as $$
begin
  perform tuskline_core.tell_waiting(p_ids);
  return tuskline_core.resolve_dependents(p_ids, p_max, p_now);
end $$;
comment on function tuskline_core.task_ended(bigint[], integer, timestamptz) is
  'Door: notifies sessions that wait for ended tasks. Returns the dependents to recheck.';

-- Lists dead letters and counts failures for breakers.
--
-- It runs in the transaction that writes the failures: no index of task finds the dead tasks later.
create or replace function tuskline_core.failures_noted(
  p_ids bigint[], p_status tuskline.status[], p_now timestamptz)
returns void language plpgsql as $$
begin
  if p_status && '{fatal_failure,dead}' then
    perform tuskline_core.add_dead_letters(p_ids, p_now);
  end if;
  if exists (select from tuskline.breaker) then
    perform tuskline_core.note_failures(p_ids, p_now);
  end if;
end $$;
comment on function tuskline_core.failures_noted(bigint[], tuskline.status[], timestamptz) is
  'Door: lists the dead letters of failed attempts or tasks and counts for breakers.';

-- Returns the tasks for which another task or a session waits.
create or replace function tuskline_core.followed_tasks(p_ids bigint[]) returns bigint[]
language sql as $$
  select array(select d.parent_id from tuskline.dependency d where d.parent_id = any (p_ids)
               union select a.task_id from tuskline_core.awaited a where a.task_id = any (p_ids))
$$;
comment on function tuskline_core.followed_tasks(bigint[]) is
  'Door: returns the tasks for which another task or a session waits.';

create or replace function tuskline_core.on_restart(p_ids bigint[], p_now timestamptz) returns void
language plpgsql as $$
begin
  perform tuskline_core.restart_dependents(p_ids, p_now);
end $$;
comment on function tuskline_core.on_restart(bigint[], timestamptz) is
  'Door: lets dependents wait again for ended tasks that start again.';
