-- cancel: a task that waits ends here and now; one that a worker holds is asked to stop, and ends as
-- the worker reports (its result may win the race). Returns cancelled, requested, too_late or unknown.
create or replace function tuskline.cancel(p_task bigint, p_reason text default null)
returns text language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now timestamptz := tuskline.clock();
  v_ids bigint[];
  t     record;
begin
  loop
    select id, status, fence into t from tuskline.task where id = p_task for update;
    exit when found;
    select id, status, fence into t from tuskline.task_kept where id = p_task for update;
    exit when found;
    if not exists (select from tuskline.task where id = p_task) then return 'unknown'; end if;
    -- It came back to its segment between the looks.
  end loop;
  if t.status in ('new', 'enqueued', 'retriable_failure') then
    v_ids := tuskline.end_waiting(array[p_task], '{cancelled}', null, null, v_now);
    if current_setting('transaction_isolation') <> 'read committed' then v_ids := array[p_task]; end if;
    perform tuskline.leave_effects(v_ids, v_now);
  elsif t.status in ('claimed', 'processing') then
    update tuskline.task set flags = flags | 2::smallint where id = p_task;
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
