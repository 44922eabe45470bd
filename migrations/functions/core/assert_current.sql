-- assert_current: for lambda code, in its own transaction: goes on only while this attempt holds the
-- task. Until that transaction ends, nobody can take the attempt away: the row is locked FOR SHARE,
-- which every change of state must wait for, and which rescue steps around and comes back to. So the
-- writes of a worker that was frozen past its lease either commit before the task is given to another
-- or not at all. SHARE and no stronger, so that one attempt may work in two transactions at once. This
-- one raises, where every other verb answers "lost" with a value: its purpose is that the caller's
-- transaction cannot commit.
create or replace function tuskline.assert_current(p_task bigint, p_fence bigint) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
begin
  perform from tuskline.task t
    where t.id = p_task and t.fence = p_fence and t.status in ('claimed', 'processing') for share;
  if not found then
    perform tuskline_core.refuse('TK014', format('not_current: task %s is not held under fence %s any more', p_task, p_fence),
      'roll back: the attempt is over, another may be at work');
  end if;
end $$;
comment on function tuskline.assert_current(bigint, bigint) is
  'Raises TK014 unless this attempt still holds the task; until the transaction ends nobody can take it away.';

-- complete: success, recorded in the lambda's own transaction: with its writes or not at all. The
-- result that the worker sends afterwards is the same one again, and decides if this was rolled back.
-- A second complete of one attempt raises: its transaction would do the writes a second time.
-- The effects are left to a store consumer: this transaction may stay open. Above READ COMMITTED they
-- are left whatever the task's flags say, because its snapshot may be old.
create or replace function tuskline.complete(p_task bigint, p_fence bigint, p_output json default null) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_now  timestamptz := tuskline.clock();
  v_done tuskline_core.ended;
begin
  perform tuskline.assert_current(p_task, p_fence);
  v_done := tuskline_core.end_attempts(array[p_task], array[p_fence], null, null, null, v_now);
  if p_output is not null then
    insert into tuskline.task_output (task_id, output, finished_at) values (p_task, tuskline_core.storable(p_output), v_now);
  end if;
  if current_setting('transaction_isolation') <> 'read committed'
     or cardinality(v_done.flagged) > 0 then
    perform tuskline_core.leave_effects(array[p_task], v_now);
  end if;
end $$;
comment on function tuskline.complete(bigint, bigint, json) is
  'Success of this attempt, in the caller''s own transaction; raises TK014 when the attempt is over.';
