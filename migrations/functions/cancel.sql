-- cancel: a task that waits ends here and now; one that a worker holds is asked to stop, and ends as
-- the worker reports (its result may win the race). Returns cancelled, requested, too_late or unknown.
create or replace function tuskline.cancel(p_task bigint, p_reason text default null)
returns text language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now timestamptz := tuskline.clock();
  v_did text;
  t     record;
begin
  loop
    select id, status, fence, next_trigger_at into t from tuskline.task where id = p_task for update;
    exit when found;
    v_did := tuskline.cancel_kept(p_task, p_reason, v_now);
    if v_did <> 'unknown' then return v_did; end if;
    continue when exists (select from tuskline.task where id = p_task); -- it came back between the looks
    return v_did;
  end loop;
  if t.status in ('new', 'enqueued', 'retriable_failure') then
    update tuskline.task set status = 'cancelled', finished_at = v_now, next_trigger_at = null where id = p_task;
    delete from tuskline.timer where due = t.next_trigger_at and task_id = p_task;
    delete from tuskline.parked where task_id = p_task;
    if exists (select from tuskline.guarded) then perform tuskline.quit_lines(array[p_task], v_now); end if;
    perform tuskline.hand_on_later(p_task, v_now);
  elsif t.status in ('claimed', 'processing') then
    insert into tuskline.cancellation (task_id, fence, requested_at, reason) values (p_task, t.fence, v_now, p_reason)
    on conflict (task_id) do update set fence = excluded.fence, requested_at = excluded.requested_at, reason = excluded.reason;
    perform tuskline.notify('tuskline_executor_' || l.executor_id) from tuskline.lease l where l.lease_id = t.fence;
  else
    return 'too_late';
  end if;
  insert into tuskline.audit (at, verb, subject, detail) values (v_now, 'cancel', 'task ' || p_task, p_reason);
  return case when t.status in ('claimed', 'processing') then 'requested' else 'cancelled' end;
end $$;
comment on function tuskline.cancel(bigint, text) is
  'Cancels a task: cancelled (it was waiting), requested (a worker holds it and is told), too_late or unknown.';

-- cancel_kept: the same for a task that waits in task_kept while its segment goes.
create or replace function tuskline.cancel_kept(p_task bigint, p_reason text, p_now timestamptz) returns text
language plpgsql as $$
declare
  k record;
begin
  select status, next_trigger_at into k from tuskline.task_kept where id = p_task for update;
  if not found then return 'unknown'; end if;
  if k.status not in ('new', 'retriable_failure') then return 'too_late'; end if;
  update tuskline.task_kept set status = 'cancelled', finished_at = p_now, next_trigger_at = null where id = p_task;
  delete from tuskline.timer where due = k.next_trigger_at and task_id = p_task;
  delete from tuskline.parked where task_id = p_task;
  if exists (select from tuskline.guarded) then perform tuskline.give_up(array[p_task], null, p_now); end if;
  insert into tuskline.timer (due, task_id) select p_now, d.task_id from tuskline.dependency d where d.parent_id = p_task on conflict do nothing;
  if found then perform tuskline.wake_timer(p_now, p_now); end if;
  perform tuskline.notify('tuskline_ended_' || p_task);
  insert into tuskline.audit (at, verb, subject, detail) values (p_now, 'cancel', 'task ' || p_task, p_reason);
  return 'cancelled';
end $$;
comment on function tuskline.cancel_kept(bigint, text, timestamptz) is 'cancel for a task that has outlived its segment.';
