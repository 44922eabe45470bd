-- Sets a gate on a lambda, or on one of its collections, priorities or both. Returns its number.
--
--   pause   tasks wait until the gate opens
--   drop    tasks end as dropped
--   divert  tasks end as dead (dead letters)
--
-- The gate opens at p_until, after p_for, or with ungate.
--
-- A pause of a lambda or priority is a flag of its queues. Claims skip these queues, at any number
-- of tasks. Every further gate is applied to a task when it enters its queue. A task
-- that is already queued meets the gate when it is claimed, or when the store consumer sorts the
-- queue. Workers return tasks that they have claimed and not started.
--
-- The narrowest gate applies to a task, but no task starts from a paused queue. A gate is refused
-- (TK015) if it overlaps with one that is as narrow.
--
-- Locks: the row of the lambda, so changes of its gates run one after the other.
create or replace function tuskline.gate(
  p_lambda     text,
  p_action     text,
  p_collection text        default null,
  p_priority   text        default null,
  p_until      timestamptz default null,
  p_for        interval    default null,
  p_reason     text        default null,
  p_unseen     boolean     default false)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now      timestamptz := tuskline.clock();
  v_priority tuskline.priority :=
    case when p_priority is not null then tuskline_core.priority_of(p_priority) end;
  v_other    tuskline.gate;
  v_gate     bigint;
begin
  perform tuskline_core.need(p_lambda, 'operate');
  perform tuskline_core.lock_lambda(p_lambda);
  perform tuskline_core.check_gate(p_action, v_now, p_until, p_for, p_reason);
  perform tuskline_core.check_collection(p_lambda, p_collection, p_unseen);
  select * into v_other
    from tuskline.gate g
   where g.lambda = p_lambda and g.opened_at is null
     and (g.collection is null or p_collection is null or g.collection = p_collection)
     and (g.priority is null or v_priority is null or g.priority = v_priority)
     and num_nonnulls(g.collection, g.priority) = num_nonnulls(p_collection, v_priority)
   order by g.gate_id limit 1;
  if found then
    perform tuskline_core.refuse('TK015',
      format('gate_conflict: gate %s of %s (%s %s) overlaps with this one',
             v_other.gate_id, v_other.author, v_other.action,
             tuskline_core.scope_of(v_other.lambda, v_other.collection, v_other.priority)),
      format('select tuskline.ungate(%s)', v_other.gate_id));
  end if;
  insert into tuskline.gate (lambda, collection, priority, action, reason, set_at, until)
  values (p_lambda, p_collection, v_priority, p_action, p_reason, v_now,
          coalesce(p_until, v_now + p_for))
  returning gate_id into v_gate;
  insert into tuskline.audit (at, verb, subject, detail)
  values (v_now, 'gate', tuskline_core.scope_of(p_lambda, p_collection, v_priority),
          concat_ws(' ', 'gate', v_gate, p_action, 'until ' || coalesce(p_until, v_now + p_for),
                    p_reason));
  perform tuskline_core.update_policy_flags(p_lambda,
    case when v_priority is null then enum_range(null::tuskline.priority)
         else array[v_priority] end);
  perform tuskline_core.notify('tuskline_executor_' || e.executor_id)
     from tuskline.executor e where e.ended_at is null and p_lambda = any (e.lambdas);
  perform tuskline_core.notify('tuskline_timer');
  return v_gate;
end $$;
comment on function tuskline.gate(text, text, text, text, timestamptz, interval, text, boolean) is
  'Sets a gate (pause, drop or divert) on a lambda, collection or priority. It opens at p_until, '
  'after p_for or with ungate. Returns its number. Audited.';

create or replace function tuskline_core.scope_of(
  p_lambda text, p_collection text, p_priority tuskline.priority)
returns text language sql immutable as $$
  select concat_ws(' ', p_lambda, 'collection ' || p_collection, 'priority ' || p_priority)
$$;
comment on function tuskline_core.scope_of(text, text, tuskline.priority) is
  'Returns the scope of a gate or limit as text: lambda, collection and priority.';
