create or replace function tuskline_core.check_gate(
  p_action text, p_now timestamptz, p_until timestamptz, p_for interval, p_reason text)
returns void language plpgsql immutable as $$
declare
  v_wrong text := case
    when p_action is null or p_action not in ('pause', 'drop', 'divert')
      then format('action must be pause, drop or divert, got %s',
                  coalesce(quote_literal(left(p_action, 80)), 'null'))
    else tuskline_core.mistake_in_reason(p_now, p_until, p_for, p_reason)
  end;
begin
  if v_wrong is not null then
    perform tuskline_core.refuse('TK017', 'invalid_gate: ' || v_wrong,
      case p_action when 'slow' then 'select tuskline.throttle(...)' end);
  end if;
end $$;
comment on function tuskline_core.check_gate(text, timestamptz, timestamptz, interval, text) is
  'Refuses (TK017) a gate with an invalid action, reason or time.';

create or replace function tuskline_core.mistake_in_reason(
  p_now timestamptz, p_until timestamptz, p_for interval, p_reason text)
returns text language sql immutable as $$
  select case
    when p_reason is null or p_reason !~ '[^[:space:]]' or length(p_reason) > 500
      then 'reason must have 1 to 500 characters'
    when p_until is not null and p_for is not null then 'give until or for, not both'
    when not isfinite(coalesce(p_until, p_now + p_for)) or coalesce(p_until, p_now + p_for) <= p_now
      then format('until must be finite and to come, got %s', coalesce(p_until::text, p_for::text))
  end
$$;
comment on function tuskline_core.mistake_in_reason(timestamptz, timestamptz, interval, text) is
  'Error in the reason or the time of a gate or throttle. Null: both are valid.';

create or replace function tuskline_core.check_collection(
  p_lambda text, p_collection text, p_unseen boolean)
returns void language plpgsql as $$
begin
  if p_collection is null then return; end if;
  perform tuskline_core.check_name('collection', p_collection);
  if not p_unseen and not tuskline_core.is_seen(p_lambda, p_collection) then
    perform tuskline_core.refuse('TK016',
      format('unknown_collection: no recent task of %s has collection %L', p_lambda, p_collection),
      'p_unseen => true accepts it all the same');
  end if;
end $$;
comment on function tuskline_core.check_collection(text, text, boolean) is
  'Refuses (TK016) a collection that no recent task of the lambda has.';

-- Tells whether a recent task of a lambda has a collection. A misspelt collection would gate
-- nothing.
--
-- Reads the latest 100,000 ids of both ranges: immediate tasks (task_seq) and future tasks
-- (future_seq).
create or replace function tuskline_core.is_seen(p_lambda text, p_collection text) returns boolean
language sql volatile as $$
  select exists (
    select from (select last_value as n from tuskline.task_seq
                 union all
                 select last_value from tuskline.future_seq) s
           join tuskline.task t on t.id between s.n - 100000 and s.n
     where t.lambda = p_lambda and t.collection = p_collection)
$$;
comment on function tuskline_core.is_seen(text, text) is
  'Tells whether one of the latest tasks of a lambda has this collection.';

-- Locks a lambda's row until the transaction ends: changes of its settings and policies are serial.
create or replace function tuskline_core.lock_lambda(p_lambda text) returns void
language plpgsql as $$
begin
  perform from tuskline.lambda l where l.name = p_lambda for update;
  if not found then
    perform tuskline_core.refuse_lambda(p_lambda);
  end if;
end $$;
comment on function tuskline_core.lock_lambda(text) is
  'Locks a lambda''s row. Refuses (TK001) a lambda that is not defined.';
