-- Locks the tasks that are free, in id order and without waiting.
--
-- Returns the tasks that another transaction has locked and whose attempt is still the caller's.
-- These can be neither recorded nor given back now. A task that the caller no longer holds needs no
-- wait, so it is not returned. A task with a negative fence is not locked (own_fences).
create or replace function tuskline_core.lock_free_results(p_tasks bigint[], p_fences bigint[])
returns bigint[] language plpgsql
set enable_hashjoin = off set enable_mergejoin = off
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_free  bigint[];
  v_first bigint := (select min(id) from unnest(p_tasks) as id);
  v_last  bigint := (select max(id) from unnest(p_tasks) as id);
begin
  v_free := array(
    select t.id from tuskline.task t
     where t.id = any (array(select r.id from unnest(p_tasks, p_fences) as r (id, fence)
                              where r.fence > 0))
       and t.id between v_first and v_last
     order by t.id for no key update skip locked);
  return array(
    select t.id from unnest(p_tasks, p_fences) as r (id, fence) join tuskline.task t on t.id = r.id
     where t.fence = r.fence and t.status in ('claimed', 'processing') and t.id <> all (v_free)
       and t.id = any (p_tasks) and t.id between v_first and v_last order by t.id);
end $$;
comment on function tuskline_core.lock_free_results(bigint[], bigint[]) is
  'Locks the tasks that are free. Returns the caller''s tasks that another transaction has locked.';
