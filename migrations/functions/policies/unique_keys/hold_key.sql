-- Gives a unique key to a task that is to be accepted, or finds the task that holds the key.
--
-- A door of the core (accept_keys), which acts on the verdict. This function writes no task.
--
--   verdict       holder           what the core does
--   go            the new task     accepts it
--   keep          another task     leaves the holder as it is
--   replace       another task     gives the waiting holder the new payload
--   postpone      another task     gives the waiting holder the new due time
--   duplicate     another task     refuses the new task
--   (a mistake)   the new task     refuses it, see refuse_task
--
-- Returns the status of the holder as well, and in rejects whether the lambda refuses a second task
-- of the key.
--
-- No function releases a key. The status of its holder is read here instead. So a claim or a result
-- pays nothing for keys, and no later change of a task can collide with another.
--
-- Locks: the row of the key. A call waits there for an open transaction that has used the same key.
-- A waiting holder is locked (FOR SHARE) until the caller's transaction ends; claims skip it. So no
-- worker begins it before it can see what that transaction commits.
create or replace function tuskline_core.hold_key(
  p_lambda text, p_key text, p_task bigint, p_now timestamptz,
  out verdict text, out holder bigint, out status tuskline.status, out rejects boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  r       tuskline.unique_policy;
  k       tuskline.unique_key;
  v_waits boolean;
begin
  select * into r from tuskline.unique_policy u where u.lambda = p_lambda;
  verdict := case
    when not exists (select from tuskline.lambda l where l.name = p_lambda) then 'unknown_lambda'
    when not tuskline_core.is_key(p_key) then 'invalid_key'
    when r.lambda is null then 'no_unique_keys'
    else 'go'
  end;
  holder := p_task;
  rejects := r.outcome = 'reject';
  if verdict <> 'go' then return; end if;
  loop
    insert into tuskline.unique_key (lambda, key, task_id, scope, until)
    values (p_lambda, p_key, p_task, r.scope, p_now + r.period)
    on conflict (lambda, key) do nothing;
    if found then return; end if;
    select * into k from tuskline.unique_key u
     where u.lambda = p_lambda and u.key = p_key for update;
    continue when not found;
    if k.task_id = p_task then return; end if;
    select t.status into status from tuskline.task t
     where t.id = k.task_id and t.status in ('new', 'enqueued', 'retriable_failure') for share;
    if not found then
      select t.status into status from tuskline.task_kept t where t.id = k.task_id for share;
    end if;
    if not found then
      select t.status into status from tuskline.task t where t.id = k.task_id;
      -- It began to wait between the statements: lock it.
      continue when status in ('new', 'enqueued', 'retriable_failure');
    end if;
    v_waits := coalesce(status in ('new', 'enqueued', 'retriable_failure'), false);
    exit when case k.scope
      when 'queued' then v_waits
      when 'running' then v_waits or coalesce(status in ('claimed', 'processing'), false)
      when 'period' then k.until > p_now
      else true end;
    update tuskline.unique_key u set task_id = p_task, scope = r.scope, until = p_now + r.period
     where u.lambda = p_lambda and u.key = p_key;
    return;
  end loop;
  holder := k.task_id;
  verdict := case when rejects then 'duplicate'
                  when v_waits then r.outcome else 'keep' end;
end $$;
comment on function tuskline_core.hold_key(text, text, bigint, timestamptz) is
  'Door: gives a unique key to a task, or returns the task that holds it and the verdict on both.';
