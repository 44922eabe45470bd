-- Requests a notification when the task ends, on channel tuskline_ended_<id>.
--
-- The caller first listens, then calls this, then reads the task. An end after that read is
-- notified.
-- Race: an end that is just being committed may send no notification. So the caller also reads the
-- task again from time to time.
create or replace function tuskline.await_end(p_task bigint) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  perform tuskline_core.need_on_task(p_task, 'inspect', 'schedule', 'operate');
  insert into tuskline_core.followed_lambda (lambda)
  select t.lambda from tuskline_core.all_tasks t
   where t.id = p_task
     and not exists (select from tuskline_core.followed_lambda f where f.lambda = t.lambda)
  on conflict do nothing;
  insert into tuskline_core.awaited (task_id, since)
  select p_task, tuskline.clock()
   where not exists (
           select from tuskline_core.all_tasks t where t.id = p_task and t.finished_at is not null)
     -- A transaction that is deleting the row notifies this session, too, or rolls back and leaves
     -- the row. So the insert need not wait for it.
     and not exists (select from tuskline_core.awaited a where a.task_id = p_task)
  on conflict do nothing;
end $$;
comment on function tuskline.await_end(bigint) is
  'Requests a notification (tuskline_ended_<id>) when a task ends.';

create or replace function tuskline_core.tell_waiting(p_ids bigint[]) returns void
language plpgsql as $$
begin
  with a as (
    delete from tuskline_core.awaited a
     where a.task_id = any (p_ids)
       and (select t.finished_at from tuskline_core.all_tasks t where t.id = a.task_id) is not null
    returning a.task_id)
  select array_agg(a.task_id) into p_ids from a;
  perform tuskline_core.notify('tuskline_ended_' || id) from unnest(p_ids) as id;
end $$;
comment on function tuskline_core.tell_waiting(bigint[]) is
  'Notifies the sessions that wait for the end of these tasks.';
