-- Lets lambda code go on in its own transaction only while this attempt holds the task.
--
-- It raises, where every other verb returns a value, so that the caller's transaction cannot
-- commit.
-- Guarantees: no attempt replaces this one until the caller's transaction ends. A worker that was
-- frozen past its lease commits its writes before the task is given to another attempt, or never.
-- Locks: the task row FOR SHARE. Every change of state waits for this lock; rescue skips the row
-- and comes back to it. A stronger lock would keep one attempt from working in two transactions at
-- once.
create or replace function tuskline.assert_current(p_task bigint, p_fence bigint) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off
set enable_seqscan = off set enable_bitmapscan = off as $$
begin
  perform tuskline_core.need_on_task(p_task, 'work');
  perform from tuskline.task t
    where t.id = p_task and t.fence = p_fence and t.status in ('claimed', 'processing') for share;
  if not found then
    perform tuskline_core.refuse('TK014',
      format('not_current: task %s is not held under fence %s any more', p_task, p_fence),
      'roll back: the attempt is over, another may be at work');
  end if;
end $$;
comment on function tuskline.assert_current(bigint, bigint) is
  'Raises TK014 unless this attempt still holds the task. '
  'The attempt keeps the task until the transaction ends.';

-- Records the success of an attempt in the lambda's own transaction: with its writes or not at all.
--
-- The worker still sends its result afterwards. It repeats this one, and it counts if this
-- transaction was rolled back. A second call for one attempt raises: its transaction would do the
-- writes a second time. The caller's transaction may stay open, so a store consumer runs the
-- effects. Above READ COMMITTED they are always left to it: the snapshot may be old, so the task's
-- flags do not decide.
create or replace function tuskline.complete(
  p_task bigint, p_fence bigint, p_output json default null)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan
set enable_hashjoin = off set enable_mergejoin = off
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_now  timestamptz := tuskline.clock();
  v_done tuskline_core.ended;
begin
  perform tuskline.assert_current(p_task, p_fence);
  v_done := tuskline_core.end_attempts(array[p_task], array[p_fence], null, null, null, v_now);
  if p_output is not null then
    insert into tuskline.task_output (task_id, output, finished_at)
    values (p_task, tuskline_core.storable(p_output), v_now);
  end if;
  if current_setting('transaction_isolation') <> 'read committed'
     or cardinality(v_done.flagged) > 0 then
    perform tuskline_core.leave_effects(array[p_task], v_now);
  end if;
end $$;
comment on function tuskline.complete(bigint, bigint, json) is
  'Records the success of this attempt in the caller''s own transaction. '
  'Raises TK014 when the attempt is over.';
