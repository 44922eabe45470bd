-- Reads definitions for define(): their form, their version, their parts, and the settings that a
-- lambda has now.
create or replace function tuskline_core.scope_of_part(p_part jsonb) returns text
language sql immutable as $$
  select nullif(concat_ws(' ', 'collection ' || (p_part ->> 'collection'),
                          'priority ' || (p_part ->> 'priority')), '')
$$;
comment on function tuskline_core.scope_of_part(jsonb) is
  'Returns collection and priority of a part as text; null: the whole lambda.';

create or replace function tuskline_core.key_of_limit(r tuskline.task_limit) returns text
language sql immutable as $$
  select case r.kind when 'order' then r.kind else
           concat_ws(' ', r.kind, 'limit', case when r.by_key then 'by key' end,
                     tuskline_core.scope_of_part(to_jsonb(r))) end
$$;
comment on function tuskline_core.key_of_limit(tuskline.task_limit) is
  'Returns the key of a limit among the parts of a definition.';

-- The parts of a definition by their keys: a setting by its name, a limit, gate or schedule by its
-- kind and scope.
create or replace function tuskline_core.parts_of(p_definition jsonb) returns jsonb
language sql immutable as $$
  select coalesce(jsonb_object_agg(p.key, p.value), '{}')
    from (select e.key, e.value from jsonb_each(p_definition) e
           where e.key not in ('lambda', 'limits', 'gates', 'schedules')
             and (e.value <> 'null' or e.key not in ('order', 'unique', 'breaker'))
          union all
          select concat_ws(' ', case when e.value ? 'per_second' then 'rate' else 'concurrency' end,
                           'limit', case when (e.value ->> 'by_key') = 'true' then 'by key' end,
                           tuskline_core.scope_of_part(e.value)), e.value
            from jsonb_path_query(p_definition, '$.limits[*]') as e (value)
          union all
          select concat_ws(' ', 'gate', tuskline_core.scope_of_part(e.value)), e.value
            from jsonb_path_query(p_definition, '$.gates[*]') as e (value)
          union all
          select 'schedule ' || (e.value ->> 'name'), e.value
            from jsonb_path_query(p_definition, '$.schedules[*]') as e (value)) p
$$;
comment on function tuskline_core.parts_of(jsonb) is
  'Returns the parts of a definition by their keys, as settings_of() names them.';

-- The parts of each definition, by the name of its lambda.
create or replace function tuskline_core.parts_by_lambda(p_definitions json) returns jsonb
language plpgsql immutable as $$
begin
  perform tuskline_core.check_definitions(p_definitions::jsonb);
  perform tuskline_core.refuse('TK009', format(
            'invalid_setting: %L of lambda %s must be given once', left(d.key, 80), d.lambda))
     from tuskline_core.doubled_fields(p_definitions) d limit 1;
  return (select jsonb_object_agg(e.value ->> 'lambda', tuskline_core.parts_of(e.value))
            from jsonb_array_elements(p_definitions::jsonb) e);
end $$;
comment on function tuskline_core.parts_by_lambda(json) is
  'Checks definitions, and returns the parts of each by the name of its lambda.';

-- Lists the fields that an object of the definitions has twice. jsonb keeps the last one only.
--
-- Fields of a payload are the application's: it is not read.
create or replace function tuskline_core.doubled_fields(p_definitions json)
returns table (lambda text, key text) language sql immutable as $$
  with d as (
    select e.value, e.ordinality::text as place
      from json_array_elements(p_definitions) with ordinality e
  ), o as (
    select d.value ->> 'lambda' as lambda, d.place, d.value from d
    union all
    select d.value ->> 'lambda', concat_ws(' ', d.place, f.key, i.ordinality), i.value
      from d cross join json_each(d.value) f
           cross join json_array_elements(
             case json_typeof(f.value) when 'array' then f.value
                                       else json_build_array(f.value) end) with ordinality i
     where json_typeof(i.value) = 'object')
  select o.lambda, k.key
    from o cross join json_object_keys(o.value) as k (key)
   group by o.lambda, o.place, k.key having count(*) > 1
$$;
comment on function tuskline_core.doubled_fields(json) is
  'Fields that an object of the definitions has twice, without those of payloads.';

create or replace function tuskline_core.check_definitions(p_definitions jsonb) returns void
language plpgsql stable as $$
declare
  v_wrong text := case
    when jsonb_typeof(p_definitions) is distinct from 'array'
         or jsonb_array_length(p_definitions) not between 1 and 1000
      then 'definitions must be an array of 1 to 1000 objects'
    when exists (select from jsonb_array_elements(p_definitions) e
                  where jsonb_typeof(e.value -> 'lambda') is distinct from 'string')
      then 'each definition must be an object with the name of its lambda'
    when (select count(*) <> count(distinct e.value ->> 'lambda')
            from jsonb_array_elements(p_definitions) e)
      then 'each lambda must be defined once'
    when exists (select from jsonb_array_elements(p_definitions) e
                        cross join unnest('{limits,gates,schedules}'::text[]) as p (part)
                  where jsonb_typeof(e.value -> p.part) <> 'array')
      then 'limits, gates and schedules must be arrays of objects'
  end;
begin
  v_wrong := coalesce(v_wrong, (
    select format('%s of lambda %s ', d.part, d.lambda) || case
             when jsonb_typeof(d.item) <> 'object' then 'must be an object'
             when jsonb_typeof(d.item) = 'object' and d.unknown is null and d.part = 'settings'
               then 'must be texts, numbers, true or false'
             when d.unknown is not null
               then format('must not have the field %L; known are %s', left(d.unknown, 80),
                           array_to_string(d.fields, ', '))
             else 'must have a name' end
      from tuskline_core.fields_of_definitions(p_definitions) d
     where jsonb_typeof(d.item) <> 'object' or d.unknown is not null
        or d.part = 'settings' and exists (
             select from jsonb_each(d.item) s
              where s.key not in ('order', 'unique', 'breaker', 'limits', 'gates', 'schedules')
                and jsonb_typeof(s.value) in ('object', 'array'))
        or d.part = 'schedules' and jsonb_typeof(d.item -> 'name') is distinct from 'string'
     limit 1), (
    select format('%s of lambda %s must differ in scope', d.part, d.lambda)
      from tuskline_core.fields_of_definitions(p_definitions) d
     where d.part in ('limits', 'gates', 'schedules')
     group by d.lambda, d.part
    having count(*) > (
      select count(*) from jsonb_object_keys(tuskline_core.parts_of(
               jsonb_build_object(d.part, jsonb_agg(d.item)))))
     limit 1));
  if v_wrong is not null then
    raise exception using errcode = 'TK009', message = tuskline_core.message_of('TK009',
      'invalid_setting: ' || v_wrong);
  end if;
end $$;
comment on function tuskline_core.check_definitions(jsonb) is
  'Refuses (TK009) definitions of a wrong form: no array, an unknown field, a part given twice.';

-- Each object of the definitions, with the fields that it may have and one that is unknown. The
-- settings of a lambda are columns of its table.
--
-- The paths are strict: a lax path takes the objects of an array for the array.
create or replace function tuskline_core.fields_of_definitions(p_definitions jsonb)
returns table (lambda text, part text, item jsonb, fields text[], unknown text)
language sql stable as $$
  select e.value ->> 'lambda', f.part, i.item, f.fields,
         case when jsonb_typeof(i.item) = 'object' then (
           select k.key from jsonb_object_keys(i.item) as k (key)
            where k.key <> all (f.fields) limit 1) end
    from jsonb_array_elements(p_definitions) e
         cross join (values
           ('settings', '$', '{lambda}' || array(
             select a.attname::text from pg_attribute a
              where a.attrelid = 'tuskline.lambda'::regclass and a.attnum > 0
                and not a.attisdropped
                and a.attname <> all ('{name,defined_by,created_at,altered_at}')
              order by a.attnum) || '{order,unique,breaker,limits,gates,schedules}'),
           ('order', 'strict $.order ? (@ != null)', '{on_failure}'),
           ('unique', 'strict $.unique ? (@ != null)', '{scope,outcome,period}'),
           ('breaker', 'strict $.breaker ? (@ != null)',
             '{failures,window,share,probe_after}'),
           ('limits', 'strict $.limits[*]',
             '{max_concurrency,per_second,collection,priority,by_key,burst,fair}'),
           ('gates', 'strict $.gates[*]', '{action,collection,priority,until,for,reason}'),
           ('schedules', 'strict $.schedules[*]', '{name,cron,payload,zone,collection,priority,'
             'missed,missed_most,grace,overlap,starts_at,ends_at}')) as f (part, path, fields)
         cross join jsonb_path_query(e.value, f.path::jsonpath, silent => true) as i (item)
$$;
comment on function tuskline_core.fields_of_definitions(jsonb) is
  'Returns the objects of definitions with the fields that each may have and one that is unknown.';

create or replace function tuskline_core.version_of(p_version text) returns integer[]
language plpgsql immutable as $$
begin
  if p_version !~ '^[0-9]{1,9}([.][0-9]{1,9}){0,5}([-+].*)?$' then
    raise exception using errcode = 'TK009', message = tuskline_core.message_of('TK009',
      format('invalid_setting: version must be numbers with dots, as 1.4.2, got %L',
             left(p_version, 80)));
  end if;
  return coalesce(string_to_array(substring(p_version from '^[0-9.]+'), '.')::integer[], '{}');
end $$;
comment on function tuskline_core.version_of(text) is
  'Returns the numbers of a version as 1.4.2, to be compared; none for null.';

-- The settings and parts of a lambda as they are now, by the keys of parts_of().
create or replace function tuskline_core.settings_of(p_lambda text) returns jsonb
language sql stable as $$
  select (select to_jsonb(l) - '{name,defined_by,created_at,altered_at}'::text[]
            from tuskline.lambda l where l.name = p_lambda)
         || coalesce(jsonb_object_agg(s.key, s.value), '{}')
    from (select tuskline_core.key_of_limit(r) as key,
                 jsonb_strip_nulls(jsonb_build_object(
                   'max_concurrency', r.max_concurrency, 'per_second', r.per_second,
                   'burst', r.burst, 'fair', nullif(r.fair, false),
                   'on_failure', r.on_failure)) as value
            from tuskline.task_limit r
           where r.lambda = p_lambda and r.dropped_at is null and r.reason is null
          union all
          select concat_ws(' ', 'gate', tuskline_core.scope_of_part(to_jsonb(g))),
                 jsonb_strip_nulls(jsonb_build_object(
                   'action', g.action, 'until', g.until, 'reason', g.reason))
            from tuskline.gate g where g.lambda = p_lambda and g.opened_at is null
          union all
          select 'unique', jsonb_strip_nulls(jsonb_build_object(
                   'scope', u.scope, 'outcome', u.outcome, 'period', u.period))
            from tuskline.unique_policy u where u.lambda = p_lambda
          union all
          select 'breaker', jsonb_build_object('failures', b.failures, 'window', b.span,
                                               'share', b.share, 'probe_after', b.probe_after)
            from tuskline.breaker b where b.lambda = p_lambda
          union all
          select 'schedule ' || p.name,
                 jsonb_strip_nulls(jsonb_build_object(
                   'cron', p.cron, 'zone', p.zone, 'payload', p.payload,
                   'collection', p.collection, 'priority', p.priority, 'missed', p.missed,
                   'missed_most', p.missed_max, 'grace', p.grace, 'overlap', p.overlap,
                   'starts_at', p.starts_at, 'ends_at', p.ends_at))
            from tuskline.periodic p where p.lambda = p_lambda) s
$$;
comment on function tuskline_core.settings_of(text) is
  'Returns the settings, limits, gates and schedules of a lambda as they are now.';
