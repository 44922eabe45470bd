-- Marks attempts as started: claimed -> processing.
--
-- A worker sends it for tasks that still run at the first heartbeat. It also sends it before the
-- body of a suspect: a task that a worker held when it died. Then the next death is charged to the
-- right task.
-- p_pids: the process that runs each attempt, below a host controller; null: the worker itself.
-- Returns the tasks that it moved.
--
-- Locks: skips rows that other transactions hold, also the task's own body in its transaction.
create or replace function tuskline.start(
  p_executor bigint, p_tasks bigint[], p_fences bigint[], p_pids integer[] default null)
returns bigint[] language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan
set enable_hashjoin = off set enable_mergejoin = off
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_expires timestamptz;
  v_sorted  bigint[];
  v_fences  bigint[];
  v_ids     bigint[];
begin
  select e.expires_at into v_expires from tuskline.executor e
   where e.executor_id = tuskline_core.own_executor(p_executor) and e.ended_at is null;
  if not found then return '{}'; end if;
  p_fences := tuskline_core.own_fences(p_executor, p_fences);
  select array_agg(r.id), array_agg(r.fence) into v_sorted, v_fences
    from (select u.id, u.fence from unnest(p_tasks, p_fences) as u (id, fence)
           order by u.id, u.fence) r;
  with u as (
    update tuskline.task t set status = 'processing', next_trigger_at = v_expires
     where t.id = any (array(
             select f.id from tuskline.task f
              where f.id = any (v_sorted)
                and f.id between v_sorted[1] and v_sorted[cardinality(v_sorted)]
              order by f.id for no key update skip locked))
       and t.fence = v_fences[width_bucket(t.id, v_sorted)] and t.status = 'claimed'
       and t.id between v_sorted[1] and v_sorted[cardinality(v_sorted)]
    returning t.id)
  select coalesce(array_agg(id), '{}') into v_ids from u;
  if p_pids is not null then
    insert into tuskline.progress as p (task_id, fence, pid, said_at)
    select u.id, abs(u.fence), u.pid, tuskline.clock()
      from unnest(p_tasks, p_fences, p_pids) as u (id, fence, pid)
     where u.id = any (v_ids) and u.pid is not null order by u.id
    on conflict (task_id) do update
       set fence = excluded.fence, pid = excluded.pid
     where p.fence <= excluded.fence;
  end if;
  if cardinality(v_ids) < cardinality(p_tasks) then
    perform tuskline_core.wait_for_standby();
  end if;
  return v_ids;
end $$;
comment on function tuskline.start(bigint, bigint[], bigint[], integer[]) is
  'claimed -> processing. Returns the tasks that it moved.';
