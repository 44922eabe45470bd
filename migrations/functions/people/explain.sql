-- Lists every reason why a task does not run now, the one to look at first on top.
--
-- Each row names its cause (a row or table) and the command that changes it. To count the tasks
-- ahead, the function reads the first 10,000 rows of a queue. Call it by hand, not in a loop.
create or replace function tuskline_core.explain_task(p_task bigint)
returns table (reason text, detail text, cause text, remedy text)
language plpgsql as $$
declare
  v_now timestamptz := tuskline.clock();
  t     record;
begin
  select s.*, q.queue_id into t
    from tuskline_core.all_tasks s
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
comment on function tuskline_core.explain_task(bigint) is
  'Every reason why a task does not run now, with contents, for explain.';

-- Without the right inspect, reasons that quote keys or errors come without their texts.
create or replace function tuskline.explain(p_task bigint)
returns table (reason text, detail text, cause text, remedy text)
language sql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  select e.reason, case when h.shown then e.detail end, e.cause, case when h.shown then e.remedy end
    from tuskline_core.explain_task(p_task) e
         cross join (
           select not tuskline_core.rights_in_use() or tuskline.may(
             (select t.lambda from tuskline_core.all_tasks t where t.id = p_task), 'inspect')
             as shown offset 0) m
         cross join lateral (
           select m.shown or e.reason not in (
             'ended', 'backing_off', 'gated', 'ordered', 'rate', 'limit') as shown) h
$$;
comment on function tuskline.explain(bigint) is
  'Every reason why a task does not run now, its cause and the command that changes it.';
