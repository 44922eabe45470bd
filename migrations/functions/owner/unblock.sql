-- Unblocks an ordering key whose task failed for good under on_failure => block.
--
-- The failed task releases its permit, and the next task of the key can run. The failed task stays
-- failed. Returns false if the key is not blocked.
create or replace function tuskline.unblock(p_lambda text, p_ordering_key text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now      timestamptz := tuskline.clock();
  v_limit_id bigint := (
    select limit_id from tuskline.task_limit
     where lambda = p_lambda and kind = 'order' and dropped_at is null);
  v_task     bigint;
begin
  perform tuskline_core.need(p_lambda, 'operate');
  select s.task_id into v_task
    from tuskline.permit s
   where s.limit_id = v_limit_id and s.key = p_ordering_key
     and not exists (select from tuskline_core.all_tasks t
                      where t.id = s.task_id and t.finished_at is null)
     for update;
  if not found then return false; end if;
  perform tuskline_core.withdraw(array[v_task], array[v_limit_id], v_now);
  insert into tuskline.audit (at, verb, subject, detail)
  values (v_now, 'unblock', p_lambda || ' ' || p_ordering_key, 'task ' || v_task);
  return true;
end $$;
comment on function tuskline.unblock(text, text) is
  'Unblocks an ordering key whose task failed for good. False: the key is not blocked. Audited.';
