-- set_limit: at most so many tasks of a lambda (or of a collection of it) at a time, or in a second; by key,
-- for each limit_key by itself. Counted when a task enters its queue, over all workers: a task holds its
-- place from there to the end of its attempt. drop_limit takes the limit away.
create or replace function tuskline.set_limit(
  p_lambda text, p_max_concurrency integer default null, p_per_second double precision default null,
  p_collection text default null, p_priority text default null, p_by_key boolean default false, p_burst integer default null, p_fair boolean default false)
returns bigint language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_kind  text := case when p_per_second is null then 'concurrency' else 'rate' end;
  v_wrong text := case
    when p_max_concurrency is not null and p_per_second is not null then 'give max_concurrency or per_second; for both, call twice'
    when p_max_concurrency is null and p_per_second is null then 'give max_concurrency or per_second'
    when p_max_concurrency < 0 or p_max_concurrency > 100000 then format('max_concurrency must be 0 to 100000, got %s', p_max_concurrency)
    when p_per_second is not null and not (p_per_second between 0.001 and 1000000) then format('per_second must be 0.001 to 1000000, got %s', p_per_second)
    when p_burst is not null and (p_per_second is null or p_burst not between 1 and 1000000) then format('burst must be 1 to 1000000, with per_second, got %s', p_burst)
    when p_by_key is null or p_fair is null then 'by_key and fair must be true or false, got null'
    when p_by_key and p_fair then 'a limit by key cannot be fair as well: each key has a line of its own'
  end;
begin
  if v_wrong is not null then perform tuskline_core.refuse('TK018', 'invalid_limit: ' || v_wrong); end if;
  if p_collection is not null then perform tuskline_core.check_name('collection', p_collection); end if;
  return tuskline_core.save_limit(p_lambda, p_collection, case when p_priority is not null then tuskline_core.priority_of(p_priority) end,
    v_kind, p_by_key, p_fair, p_max_concurrency, p_per_second,
    case when v_kind = 'rate' then coalesce(p_burst, greatest(1, ceil(p_per_second)::integer)) end, null);
end $$;
comment on function tuskline.set_limit(text, integer, double precision, text, text, boolean, integer, boolean) is
  'At most p_max_concurrency tasks of a lambda at a time, or p_per_second of them in a second; of one collection, of one priority, or by limit_key; p_fair: who waits takes turns by fairness_key. Returns the number of the rule. Audited.';

create or replace function tuskline.set_order(p_lambda text, p_on_failure text default 'block') returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  if p_on_failure is null or p_on_failure not in ('block', 'skip', 'dead') then
    perform tuskline_core.refuse('TK018', format('invalid_limit: on_failure must be block, skip or dead, got %s', coalesce(quote_literal(left(p_on_failure, 80)), 'null')));
  end if;
  return tuskline_core.save_limit(p_lambda, null, null, 'order', true, false, null, null, null, p_on_failure);
end $$;
comment on function tuskline.set_order(text, text) is
  'Lets tasks of a lambda have an ordering_key: one at a time and in order, for each key; and says what becomes of a key whose task fails for good: block, skip or dead. Audited.';
