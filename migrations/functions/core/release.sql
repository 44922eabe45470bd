-- Returns claimed tasks that the worker will not finish: at a drain, a gate, or an oversized claim.
--
-- claimed or processing -> enqueued, at once. It costs a task neither an attempt nor a crash.
-- Returns released, the tasks that it moved, and deferred, the tasks that it could not lock.
--
-- Locks: the task rows. A row that another transaction holds for more than 200 ms is deferred, and
-- its lease stays: a drain cannot wait.
create or replace function tuskline.release(
  p_executor bigint, p_tasks bigint[], p_fences bigint[], p_done_leases bigint[] default null,
  out released bigint[], out deferred bigint[])
language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off set lock_timeout = '200ms'
set enable_hashjoin = off set enable_mergejoin = off
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_now    timestamptz := tuskline.clock();
  v_ids    bigint[];
  v_fences bigint[];
  v_count  integer;
  v_done   tuskline_core.ended;
begin
  deferred := '{}';
  p_executor := tuskline_core.own_executor(p_executor);
  p_fences := tuskline_core.own_fences(p_executor, p_fences);
  loop
    select array_agg(r.id order by r.id), array_agg(r.fence order by r.id), count(*)
      into v_ids, v_fences, v_count
      from unnest(p_tasks, p_fences) as r (id, fence)
     where r.id is not null and r.id <> all (deferred);
    begin
      v_done := tuskline_core.end_attempts(v_ids, v_fences,
        array_fill('enqueued'::tuskline.status, array[v_count]),
        array_fill(tuskline_core.stalled_after(), array[v_count]),
        array_fill(0::smallint, array[v_count]), v_now);
      exit;
    exception when lock_not_available then
      deferred := tuskline_core.lock_free_results(p_tasks, p_fences);
    end;
  end loop;
  released := coalesce(v_done.task_id, '{}');
  if cardinality(released) + cardinality(deferred) < cardinality(p_tasks) then
    perform tuskline_core.wait_for_standby();
  end if;
  perform tuskline_core.run_effects(v_done.flagged, '{}', v_now); -- for requested cancels
  perform tuskline_core.queue_returned(released, v_now);
  perform tuskline_core.drop_leases(p_executor, array(
    select d.lease_id from unnest(p_done_leases) as d (lease_id)
     where d.lease_id <> all (array(
       select r.fence from unnest(p_tasks, p_fences) as r (id, fence)
        where r.id = any (deferred)))));
end $$;
comment on function tuskline.release(bigint, bigint[], bigint[], bigint[]) is
  'claimed or processing -> enqueued, at no cost of an attempt. Returns the tasks that it moved, '
  'and the tasks that other transactions have locked.';

-- Releases all tasks of a lease: the worker never got the answer to that claim.
create or replace function tuskline.release_lease(p_executor bigint, p_lease bigint)
returns bigint[] language sql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
  select r.released
    from tuskline.lease l,
         tuskline.release(p_executor, l.task_ids,
                          array_fill(p_lease, array[cardinality(l.task_ids)]), array[p_lease]) r
   where l.executor_id = p_executor and l.lease_id = p_lease
$$;
comment on function tuskline.release_lease(bigint, bigint) is
  'Releases every task of one lease of the caller. Returns the tasks that it moved.';
