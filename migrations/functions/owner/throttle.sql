-- Throttles a lambda: sets a temporary rate limit with a reason, for example a failing mail relay.
--
-- A throttle applies in addition to the limits of the lambda, which stay as they are. It covers the
-- lambda, or one collection or priority. It ends at p_until, or after p_for, or with drop_limit.
-- The first task may start at once. A pause earns at most one second of tasks.
-- Returns the number of the limit.
create or replace function tuskline.throttle(
  p_lambda text, p_per_second double precision, p_collection text default null,
  p_priority text default null, p_until timestamptz default null, p_for interval default null,
  p_reason text default null, p_unseen boolean default false)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now      timestamptz := tuskline.clock();
  v_limit_id bigint;
  v_wrong    text := case
    when p_per_second is null or not (p_per_second between 0.001 and 1000000)
      then format('per_second must be 0.001 to 1000000, got %s',
                  coalesce(p_per_second::text, 'null'))
    else tuskline_core.mistake_in_reason(v_now, p_until, p_for, p_reason)
  end;
begin
  perform tuskline_core.need(p_lambda, 'operate');
  if v_wrong is not null then
    perform tuskline_core.refuse('TK018', 'invalid_limit: ' || v_wrong);
  end if;
  perform tuskline_core.lock_lambda(p_lambda);
  perform tuskline_core.check_collection(p_lambda, p_collection, p_unseen);
  v_limit_id := tuskline_core.save_limit(
    p_lambda, p_collection,
    case when p_priority is not null then tuskline_core.priority_of(p_priority) end,
    'rate', false, false, null, p_per_second, tuskline_core.default_burst(p_per_second), null,
    p_reason, coalesce(p_until, v_now + p_for));
  insert into tuskline_core.rate_state (limit_id, key, next_at) values (v_limit_id, '', v_now)
  on conflict do nothing;
  return v_limit_id;
end $$;
comment on function tuskline.throttle(
  text, double precision, text, text, timestamptz, interval, text, boolean) is
  'Sets a rate limit with a reason on a lambda, collection or priority, until p_until, for p_for '
  'or until drop_limit. Returns the number of the limit. Audited.';
