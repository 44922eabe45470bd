-- await_end: from now on the task's end is notified on channel tuskline_ended_<id>. Listen first, then ask for
-- this, then look at the task: what ends after that look is notified, but for an end that was just being
-- committed. So look again now and then, too.
create or replace function tuskline.await_end(p_task bigint) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  insert into tuskline_core.followed_lambda (lambda)
  select t.lambda from tuskline.tasks t where t.id = p_task
     and not exists (select from tuskline_core.followed_lambda f where f.lambda = t.lambda)
  on conflict do nothing;
  insert into tuskline_core.awaited (task_id, since)
  select p_task, tuskline.clock() where not exists (select from tuskline.tasks t where t.id = p_task and t.finished_at is not null)
     -- Whoever is just deleting it will tell us, too, or leave it: no need to wait for him.
     and not exists (select from tuskline_core.awaited a where a.task_id = p_task)
  on conflict do nothing;
end $$;
comment on function tuskline.await_end(bigint) is 'Asks for a notification (tuskline_ended_<id>) when a task ends.';

create or replace function tuskline_core.tell_waiting(p_ids bigint[]) returns void
language plpgsql as $$
begin
  with a as (
    delete from tuskline_core.awaited a
     where a.task_id = any (p_ids)
       and (select t.finished_at from tuskline.tasks t where t.id = a.task_id) is not null
    returning a.task_id)
  select array_agg(a.task_id) into p_ids from a;
  perform tuskline_core.notify('tuskline_ended_' || id) from unnest(p_ids) as id;
end $$;
comment on function tuskline_core.tell_waiting(bigint[]) is 'Notifies those who wait for the end of these tasks.';
