-- Cancels every task that has not ended of the chain of p_task, one by one in id order.
--
-- As with cancel, a task that a worker holds is requested to stop; a task that waits ends here.
create or replace function tuskline.cancel_chain(
  p_task        bigint,
  p_reason      text default null,
  out chain_id  bigint,
  out cancelled integer,
  out requested integer)
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_id     bigint;
  v_answer text;
begin
  chain_id := tuskline.chain_of(p_task);
  cancelled := 0;
  requested := 0;
  -- Each task is looked up by its id: a join may read every segment. An ended task is not locked.
  for v_id in
    select c.task_id from tuskline.chain_task c
     where c.chain_id = cancel_chain.chain_id order by c.task_id
  loop
    continue when not exists (select from tuskline_core.all_tasks t
                               where t.id = v_id and t.finished_at is null);
    v_answer := tuskline.cancel(v_id, p_reason);
    cancelled := cancelled + (v_answer = 'cancelled')::integer;
    requested := requested + (v_answer = 'requested')::integer;
  end loop;
end $$;
comment on function tuskline.cancel_chain(bigint, text) is
  'Cancels all tasks that have not ended of the chain of a task. '
  'Returns how many ended now, and how many were requested to stop. Audited.';

create or replace function tuskline.chain_of(p_task bigint) returns bigint
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_chain bigint := (select c.chain_id from tuskline.chain_task c where c.task_id = p_task);
begin
  if v_chain is null then
    perform tuskline_core.refuse('TK022',
      format('not_in_chain: task %s neither waits for another nor does another wait for it',
             p_task));
  end if;
  return v_chain;
end $$;
comment on function tuskline.chain_of(bigint) is
  'Returns the number of the chain of a task. Refuses (TK022) a task without a chain.';
