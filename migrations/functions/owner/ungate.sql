-- Opens a gate. Returns false if no gate with that number is set.
--
-- The store consumer releases the parked tasks in batches (release_parked).
create or replace function tuskline.ungate(p_gate bigint, p_reason text default null)
returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  perform tuskline_core.need(g.lambda, 'operate') from tuskline.gate g where g.gate_id = p_gate;
  return tuskline_core.open_gate(p_gate, tuskline.clock(),
                                 concat_ws(': ', 'by hand', left(p_reason, 500)));
end $$;
comment on function tuskline.ungate(bigint, text) is
  'Opens a gate; its parked tasks return in batches. False: no gate with that number is set. '
  'Audited.';

-- Opens a gate, for ungate, for its end time (run_policies) and for circuit breakers.
--
-- The row of the gate stays until no task is parked behind it. run_policies releases these tasks
-- and then deletes the row. A pause of a lambda or priority has parked nothing: workers can claim
-- from its queues again at once.
create or replace function tuskline_core.open_gate(p_gate bigint, p_now timestamptz, p_why text)
returns boolean language plpgsql as $$
declare
  g tuskline.gate;
begin
  perform from tuskline.lambda l
    where l.name = (select s.lambda from tuskline.gate s where s.gate_id = p_gate) for update;
  update tuskline.gate set opened_at = p_now
   where gate_id = p_gate and opened_at is null returning * into g;
  if not found then return false; end if;
  insert into tuskline.audit (at, verb, subject, detail)
  values (p_now, 'ungate', tuskline_core.scope_of(g.lambda, g.collection, g.priority),
          concat_ws(' ', 'gate', g.gate_id, g.action, p_why));
  perform tuskline_core.update_policy_flags(g.lambda);
  perform tuskline_core.notify('tuskline_timer');
  return true;
end $$;
comment on function tuskline_core.open_gate(bigint, timestamptz, text) is
  'Opens a gate, by hand, by a circuit breaker or because its time is over.';
