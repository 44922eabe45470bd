-- Lists every reason why a task does not run now, the one to look at first on top.
--
-- Each row names its cause (a row or table) and the command that changes it. To count the tasks
-- ahead, the function reads a queue from its head up to the task. Call it by hand, not in a loop.
drop function if exists tuskline.explain(bigint);
create function tuskline.explain(p_task bigint)
returns table (reason text, detail text, cause text, remedy text)
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now timestamptz := tuskline.clock();
  t     record;
begin
  select s.*, q.queue_id into t
    from tuskline.tasks s
         left join tuskline.queue q on q.lambda = s.lambda and q.priority = s.priority
   where s.id = p_task;
  if t.id is not null and t.finished_at is null then
    return query select * from tuskline_core.explain_lock(p_task);
  end if;
  if t.id is null then
    return query
      select 'unknown', format('no task has the id %s, or its retention is over', p_task),
             null, null;
  elsif t.finished_at is not null then
    return query
      select 'ended',
             format('%s since %s%s', t.status, t.finished_at, ': ' || (
               select f.error_class || ', ' || left(f.message, 200)
                 from tuskline.task_failure f
                where f.task_id = p_task and t.status in ('fatal_failure', 'dead')
                order by f.failed_at desc limit 1)),
             format('tuskline.task %s', p_task), null;
  elsif t.status in ('new', 'retriable_failure') then
    return query
      select * from tuskline_core.explain_waiting(p_task, t.status, t.attempt, v_now);
  elsif t.status = 'enqueued' then
    return query
      select * from tuskline_core.explain_enqueued(
        p_task, t.lambda, t.collection, t.priority, t.queue_id, v_now);
  else
    return query
      select * from tuskline_core.explain_held(p_task, t.status, t.fence, t.started_at, v_now);
  end if;
end $$;
comment on function tuskline.explain(bigint) is
  'Every reason why a task does not run now, its cause and the command that changes it.';
