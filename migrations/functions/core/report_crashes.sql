-- Reports attempts whose processes have ended, while their worker has not.
--
-- claimed or processing -> enqueued at once; dead at max_crashes; cancelled if that was requested.
-- Each is charged one crash and no attempt, as by rescue. The worker has seen that each had begun.
-- p_tasks, p_fences, p_classes and p_messages are parallel. A class is the cause: 'signal 11',
-- 'exit 1', 'oom', 'memory'.
-- Returns returned, the tasks that it moved, and deferred, the tasks that others have locked.
--
-- Locks: the task rows, in id order. A locked row is skipped: its lease stays, and the worker
-- reports it again.
create or replace function tuskline.report_crashes(
  p_executor bigint, p_tasks bigint[], p_fences bigint[], p_classes text[], p_messages text[],
  p_done_leases bigint[] default null, out returned bigint[], out deferred bigint[])
language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off
set enable_hashjoin = off set enable_mergejoin = off
set enable_seqscan = off set enable_bitmapscan = off as $$
begin
  p_executor := tuskline_core.own_executor(p_executor);
  select array_agg(c.task), array_agg(c.fence), array_agg(c.class), array_agg(c.message)
    into p_tasks, p_fences, p_classes, p_messages
    from (select u.task, u.fence, u.class, u.message
            from unnest(p_tasks, p_fences, p_classes, p_messages)
                   as u (task, fence, class, message)
           where u.task is not null order by u.task, u.fence) c;
  p_fences := tuskline_core.own_fences(p_executor, p_fences);
  deferred := tuskline_core.lock_free_results(p_tasks, p_fences);
  returned := array(
    select t.id from tuskline.task t
     where t.id = any (p_tasks) and t.id between p_tasks[1] and p_tasks[cardinality(p_tasks)]
       and t.fence = p_fences[width_bucket(t.id, p_tasks)] and t.status in ('claimed', 'processing')
       and t.id <> all (deferred)
     order by t.id);
  if returned <> '{}' then
    perform from tuskline_core.return_crashed(
      returned, array_fill(p_executor, array[cardinality(returned)]), array(
        select distinct t.fence from tuskline.task t
         where t.id = any (returned) and t.id between returned[1] and returned[cardinality(returned)]),
      tuskline.clock(), p_tasks, p_classes, p_messages);
  end if;
  if cardinality(returned) + cardinality(deferred) < cardinality(p_tasks) then
    perform tuskline_core.wait_for_standby();
  end if;
  perform tuskline_core.drop_leases(p_executor, array(
    select d.lease_id from unnest(p_done_leases) as d (lease_id)
     where d.lease_id <> all (array(
       select r.fence from unnest(p_tasks, p_fences) as r (id, fence) where r.id = any (deferred)))));
end $$;
comment on function tuskline.report_crashes(
  bigint, bigint[], bigint[], text[], text[], bigint[]) is
  'claimed or processing -> enqueued, dead or cancelled, with one crash more: the processes of '
  'these attempts have ended. Returns the tasks that it moved, and those that others have locked.';
