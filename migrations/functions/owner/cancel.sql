-- Cancels one task.
--
-- A task that waits ends at once. If a worker holds the task, it is notified to stop. The task then
-- ends with the report of the worker, which may still be a success.
-- Returns cancelled, requested (a worker holds it), too_late (it has ended) or unknown.
create or replace function tuskline.cancel(p_task bigint, p_reason text default null)
returns text language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_status tuskline.status;
begin
  loop
    select status into v_status from tuskline.task where id = p_task for update;
    exit when found;
    select status into v_status from tuskline.task_kept where id = p_task for update;
    exit when found;
    if not exists (select from tuskline.task where id = p_task) then return 'unknown'; end if;
    -- The task returned from task_kept to its segment between the two reads.
  end loop;
  perform tuskline_core.need_on_task(p_task, 'schedule', 'operate');
  if v_status not in ('new', 'enqueued', 'retriable_failure', 'claimed', 'processing') then
    return 'too_late';
  end if;
  perform tuskline_core.cancel_tasks(array[p_task], p_reason, tuskline.clock());
  return case when v_status in ('claimed', 'processing') then 'requested' else 'cancelled' end;
end $$;
comment on function tuskline.cancel(bigint, text) is
  'Cancels a task. Returns cancelled (it was waiting), requested (its worker is notified to stop), '
  'too_late or unknown. Audited.';

-- Cancels tasks that the caller has locked and that have not ended. One audit row per task.
--
-- Tasks that wait end as cancelled. A task that a worker holds gets a row of cancellation and the
-- flag 2, and its worker is notified.
create or replace function tuskline_core.cancel_tasks(
  p_ids bigint[], p_reason text, p_now timestamptz)
returns void language plpgsql as $$
declare
  v_first   bigint := (select min(id) from unnest(p_ids) as id);
  v_last    bigint := (select max(id) from unnest(p_ids) as id);
  v_waiting bigint[] := array(
    select t.id from tuskline_core.all_tasks t
     where t.id = any (p_ids) and t.id between v_first and v_last
       and t.status in ('new', 'enqueued', 'retriable_failure') order by t.id);
  v_ids     bigint[];
  v_fences  bigint[];
begin
  v_ids := tuskline_core.end_waiting(
    v_waiting, array_fill('cancelled'::tuskline.status, array[cardinality(v_waiting)]),
    null, null, p_now);
  -- Under a fixed snapshot end_waiting may miss an effect, so every task is checked for effects.
  if current_setting('transaction_isolation') <> 'read committed' then v_ids := v_waiting; end if;
  perform tuskline_core.leave_effects(v_ids, p_now);
  if cardinality(v_waiting) < cardinality(p_ids) then
    with u as (
      update tuskline.task t set flags = t.flags | 2::smallint
       where t.id = any (p_ids) and t.id between v_first and v_last
         and t.status in ('claimed', 'processing')
      returning t.id, t.fence
    ), c as (
      insert into tuskline.cancellation (task_id, fence, requested_at, reason)
      select u.id, u.fence, p_now, p_reason from u
      on conflict (task_id) do update
         set fence = excluded.fence, requested_at = excluded.requested_at,
             reason = excluded.reason)
    select array_agg(u.fence) into v_fences from u;
    perform tuskline_core.notify('tuskline_executor_' || e.executor_id)
       from (select distinct l.executor_id from tuskline.lease l
              where l.lease_id = any (v_fences)) e;
  end if;
  insert into tuskline.audit (at, verb, subject, detail)
  select p_now, 'cancel', 'task ' || id, p_reason from unnest(p_ids) as id;
end $$;
comment on function tuskline_core.cancel_tasks(bigint[], text, timestamptz) is
  'Ends the tasks that wait, and notifies the workers that hold the remaining ones to stop.';
