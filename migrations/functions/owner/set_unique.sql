-- Sets what unique_key means for a lambda.
--
--   p_scope   a task holds its key
--   queued    while it waits: until a worker claims it, and before a retry
--   running   until it ends (default)
--   period    for p_period from its scheduling
--   forever   always, also beyond its retention
--
--   p_outcome  effect of a second task with the key
--   keep       the holder stays as it is (default)
--   replace    the holder gets the new payload, if it waits
--   postpone   the holder gets the new due time, if it waits
--   reject     the call is refused; otherwise the call returns the id of the holder
--
-- Keys that are held now keep the scope with which they were taken.
create or replace function tuskline.set_unique(
  p_lambda  text,
  p_scope   text     default null,
  p_outcome text     default null,
  p_period  interval default null)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now     timestamptz := tuskline.clock();
  v_scope   text        := coalesce(p_scope, 'running');
  v_outcome text        := coalesce(p_outcome, 'keep');
begin
  perform tuskline_core.need(p_lambda, 'own');
  if not exists (select from tuskline.lambda l where l.name = p_lambda) then
    perform tuskline_core.refuse_lambda(p_lambda);
  elsif v_scope not in ('queued', 'running', 'period', 'forever') then
    perform tuskline_core.refuse('TK018', format(
      'invalid_limit: scope must be queued, running, period or forever, got %L',
      left(v_scope, 80)));
  elsif v_outcome not in ('keep', 'replace', 'postpone', 'reject') then
    perform tuskline_core.refuse('TK018', format(
      'invalid_limit: outcome must be keep, replace, postpone or reject, got %L',
      left(v_outcome, 80)));
  elsif (v_scope = 'period')
           <> coalesce(p_period > '0' and p_period <= tuskline_core.max_delay(), false)
        or (v_scope <> 'period' and p_period is not null) then
    perform tuskline_core.refuse('TK018', format(
      'invalid_limit: scope period, and no other, needs a period above 0 '
      'and up to 10 years, got %s with %s',
      v_scope, coalesce(p_period::text, 'none')));
  end if;
  insert into tuskline.unique_policy as u (lambda, scope, period, outcome, set_at)
  values (p_lambda, v_scope, p_period, v_outcome, v_now)
  on conflict (lambda) do update
     set scope = excluded.scope, period = excluded.period, outcome = excluded.outcome,
         author = tuskline_core.caller(), set_at = v_now;
  insert into tuskline.audit (at, verb, subject, detail)
  values (v_now, 'set_unique', p_lambda, concat_ws(' ', v_scope, p_period, v_outcome));
end $$;
comment on function tuskline.set_unique(text, text, text, interval) is
  'Sets how long a task of a lambda holds its unique_key (queued, running, period, forever). '
  'p_outcome: effect of a second task with the key (keep, replace, postpone, reject). '
  'Default: running, keep. Audited.';

-- Removes the unique keys of a lambda: tasks with a unique_key are refused from now on.
--
-- Returns false if the lambda has none.
create or replace function tuskline.drop_unique(p_lambda text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  perform tuskline_core.need(p_lambda, 'own');
  delete from tuskline.unique_policy where lambda = p_lambda;
  if not found then return false; end if;
  insert into tuskline.audit (at, verb, subject)
  values (tuskline.clock(), 'drop_unique', p_lambda);
  return true;
end $$;
comment on function tuskline.drop_unique(text) is
  'Removes the unique keys of a lambda; tasks with one are refused. False: it has none. Audited.';

-- Deletes unique keys that no task holds, among the next p_limit keys after (p_lambda, p_key).
--
-- The janitor walks over all keys this way. Returns the number of deleted keys, and the key after
-- which the next call starts; null if this was the last batch.
--
-- Race: hold_key may give the key to another task while this statement runs. The row lock reads the
-- newest row, but whether the task has ended is read from the older snapshot. Therefore the task of
-- the row must be the one that was read before (k.task_id = u.task_id).
create or replace function tuskline.purge_keys(
  inout p_lambda text, inout p_key text, p_limit integer default 5000, out gone bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now     timestamptz := tuskline.clock();
  v_lambdas text[];
  v_keys    text[];
  v_tasks   bigint[];
begin
  select array_agg(u.lambda), array_agg(u.key), array_agg(u.task_id)
    into v_lambdas, v_keys, v_tasks
    from (select k.lambda, k.key, k.task_id from tuskline.unique_key k
           where (k.lambda, k.key) > (p_lambda, p_key)
           order by k.lambda, k.key limit p_limit) u;
  with d as (
    select k.lambda, k.key
      from unnest(v_lambdas, v_keys, v_tasks) as u (lambda, key, task_id)
           join tuskline.unique_key k
             on k.lambda = u.lambda and k.key = u.key and k.task_id = u.task_id
     where case k.scope
             when 'forever' then false
             when 'period' then k.until <= v_now
             else not exists (select from tuskline_core.all_tasks t
                               where t.id = k.task_id and t.finished_at is null) end
     order by 1, 2 for update of k skip locked)
  delete from tuskline.unique_key k using d where k.lambda = d.lambda and k.key = d.key;
  get diagnostics gone = row_count;
  p_lambda := v_lambdas[p_limit];
  p_key := v_keys[p_limit];
end $$;
comment on function tuskline.purge_keys(text, text, integer) is
  'Deletes unique keys that no task holds, after a given key. Returns how many, and the key after '
  'which the next call starts (null: this was the last batch).';
