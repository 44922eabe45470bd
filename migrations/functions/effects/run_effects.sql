-- Runs the effects of ended attempts and tasks.
--
-- Permits go to the next waiters, dependents are enqueued or end as well, and listeners are
-- notified. One flat loop works on two lists, so that nothing recurses, however long a chain is:
--
--   ended   attempts or tasks that have ended: attempt_ended and task_ended compute what follows
--   due     tasks to enqueue now: waiters that got a permit, dependents whose parents have ended
--
-- At most p_max tasks are enqueued or ended; null: as many as have ended, 100 at least. An exchange
-- also records the results of other tasks, and its statement has a deadline. The rest become
-- timers, and a store consumer continues there.
--
-- Called by verbs in a transaction of the SDK or the server. A verb in a caller's transaction
-- leaves timers (leave_effects): that transaction may stay open, or may read an old snapshot.
--
-- Locks: tasks, with SKIP LOCKED. If a lock of a policy is not granted in time, the whole run rolls
-- back. All of it becomes timers, due in 200 ms.
-- A renewal of the functions locks each view until its end: verified_incarnation, then tasks.
-- Effects read tasks, and the claim of an exchange reads verified_incarnation. So that is read
-- first.
create or replace function tuskline_core.run_effects(
  p_ended bigint[], p_due bigint[], p_now timestamptz, p_max integer default null)
returns void language plpgsql as $$
declare
  v_ended bigint[] := coalesce(p_ended, '{}');
  v_due   bigint[] := coalesce(p_due, '{}');
  v_again bigint[] := '{}';
  v_some  bigint[];
  v_left  integer;
  v       tuskline_core.verdicts;
begin
  if v_ended = '{}' and v_due = '{}' then return; end if;
  perform from tuskline_core.verified_incarnation;
  p_max := coalesce(p_max, greatest(100, cardinality(v_ended)));
  v_left := p_max;
  begin
    while v_left > 0 and (v_ended <> '{}' or v_due <> '{}') loop
      if v_ended <> '{}' then
        v_some := v_ended;
        v := tuskline_core.attempt_ended(v_some, v_left, p_now);
        v_due := v_due || v.due;
        v_again := v_again || v.again;
        v_ended := tuskline_core.end_waiting(v.doomed, v.outcome, v.error_class, v.message, p_now);
        v_left := v_left - coalesce(cardinality(v.doomed), 0);
        v := tuskline_core.task_ended(v_some, p_max, p_now);
        v_again := v_again || v.again;
      else
        v_some := v_due[:v_left];
        v_due := v_due[v_left + 1:];
        v_left := v_left - cardinality(v_some);
        v := tuskline_core.enqueue(v_some, p_now);
        v_ended := v.again;
      end if;
      v_due := v_due || v.due;
    end loop;
  exception when lock_not_available then
    perform tuskline_core.add_timers(
      p_ended, array[p_now + tuskline_core.relock_after()], 'effects', p_now);
    perform tuskline_core.add_timers(
      p_due, array[p_now + tuskline_core.relock_after()], 'due', p_now);
    return;
  end;
  perform tuskline_core.add_timers(v_ended || v_again, array[p_now], 'effects', p_now);
  perform tuskline_core.add_timers(v_due, array[p_now], 'due', p_now);
end $$;
comment on function tuskline_core.run_effects(bigint[], bigint[], timestamptz, integer) is
  'Runs the effects of ended tasks, and enqueues due tasks. Leaves timers for the unfinished part.';

-- Leaves the effects of ended tasks to a store consumer, for a verb in a caller's transaction.
create or replace function tuskline_core.leave_effects(p_ids bigint[], p_now timestamptz)
returns void language plpgsql as $$
begin
  perform tuskline_core.add_timers(p_ids, array[p_now], 'effects', p_now);
end $$;
comment on function tuskline_core.leave_effects(bigint[], timestamptz) is
  'Adds a timer for each of these tasks: a store consumer then runs the effects of its end.';
