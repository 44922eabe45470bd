-- Brings lambdas and their settings to the database, as the code of an application defines them.
--
-- p_definitions is an array of objects. Each names a lambda, settings of alter_lambda, and parts:
--
--   [{"lambda": "send_email", "max_attempts": 5, "attempt_timeout": "30 seconds",
--     "order": {"on_failure": "skip"}, "unique": {"scope": "forever"}, "breaker": {"failures": 50},
--     "limits": [{"max_concurrency": 10, "by_key": true}],
--     "gates": [{"action": "pause", "collection": "beta", "reason": "not yet"}],
--     "schedules": [{"name": "digest", "cron": "0 7 * * *"}]}]
--
-- Each deploy may call it. The last definition of a lambda is kept, and only what differs from it
-- is applied: a setting that an operator has changed since stays as the operator set it. A part
-- that the last definition had, and that this one does not have, is removed; a setting is not.
--
-- p_version is the version of the application: numbers with dots, as 1.4.2. A lambda that a newer
-- version has defined is left alone. A call without a version is older than each version.
--
-- p_dry_run returns the same rows and changes nothing.
--
-- Returns a row per lambda: created, changed, unchanged or newer (defined by a newer version); and
-- each change as {"setting": [before, after]}.
--
-- Locks: the guard of queues if a lambda is new; then the rows of the lambdas to change, by name. A
-- call with the stored definitions takes no lock.
create or replace function tuskline.define(
  p_definitions json, p_version text default null, p_dry_run boolean default false)
returns table (lambda text, outcome text, changes jsonb)
language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_version integer[] := tuskline_core.version_of(p_version);
  v_parts   jsonb     := tuskline_core.parts_by_lambda(p_definitions);
  v_done    jsonb     := '[]';
  v_new     text[]    := '{}';
  v_todo    text[];
  v_name    text;
  v_text    text;
  v_hint    text;
begin
  for v_name in select k.name from jsonb_object_keys(v_parts) as k (name)
                 order by k.name collate "C" loop
    if tuskline.define_lambda(v_name) then v_new := v_new || v_name; end if;
    perform tuskline_core.need(v_name, 'own');
  end loop;
  v_todo := array(
    select p.key from jsonb_each(v_parts) p left join tuskline.definition k on k.lambda = p.key
     where k.lambda is null or k.version < v_version
        or k.version = v_version and k.parts <> p.value);
  perform from tuskline.lambda l where l.name = any (v_todo) order by l.name collate "C" for update;
  for v_name in select k.name from jsonb_object_keys(v_parts) as k (name)
                 order by k.name collate "C" loop
    v_done := v_done || case
      when v_name = any (v_todo) then tuskline_core.define_one(
        v_name, v_parts -> v_name, v_version, v_name = any (v_new))
      else jsonb_build_object(
        'lambda', v_name, 'changes', '{}'::jsonb, 'outcome', (
          select case when k.version > v_version then 'newer' else 'unchanged' end
            from tuskline.definition k where k.lambda = v_name)) end;
  end loop;
  if p_dry_run then raise exception using errcode = 'TKDRY'; end if;
  return query select d.lambda, d.outcome, d.changes
                 from jsonb_to_recordset(v_done) as d (lambda text, outcome text, changes jsonb);
exception
  when sqlstate 'TKDRY' then -- undone; the variable keeps what was done
    return query select d.lambda, d.outcome, d.changes
                   from jsonb_to_recordset(v_done) as d (lambda text, outcome text, changes jsonb);
  when others then -- the text names the lambda; the code stays
    get stacked diagnostics v_text = message_text, v_hint = pg_exception_hint;
    if sqlstate like '22%' then v_text := 'TK009 invalid_setting: ' || v_text;
    elsif sqlstate not like 'TK%' then raise; end if;
    perform tuskline_core.refuse(left(v_text, 5), overlay(substr(v_text, 7)
      placing format(': %s: ', left(v_name, 80)) from position(': ' in substr(v_text, 7)) for 2),
      nullif(v_hint, ''));
end $$;
comment on function tuskline.define(json, text, boolean) is
  'Brings lambdas with their settings, limits, gates and schedules to the database. Applies what '
  'differs from the last definition, unless a newer version has defined the lambda. p_dry_run: '
  'only returns the changes. Audited.';

-- Applies the parts of one definition that differ from those of the last one.
create or replace function tuskline_core.define_one(
  p_lambda text, p_parts jsonb, p_version integer[], p_new boolean)
returns jsonb language plpgsql as $$
declare
  v_now    timestamptz := tuskline.clock();
  v_last   tuskline.definition;
  v_before jsonb := tuskline_core.settings_of(p_lambda);
  v_after  jsonb;
  p        record;
begin
  select * into v_last from tuskline.definition k where k.lambda = p_lambda;
  if v_last.version > p_version then
    return jsonb_build_object('lambda', p_lambda, 'outcome', 'newer', 'changes', '{}'::jsonb);
  end if;
  perform tuskline_core.alter_by(p_lambda, coalesce((
    select jsonb_object_agg(s.key, s.value) from jsonb_each(p_parts) s
     where jsonb_typeof(s.value) <> 'object' and s.value is distinct from v_last.parts -> s.key),
    '{}'));
  for p in
    select k.key, v_last.parts -> k.key as last, p_parts -> k.key as next
      from (select jsonb_object_keys(p_parts || coalesce(v_last.parts, '{}')) as key) k
     where 'object' in (jsonb_typeof(v_last.parts -> k.key), jsonb_typeof(p_parts -> k.key))
       and v_last.parts -> k.key is distinct from p_parts -> k.key
     order by p_parts ? k.key, k.key collate "C" -- removed parts first
  loop
    if p.next is null or p.key like 'gate%' then
      perform tuskline_core.remove_part(p_lambda, p.key, p.last);
    end if;
    if p.next is not null then perform tuskline_core.set_part(p_lambda, p.key, p.next); end if;
  end loop;
  insert into tuskline.definition as k (lambda, version, parts, defined_at)
  values (p_lambda, p_version, p_parts, v_now)
  on conflict on constraint definition_pkey do update
     set version = excluded.version, parts = excluded.parts, author = tuskline_core.caller(),
         defined_at = excluded.defined_at;
  v_after := tuskline_core.settings_of(p_lambda);
  return jsonb_build_object(
    'lambda', p_lambda,
    'outcome', case when p_new then 'created' when v_after = v_before then 'unchanged'
                    else 'changed' end,
    'changes', coalesce((
      select jsonb_object_agg(s.key, jsonb_build_array(v_before -> s.key, v_after -> s.key))
        from (select jsonb_object_keys(v_before || v_after) as key) s
       where v_before -> s.key is distinct from v_after -> s.key), '{}'));
end $$;
comment on function tuskline_core.define_one(text, jsonb, integer[], boolean) is
  'Applies the parts of a definition that differ from the last one. Returns a row of define().';

-- Sets one part. A gate whose scope has a gate of an operator is not set.
create or replace function tuskline_core.set_part(p_lambda text, p_key text, p_part jsonb)
returns void language plpgsql as $$
begin
  case split_part(p_key, ' ', 1)
    when 'order' then
      perform tuskline.set_order(p_lambda, p_part ->> 'on_failure');
    when 'unique' then
      perform tuskline.set_unique(
        p_lambda, p_part ->> 'scope', p_part ->> 'outcome', (p_part ->> 'period')::interval);
    when 'breaker' then
      perform tuskline.set_breaker(
        p_lambda, (p_part ->> 'failures')::integer, (p_part ->> 'window')::interval,
        (p_part ->> 'share')::double precision, (p_part ->> 'probe_after')::interval);
    when 'schedule' then perform tuskline_core.define_schedule(p_lambda, p_part);
    when 'gate' then
      perform tuskline.gate(
        p_lambda, p_part ->> 'action', p_part ->> 'collection', p_part ->> 'priority',
        (p_part ->> 'until')::timestamptz, (p_part ->> 'for')::interval, p_part ->> 'reason',
        true)
       where not exists (
         select from tuskline.gate g
          where g.lambda = p_lambda and g.opened_at is null
            and p_key = concat_ws(' ', 'gate', tuskline_core.scope_of_part(to_jsonb(g))));
    else
      perform tuskline.set_limit(
        p_lambda, (p_part ->> 'max_concurrency')::integer,
        (p_part ->> 'per_second')::double precision, p_part ->> 'collection',
        p_part ->> 'priority', (p_part ->> 'by_key')::boolean, (p_part ->> 'burst')::integer,
        (p_part ->> 'fair')::boolean);
  end case;
end $$;
comment on function tuskline_core.set_part(text, text, jsonb) is
  'Sets a part of a definition: an order, unique keys, a breaker, a limit, a gate or a schedule.';

-- Removes one part, as the last definition had it. A gate with another reason is of an operator,
-- and a schedule that makes tasks of another lambda has moved: both stay.
create or replace function tuskline_core.remove_part(p_lambda text, p_key text, p_part jsonb)
returns void language plpgsql as $$
begin
  case split_part(p_key, ' ', 1)
    when 'unique' then perform tuskline.drop_unique(p_lambda);
    when 'breaker' then perform tuskline.drop_breaker(p_lambda);
    when 'schedule' then
      perform tuskline.drop_periodic(p.name, 'not in the definition') from tuskline.periodic p
        where p.name = p_part ->> 'name' and p.lambda = p_lambda;
    when 'gate' then
      perform tuskline.ungate(g.gate_id) from tuskline.gate g
        where g.lambda = p_lambda and g.opened_at is null and g.reason = p_part ->> 'reason'
          and p_key = concat_ws(' ', 'gate', tuskline_core.scope_of_part(to_jsonb(g)));
    else
      perform tuskline.drop_limit(r.limit_id) from tuskline.task_limit r
        where r.lambda = p_lambda and r.dropped_at is null and r.reason is null
          and p_key = tuskline_core.key_of_limit(r);
  end case;
end $$;
comment on function tuskline_core.remove_part(text, text, jsonb) is
  'Removes a part that the last definition had and the next one does not have.';

create or replace function tuskline_core.define_schedule(p_lambda text, p_part jsonb)
returns void language sql as $$
  select tuskline.define_periodic(
    p_part ->> 'name', p_lambda, p_part ->> 'cron',
    nullif(p_part -> 'payload', 'null')::text, p_part ->> 'zone', p_part ->> 'collection',
    p_part ->> 'priority', p_part ->> 'missed', (p_part ->> 'missed_most')::integer,
    (p_part ->> 'grace')::interval, p_part ->> 'overlap',
    (p_part ->> 'starts_at')::timestamptz, (p_part ->> 'ends_at')::timestamptz)
$$;
comment on function tuskline_core.define_schedule(text, jsonb) is
  'Defines the schedule of a definition.';

-- Changes the settings in p_settings that differ in value. A text alone is no difference: 1 day is
-- 24:00:00. Null takes a retention of its own away, and leaves any other setting as it is.
create or replace function tuskline_core.alter_by(p_lambda text, p_settings jsonb) returns void
language plpgsql as $$
declare
  l tuskline.lambda; -- old
  n tuskline.lambda; -- new
begin
  select * into l from tuskline.lambda where name = p_lambda;
  n := jsonb_populate_record(l, (
    select jsonb_object_agg(s.key, s.value) from jsonb_each(p_settings) s
     where s.value <> 'null' or s.key ~ '^(cancelled|dropped|fatal)_retention$'));
  if n is distinct from l then
    perform tuskline_core.save_settings(l, to_jsonb(n));
  end if;
end $$;
comment on function tuskline_core.alter_by(text, jsonb) is
  'Changes those settings of a lambda that differ from the given ones.';
