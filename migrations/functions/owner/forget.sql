-- Deletes what other tables hold about the tasks and the values of an erase.

-- Deletes the data of tasks in other tables, just before the tasks are erased: unique keys,
-- messages of failures, the payload of a redrive, reasons of cancels.
create or replace function tuskline_core.forget_tasks(p_ids bigint[]) returns void
language plpgsql as $$
begin
  if p_ids = '{}' then return; end if;
  delete from tuskline.unique_key u using tuskline_core.all_tasks t
   where t.id = any (p_ids) and u.lambda = t.lambda and u.key = t.unique_key and u.task_id = t.id;
  delete from tuskline.unique_key u using tuskline.task_archive a
   where a.id = any (p_ids) and u.lambda = a.lambda and u.key = a.unique_key and u.task_id = a.id;
  delete from tuskline.cancellation c where c.task_id = any (p_ids);
  delete from tuskline.permit s where s.task_id = any (p_ids) and s.fence is not null;
  update tuskline.operation u set payload = null
   where u.payload is not null and u.ids && p_ids;
  perform tuskline_core.forget_cancels(p_ids), tuskline_core.forget_messages(p_ids);
end $$;
comment on function tuskline_core.forget_tasks(bigint[]) is
  'Deletes the data of tasks in other tables, just before the tasks are erased.';

-- Deletes the reasons of cancels of tasks from the audit. The acts stay.
--
-- No index leads to rows of the audit: it is read once for each batch.
create or replace function tuskline_core.forget_cancels(p_ids bigint[]) returns void
language sql as $$
  update tuskline.audit a set detail = null
   where a.verb = 'cancel' and a.detail is not null
     and a.subject = any (array(select 'task ' || id from unnest(p_ids) as id))
$$;
comment on function tuskline_core.forget_cancels(bigint[]) is
  'Deletes the reasons of cancels of tasks from the audit.';

-- Deletes the messages of failures of tasks from other tables.
--
-- The gate of a circuit breaker keeps its cause without the message. The audit does, too. Its rows
-- are read only if the tasks have failed.
-- Locks: the gates, in id order.
create or replace function tuskline_core.forget_messages(p_ids bigint[]) returns void
language plpgsql as $$
declare
  v_lambdas text[];
begin
  v_lambdas := array( -- of those that have failed
    select t.lambda from tuskline_core.all_tasks t
     where t.id = any (p_ids)
       and exists (select from tuskline.task_failure f where f.task_id = t.id)
     union
    select a.lambda from tuskline.task_archive a
     where a.id = any (p_ids) and a.failures is not null);
  if v_lambdas = '{}' then return; end if;
  update tuskline_core.recent_failure f set message = '(erased)'
   where f.lambda = any (v_lambdas)
     and exists (select from unnest(p_ids) as id where id between f.first_id and f.last_id);
  update tuskline.gate g set reason = tuskline_core.without_message(g.reason)
   where g.gate_id = any (array(
     select l.gate_id from tuskline.gate l
      where l.lambda = any (v_lambdas) and l.reason like 'circuit breaker: %: %'
      order by l.gate_id for update));
  update tuskline.audit a set detail = tuskline_core.without_message(a.detail)
   where a.verb = 'gate' and a.detail like '%circuit breaker: %: %'
     and exists (select from unnest(v_lambdas) as l (name)
                  where a.subject = l.name or starts_with(a.subject, l.name || ' '));
  update tuskline.operation u set note = tuskline_core.without_message(u.note)
   where u.state = 'died_again'
     and substring(u.note from '^task ([0-9]+) died')::bigint = any (p_ids);
  update tuskline.audit a set detail = tuskline_core.without_message(a.detail)
   where a.verb = 'end_operation'
     and substring(a.detail from '^died_again .*task ([0-9]+) died')::bigint = any (p_ids);
end $$;
comment on function tuskline_core.forget_messages(bigint[]) is
  'Deletes the messages of failures of tasks from other tables.';

-- Removes the message of a failure from a reason. The fingerprint or the task id before it stays.
create or replace function tuskline_core.without_message(p_text text) returns text
language sql immutable as $$
  select coalesce(substring(p_text from '^(.*attempts failed with [0-9a-f]+): '),
                  substring(p_text from '^(.*task [0-9]+ died again): '), p_text)
$$;
comment on function tuskline_core.without_message(text) is
  'A reason of a gate, or a note of an operation, without the message of a failure.';

-- Deletes the key and the value of an erase where they are stored without a matching task.
--
-- If the erase has filters besides the key and the lambda, tasks with the key may remain. Then the
-- rows of the key stay.
create or replace function tuskline_core.forget_values(o tuskline.operation) returns void
language plpgsql as $$
begin
  if o.key is not null
     and num_nonnulls(o.collection, o.priority, o.ids, o.field, o.created_from) = 0
     and o.created_to >= o.begun_at then
    perform tuskline_core.forget_key(o.key, o.lambda);
  end if;
  if o.field is null then return; end if;
  perform tuskline_core.forget_replaced(array(
    select t.id from tuskline.redriven r join tuskline_core.all_tasks t on t.id = r.task_id
     where r.old_payload is not null and (o.ids is null or t.id = any (o.ids))
       and tuskline_core.is_meant(
             o, t.lambda, t.status, t.priority, t.collection, t.created_at, t.finished_at,
             array[t.ordering_key, t.limit_key, t.fairness_key, t.unique_key], r.old_payload)
     order by t.id));
end $$;
comment on function tuskline_core.forget_values(tuskline.operation) is
  'Deletes the key and the value of an erase where they are stored without a matching task.';

-- Deletes what is left of the payload that a redrive replaced: the payload itself, and the messages
-- and the progress of the attempts before. Those of later attempts stay.
create or replace function tuskline_core.forget_replaced(p_ids bigint[]) returns void
language plpgsql as $$
begin
  if p_ids = '{}' then return; end if;
  update tuskline.task_failure f set message = '(erased)'
    from tuskline.redriven r
   where r.task_id = any (p_ids) and f.task_id = r.task_id
     and f.failed_at <= coalesce(r.replaced_at, 'infinity');
  delete from tuskline.progress g using tuskline.redriven r
   where r.task_id = any (p_ids) and g.task_id = r.task_id
     and g.said_at <= coalesce(r.replaced_at, 'infinity');
  perform tuskline_core.forget_cancels(p_ids), tuskline_core.forget_messages(p_ids);
  update tuskline.redriven r set old_payload = null where r.task_id = any (p_ids);
end $$;
comment on function tuskline_core.forget_replaced(bigint[]) is
  'Deletes payloads that redrives replaced, and the messages of the failures before.';

-- Deletes a key from the tables that hold keys without a task.
--
-- If a task with the key was scheduled after the erase began, its unique key stays. A tenant with
-- such a task starts its rounds again, with the default weight.
create or replace function tuskline_core.forget_key(p_key text, p_lambda text) returns void
language plpgsql as $$
begin
  delete from tuskline.unique_key u using tuskline.lambda l
   where u.lambda = l.name and u.key = p_key and l.name = coalesce(p_lambda, l.name)
     and not exists (select from tuskline_core.all_tasks t where t.id = u.task_id);
  delete from tuskline.tenant t using tuskline.task_limit r
   where r.limit_id = t.limit_id and t.fairness_key = p_key
     and r.lambda = coalesce(p_lambda, r.lambda);
  delete from tuskline.permit s using tuskline.task_limit r
   where r.limit_id = s.limit_id and r.kind = 'rate' and s.key = p_key
     and r.lambda = coalesce(p_lambda, r.lambda);
  delete from tuskline_core.rate_state s using tuskline.task_limit r
   where r.limit_id = s.limit_id and s.key = p_key and r.lambda = coalesce(p_lambda, r.lambda);
  update tuskline.audit a set subject = l.name || ' ' || tuskline_core.digest(p_key)
    from tuskline.lambda l
   where a.verb = 'unblock' and a.subject = l.name || ' ' || p_key
     and l.name = coalesce(p_lambda, l.name);
  update tuskline.audit a
     set detail = tuskline_core.digest(p_key) || right(a.detail, -length(p_key))
   where a.verb = 'set_weight' and starts_with(a.detail, p_key || ' ')
     and strpos(right(a.detail, -length(p_key) - 1), ' ') = 0 -- only the weight is left
     and exists (select from tuskline.task_limit r
                  where a.subject = 'limit ' || r.limit_id
                    and r.lambda = coalesce(p_lambda, r.lambda));
end $$;
comment on function tuskline_core.forget_key(text, text) is
  'Deletes a key from the tables that hold keys without a task, and from the audit.';

-- Deletes the unique keys of the tasks in these lines of an archive file.
--
-- An erase of files calls it with the lines that it deletes. A key stays if it belongs to a stored
-- task, or to a task that is in no line. Reasons of cancels go from the audit.
create or replace function tuskline.forget_lines(p_lines text[]) returns void
language sql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  delete from tuskline.unique_key u
   using unnest(p_lines) as l (line), json_populate_record(null::tuskline.task, l.line::json) t
   where u.lambda = t.lambda and u.key = t.unique_key and u.task_id = t.id
     and not exists (select from tuskline_core.all_tasks s where s.id = t.id);
  select tuskline_core.forget_cancels(array(
    select t.id from unnest(p_lines) as l (line),
           json_populate_record(null::tuskline.task, l.line::json) t))
$$;
comment on function tuskline.forget_lines(text[]) is
  'Deletes the unique keys and the reasons of cancels of the tasks in these lines of an archive '
  'file.';
