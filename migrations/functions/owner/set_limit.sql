-- Sets a concurrency limit (p_max_concurrency) or a rate limit (p_per_second) on a lambda.
--
-- The limit covers all tasks of the lambda, or one collection, or one priority. With p_by_key each
-- limit_key is counted separately. With p_fair tasks join the wait list in rounds by fairness_key,
-- so one tenant does not delay another. A second call with the same scope changes the limit.
-- drop_limit removes it.
--
-- p_burst is the number of tasks that may start at once after a quiet time: one second's worth by
-- default. Permits are granted up to twenty times a second, so a burst below a tenth of per_second,
-- which would keep the rate from being reached, is refused.
--
-- Guarantees: the limit holds over all workers. A task acquires its permit before it enters its
-- queue, and holds it until its attempt ends; of a rate limit, until its claim (grant_rate).
-- Returns the number of the limit.
create or replace function tuskline.set_limit(
  p_lambda          text,
  p_max_concurrency integer          default null,
  p_per_second      double precision default null,
  p_collection      text             default null,
  p_priority        text             default null,
  p_by_key          boolean          default null,
  p_burst           integer          default null,
  p_fair            boolean          default null)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_kind  text := case when p_per_second is null then 'concurrency' else 'rate' end;
  v_wrong text := case
    when p_max_concurrency is not null and p_per_second is not null
      then 'give max_concurrency or per_second; for both, call twice'
    when p_max_concurrency is null and p_per_second is null
      then 'give max_concurrency or per_second'
    when p_max_concurrency < 0 or p_max_concurrency > 100000
      then format('max_concurrency must be 0 to 100000, got %s', p_max_concurrency)
    when p_per_second is not null and not (p_per_second between 0.001 and 1000000)
      then format('per_second must be 0.001 to 1000000, got %s', p_per_second)
    when p_burst is not null and (p_per_second is null or p_burst not between 1 and 100000)
      then format('burst must be 1 to 100000, with per_second, got %s', p_burst)
    when p_burst < ceil(p_per_second / 10)
      then format('burst must be at least a tenth of per_second, %s, got %s',
                  ceil(p_per_second / 10), p_burst)
    when p_by_key and p_fair
      then 'a limit by key cannot be fair as well: each key has its own wait list'
  end;
begin
  perform tuskline_core.need(p_lambda, 'own');
  if v_wrong is not null then
    perform tuskline_core.refuse('TK018', 'invalid_limit: ' || v_wrong);
  end if;
  if p_collection is not null then
    perform tuskline_core.check_name('collection', p_collection);
  end if;
  return tuskline_core.save_limit(
    p_lambda, p_collection,
    case when p_priority is not null then tuskline_core.priority_of(p_priority) end,
    v_kind, coalesce(p_by_key, false), coalesce(p_fair, false), p_max_concurrency,
    p_per_second,
    coalesce(p_burst, tuskline_core.default_burst(p_per_second)),
    null);
end $$;
comment on function tuskline.set_limit(
  text, integer, double precision, text, text, boolean, integer, boolean) is
  'Sets a concurrency limit (p_max_concurrency) or a rate limit (p_per_second) on a lambda, '
  'collection or priority. p_by_key: per limit_key. p_fair: rounds by fairness_key. '
  'Returns the number of the limit. Audited.';

create or replace function tuskline_core.default_burst(p_per_second double precision)
returns integer language sql immutable strict as $$
  select least(100000, greatest(1, ceil(p_per_second)))::integer
$$;
comment on function tuskline_core.default_burst(double precision) is
  'Burst of a rate limit that names none: one second of tasks, 100,000 at most.';

-- Sets the ordering policy of a lambda: tasks with an ordering_key run one at a time, in order.
--
-- p_on_failure says what happens to a key whose task fails for good:
--
--   block  the key stays blocked until unblock, or until the failed task is retried or purged
--          (default)
--   skip   the next task of the key runs
--   dead   the tasks that wait behind it end as dead
--
-- Returns the number of the limit.
create or replace function tuskline.set_order(p_lambda text, p_on_failure text default null)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_on_failure text := coalesce(p_on_failure, 'block');
begin
  perform tuskline_core.need(p_lambda, 'own');
  if v_on_failure not in ('block', 'skip', 'dead') then
    perform tuskline_core.refuse('TK018', format(
      'invalid_limit: on_failure must be block, skip or dead, got %L', left(v_on_failure, 80)));
  end if;
  return tuskline_core.save_limit(
    p_lambda, null, null, 'order', true, false, null, null, null, v_on_failure);
end $$;
comment on function tuskline.set_order(text, text) is
  'Runs the tasks of each ordering_key of a lambda one at a time, in order. p_on_failure says what '
  'happens to a key whose task fails for good: block (default), skip or dead. Audited.';
