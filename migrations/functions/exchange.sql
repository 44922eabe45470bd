-- exchange: the results of the last batch and the claim of the next, in one statement and one commit.
-- A synchronous commit costs as much as 50-100 row transitions, so a busy controller lives on this.
-- held: results of rows that somebody else has locked for more than 200 ms; not recorded, their leases
-- kept: send them again with a later exchange.
create or replace function tuskline.exchange(
  p_executor bigint, p_tasks bigint[], p_fences bigint[], p_notes json, p_done_leases bigint[],
  p_queues integer[], p_marks bigint[], p_groups smallint[], p_budgets integer[], p_bounds integer[] default null,
  p_max_bytes bigint default 8388608)
returns tuskline.exchanged language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off set lock_timeout = '200ms' set plan_cache_mode = force_generic_plan
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v tuskline.exchanged;
  s tuskline.exchanged;
begin
  if cardinality(p_tasks) > 0 or p_notes is not null then
    s := tuskline.set_or_hold(p_executor, p_tasks, p_fences, p_notes, p_done_leases);
  elsif p_done_leases is not null then
    perform tuskline.drop_leases(p_executor, p_done_leases);
  end if;
  v := tuskline.claim_batch(p_executor, p_queues, p_marks, p_groups, p_budgets, p_bounds, p_max_bytes);
  v.refused := coalesce(s.refused, '{}');
  v.held := s.held;
  return v;
end $$;
comment on function tuskline.exchange(bigint, bigint[], bigint[], json, bigint[], integer[], bigint[], smallint[], integer[], integer[], bigint) is
  'set_results and claim in one commit.';
