-- set_results: claimed or processing -> what the lambda said. The guard carries the attempt: a result
-- under another fence, or for a task that is finished, changes nothing and comes back as refused, a
-- value. Sending the same result twice is harmless. p_tasks and p_fences: plain successes. p_notes:
-- everything that has something to say: a JSON array of {task, fence, status, error_class, message,
-- after_ms, output} with status success, retriable_failure, fatal_failure or cancelled.
-- p_done_leases: leases of which every task is settled by this. It waits for rows that others have
-- locked, as long as the caller's lock_timeout allows; exchange steps around them.
create or replace function tuskline.set_results(
  p_executor bigint, p_tasks bigint[], p_fences bigint[], p_notes json default null, p_done_leases bigint[] default null)
returns bigint[] language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_now     timestamptz := tuskline.clock();
  v_ids     bigint[];
  v_fences  bigint[];
  v_applied bigint;
  v_refused bigint[];
begin
  if p_notes is not null then
    v_refused := tuskline.settle(p_executor, p_tasks, p_fences, p_notes, v_now);
  elsif cardinality(p_tasks) > 0 then
    select array_agg(r.id), array_agg(r.fence) into v_ids, v_fences
      from (select u.id, u.fence from unnest(p_tasks, p_fences) as u (id, fence) order by u.id, u.fence) r;
    update tuskline.task t set status = 'success', finished_at = v_now, next_trigger_at = null, crashes = 0
     where t.id = any (v_ids) and t.fence = v_fences[width_bucket(t.id, v_ids)] and t.status in ('claimed', 'processing')
       and t.id between v_ids[1] and v_ids[cardinality(v_ids)];
    get diagnostics v_applied = row_count;
    if v_applied < cardinality(p_tasks) then
      v_refused := array(select r.id from unnest(p_tasks, p_fences) as r (id, fence)
        where not exists (select from tuskline.task t where t.id = r.id and t.fence = r.fence and t.status = 'success'));
    end if;
    -- A success that won the race against a request to cancel settles the request, too. Whoever
    -- requests holds the task's row lock, so the request is visible here or comes too late.
    if exists (select from tuskline.cancellation) then
      delete from tuskline.cancellation c
       where c.task_id = any (v_ids) and c.fence = v_fences[width_bucket(c.task_id, v_ids)];
    end if;
  end if;
  if p_done_leases is not null then
    perform tuskline.drop_leases(p_executor, p_done_leases);
  end if;
  return coalesce(v_refused, '{}');
end $$;
comment on function tuskline.set_results(bigint, bigint[], bigint[], json, bigint[]) is
  'Records results under their fences; returns the tasks whose result was refused because the attempt is no longer theirs.';

-- drop_leases: each looked up by both columns of the key. A join or = any may become, once the table was
-- analyzed and looked small, a walk over all that this executor ever held; under a snapshot that some
-- session keeps, these are thousands of dead rows for each exchange.
create or replace function tuskline.drop_leases(p_executor bigint, p_leases bigint[]) returns void
language plpgsql as $$
begin
  delete from tuskline.lease where ctid = any (array(
    select (select l.ctid from tuskline.lease l where l.executor_id = p_executor and l.lease_id = d.id)
      from unnest(p_leases) as d (id)));
end $$;
comment on function tuskline.drop_leases(bigint, bigint[]) is 'Forgets leases of which every task has been reported or given back.';
