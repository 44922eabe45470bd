-- Records the results of the last batch and claims the next one, in one statement and one commit.
--
-- A synchronous commit costs as much as 50 to 100 row transitions: one commit per exchange keeps a
-- busy controller fast.
-- Returns refused (see set_results) and the claim. deferred: tasks whose results are not recorded,
-- because another transaction has locked their rows. Their leases are kept; the worker sends these
-- results again with a later exchange.
--
-- Locks: it waits at most 200 ms for one row. An idle session that holds a lock would keep hundreds
-- of finished tasks from being recorded, until they run again. After the timeout it locks the free
-- rows and records their results (lock_free_results).
create or replace function tuskline.exchange(
  p_executor bigint, p_tasks bigint[], p_fences bigint[], p_notes json, p_done_leases bigint[],
  p_queues integer[], p_marks bigint[], p_groups smallint[], p_budgets integer[],
  p_bounds integer[] default null, p_max_bytes bigint default 8388608)
returns tuskline_core.exchanged language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off set lock_timeout = '200ms'
set plan_cache_mode = force_generic_plan set enable_hashjoin = off set enable_mergejoin = off
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v         tuskline_core.exchanged;
  v_refused bigint[] := '{}';
  v_held    bigint[] := '{}';
  v_ids     bigint[];
  v_fences  bigint[];
begin
  if cardinality(p_tasks) > 0 or p_notes is not null or p_done_leases is not null then
    begin
      v_refused := tuskline_core.record_results(
        p_executor, p_tasks, p_fences, p_notes, p_done_leases);
    exception when lock_not_available then
      p_notes := tuskline_core.storable(p_notes);
      select array_agg(r.id), array_agg(r.fence) into v_ids, v_fences
        from (select u.id, u.fence from unnest(p_tasks, p_fences) as u (id, fence)
              union all
              select n.task, n.fence
                from json_to_recordset(p_notes) as n (task bigint, fence bigint)) r;
      v_held := tuskline_core.lock_free_results(
        v_ids, tuskline_core.own_fences(tuskline_core.own_executor(p_executor), v_fences));
      p_done_leases := array(
        select d.lease_id from unnest(p_done_leases) as d (lease_id) where d.lease_id <> all (array(
          select r.fence from unnest(v_ids, v_fences) as r (id, fence) where r.id = any (v_held))));
      select array_agg(r.id), array_agg(r.fence) into v_ids, v_fences
        from unnest(p_tasks, p_fences) as r (id, fence) where r.id <> all (v_held);
      p_notes := (select json_agg(n) from json_array_elements(p_notes) as n
                   where (n->>'task')::bigint <> all (v_held));
      v_refused := tuskline_core.record_results(
        p_executor, v_ids, v_fences, p_notes, p_done_leases);
    end;
  end if;
  v := tuskline_core.claim_batch(
    p_executor, p_queues, p_marks, p_groups, p_budgets, p_bounds, p_max_bytes);
  v.refused := v_refused;
  v.deferred := v_held;
  return v;
end $$;
comment on function tuskline.exchange(
  bigint, bigint[], bigint[], json, bigint[],
  integer[], bigint[], smallint[], integer[], integer[], bigint) is
  'Records results and claims the next batch in one commit: set_results and claim.';
