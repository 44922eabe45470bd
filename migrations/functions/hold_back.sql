-- hold_back: steps around task rows that somebody else's open transaction has locked. Locks those that
-- are free, in id order and without waiting, and returns the others of which the attempt is still the
-- caller's: they can be neither recorded nor given back now. What is no longer the caller's is not
-- waited for in any case, so it is not among them.
create or replace function tuskline.hold_back(p_tasks bigint[], p_fences bigint[]) returns bigint[]
language plpgsql
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_free  bigint[];
  v_first bigint := (select min(id) from unnest(p_tasks) as id);
  v_last  bigint := (select max(id) from unnest(p_tasks) as id);
begin
  v_free := array(select t.id from tuskline.task t where t.id = any (p_tasks) and t.id between v_first and v_last
    order by t.id for no key update skip locked);
  return array(select t.id from unnest(p_tasks, p_fences) as r (id, fence) join tuskline.task t on t.id = r.id
    where t.fence = r.fence and t.status in ('claimed', 'processing') and t.id <> all (v_free)
      and t.id = any (p_tasks) and t.id between v_first and v_last order by t.id);
end $$;
comment on function tuskline.hold_back(bigint[], bigint[]) is
  'Locks the tasks that are free and returns those of the caller''s attempts that others have locked.';

-- set_or_hold: set_results for exchange, which must not wait for one row longer than 200 ms: an idle
-- session in somebody's hands would keep hundreds of finished tasks from being recorded, until they
-- run again. The results of locked rows are held back, with their leases, for the caller to send again.
create or replace function tuskline.set_or_hold(
  p_executor bigint, p_tasks bigint[], p_fences bigint[], p_notes json, p_done_leases bigint[])
returns tuskline.exchanged language plpgsql as $$
declare
  v        tuskline.exchanged;
  v_notes  json;
  v_ids    bigint[];
  v_fences bigint[];
  v_leases bigint[];
begin
  v.held := '{}';
  begin
    v.refused := tuskline.record_results(p_executor, p_tasks, p_fences, p_notes, p_done_leases);
    return v;
  exception when lock_not_available then
    v_notes := tuskline.storable(p_notes);
  end;
  select array_agg(r.id), array_agg(r.fence) into v_ids, v_fences
    from (select u.id, u.fence from unnest(p_tasks, p_fences) as u (id, fence) union all
          select n.task, n.fence from json_to_recordset(v_notes) as n (task bigint, fence bigint)) r;
  v.held := tuskline.hold_back(v_ids, v_fences);
  v_leases := array(select d.lease_id from unnest(p_done_leases) as d (lease_id) where d.lease_id <> all (array(
    select r.fence from unnest(v_ids, v_fences) as r (id, fence) where r.id = any (v.held))));
  select coalesce(array_agg(r.id), '{}'), coalesce(array_agg(r.fence), '{}') into v_ids, v_fences
    from unnest(p_tasks, p_fences) as r (id, fence) where r.id <> all (v.held);
  v_notes := (select json_agg(n) from json_array_elements(v_notes) as n where (n->>'task')::bigint <> all (v.held));
  v.refused := tuskline.record_results(p_executor, v_ids, v_fences, v_notes, v_leases);
  return v;
end $$;
comment on function tuskline.set_or_hold(bigint, bigint[], bigint[], json, bigint[]) is
  'set_results, but results of rows that stay locked by others for 200 ms are held back, and named.';
