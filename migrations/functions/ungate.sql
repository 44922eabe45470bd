create or replace function tuskline.ungate(p_gate bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  return tuskline.open_gate(p_gate, tuskline.clock(), 'by hand');
end $$;
comment on function tuskline.ungate(bigint) is 'Opens a gate: what it held returns, a batch at a time. False: there is none of that number. Audited.';

-- open_gate: the row stays until nothing is parked behind it any more; promote lets that go, and the row then.
create or replace function tuskline.open_gate(p_gate bigint, p_now timestamptz, p_why text) returns boolean
language plpgsql as $$
declare
  g tuskline.gate;
begin
  perform from tuskline.lambda l where l.name = (select s.lambda from tuskline.gate s where s.gate_id = p_gate) for update;
  update tuskline.gate set opened_at = p_now where gate_id = p_gate and opened_at is null returning * into g;
  if not found then return false; end if;
  delete from tuskline.gate_pass where gate_id = p_gate;
  insert into tuskline.audit (at, verb, subject, detail)
  values (p_now, 'ungate', tuskline.scope_of(g.lambda, g.collection, g.priority), concat_ws(' ', 'gate', g.gate_id, g.action, p_why));
  perform tuskline.guard_queues(g.lambda);
  perform tuskline.notify('tuskline_timer');
  return true;
end $$;
comment on function tuskline.open_gate(bigint, timestamptz, text) is 'Opens a gate, by hand or because its time is over.';

-- guard_queues: tasks of a gated or limited lambda go through the store consumer, which asks gates and
-- rules; a claim asks them about what stood in the queue before. Rules by key need that of tasks with a
-- key only, and these never go straight into a queue.
create or replace function tuskline.guard_queues(p_lambda text) returns void
language plpgsql as $$
begin
  perform from tuskline.lambda l where l.name = p_lambda for update; -- what follows sees what others have set
  with c as (
    select q.queue_id, q.is_full, l.direct,
           exists (select from tuskline.gate g
                    where g.lambda = p_lambda and g.opened_at is null and (g.priority is null or g.priority = q.priority)) as gated,
           exists (select from tuskline.rule r
                    where r.lambda = p_lambda and r.dropped_at is null and (r.priority is null or r.priority = q.priority)) as ruled,
           exists (select from tuskline.rule r
                    where r.lambda = p_lambda and r.dropped_at is null and not r.by_key and (r.priority is null or r.priority = q.priority)) as counted
      from tuskline.queue q join tuskline.lambda l on l.name = q.lambda where q.lambda = p_lambda
     order by q.queue_id for no key update of q)
  update tuskline.queue q
     set guarded = c.gated or c.ruled, direct = c.direct and not (c.gated or c.counted or c.is_full)
    from c where q.queue_id = c.queue_id
     and (q.guarded, q.direct) is distinct from (c.gated or c.ruled, c.direct and not (c.gated or c.counted or c.is_full));
  if not exists (select from tuskline.queue q where q.lambda = p_lambda and q.guarded) then
    delete from tuskline.guarded where lambda = p_lambda;
  elsif not exists (select from tuskline.guarded where lambda = p_lambda) then
    insert into tuskline.guarded values (p_lambda);
  end if;
end $$;
comment on function tuskline.guard_queues(text) is 'Brings the flags of a lambda''s queues up to its settings, gates and rules.';
