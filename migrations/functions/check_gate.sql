create or replace function tuskline.check_gate(
  p_action text, p_per_second double precision, p_now timestamptz, p_until timestamptz, p_for interval, p_reason text)
returns void language plpgsql immutable as $$
declare
  v_wrong text := case
    when p_action is null or p_action not in ('pause', 'drop', 'divert', 'slow')
      then format('action must be pause, drop, divert or slow, got %s', coalesce(quote_literal(left(p_action, 80)), 'null'))
    when p_action = 'slow' and (p_per_second is null or not (p_per_second between 0.001 and 1000000))
      then format('per_second must be 0.001 to 1000000, got %s', coalesce(p_per_second::text, 'null'))
    when p_action <> 'slow' and p_per_second is not null then format('per_second is for slow only, got %s', p_per_second)
    when p_reason is null or p_reason !~ '[^[:space:]]' or length(p_reason) > 500 then 'reason must have 1 to 500 characters'
    when p_until is not null and p_for is not null then 'give until or for, not both'
    when not isfinite(coalesce(p_until, p_now + p_for)) or coalesce(p_until, p_now + p_for) <= p_now
      then format('until must be finite and to come, got %s', coalesce(p_until::text, p_for::text))
  end;
begin
  if v_wrong is not null then perform tuskline.refuse('TK017', 'invalid_gate: ' || v_wrong); end if;
end $$;
comment on function tuskline.check_gate(text, double precision, timestamptz, timestamptz, interval, text) is 'Refuses (TK017) a gate that makes no sense.';

-- is_seen: a misspelt collection would gate nothing. Looks at the latest 100,000 numbers of both ranges.
create or replace function tuskline.is_seen(p_lambda text, p_collection text) returns boolean
language sql volatile as $$
  select exists (select from (select last_value as n from tuskline.task_seq union all select last_value from tuskline.future_seq) s
                        join tuskline.task t on t.id between s.n - 100000 and s.n
                  where t.lambda = p_lambda and t.collection = p_collection)
$$;
comment on function tuskline.is_seen(text, text) is 'Whether one of the latest tasks of a lambda has this collection.';

-- lock_lambda: an owner's changes to one lambda come one after the other.
create or replace function tuskline.lock_lambda(p_lambda text) returns void
language plpgsql as $$
begin
  perform from tuskline.lambda l where l.name = p_lambda for update;
  if not found then
    perform tuskline.refuse('TK001', format('unknown_lambda: %s is not defined', coalesce(quote_literal(left(p_lambda, 80)), 'null')));
  end if;
end $$;
comment on function tuskline.lock_lambda(text) is 'Locks a lambda''s row, or refuses (TK001) one that is not defined.';
