-- Reads JSON from its text. Marks the parameter that gets overloads (make_overloads).
--
-- A verb that takes one payload as text has an overload for json and one for jsonb. Triggers,
-- psycopg and SQLAlchemy send these types. SQL chooses the text verb for a literal and for a
-- parameter without a type. Only the text verb may be called without a payload: otherwise such a
-- call would be ambiguous.
--
-- The type json would refuse bad text with an error of its own; this refuses it with TK003.
create or replace function tuskline_core.json_of(p_field text, p_text text) returns json
language plpgsql immutable strict as $$
begin
  return p_text::json;
exception when invalid_text_representation or statement_too_complex then
  raise exception using errcode = 'TK003', message = tuskline_core.message_of('TK003',
    format('invalid_payload: %s must be JSON, got %L', p_field, left(p_text, 80))),
    hint = 'a JSON string stands in double quotes: ''"text"''';
end $$;
comment on function tuskline_core.json_of(text, text) is
  'JSON from its text. Refuses (TK003) text that is not JSON.';

-- Creates the overloads for json and jsonb from the definitions of their verbs.
--
-- An overload is the text of its verb with another type. Copies by hand would drift apart, and a
-- wrapper would cost each insert a call. A parameter behind one with a default must keep its own
-- default, so such a verb gets no overload. The types are constants of this function.
create or replace function tuskline_core.make_overloads() returns void
language plpgsql as $$
declare
  r      record;
  v_name text;
begin
  for r in
    select p.oid, p.proname as verb, f.parameter || ' text' as before,
           f.parameter || ' ' || t.type as after, f.mark, f.parameter || '::json' as read
      from (select 'p_' || u.field as parameter,
                   format('tuskline_core.json_of(%L, p_%s)', u.field, u.field) as mark
              from unnest('{payload,tasks}'::text[]) as u (field)) f
           join pg_proc p
             on p.pronamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace)
            and strpos(p.prosrc, f.mark) > 0 and f.parameter = any (p.proargnames)
           cross join unnest('{json,jsonb}'::text[]) as t (type)
     where strpos(split_part(pg_get_function_arguments(p.oid), f.parameter, 1), 'DEFAULT') = 0
     order by p.oid, t.type
  loop
    execute replace(replace(replace(pg_get_functiondef(r.oid),
      r.before || ' DEFAULT NULL::text', r.before), r.before, r.after), r.mark, r.read);
    v_name := format('tuskline.%s(%s)', r.verb,
      replace(pg_get_function_identity_arguments(r.oid), r.before, r.after));
    execute format('revoke all on function %s from public', v_name);
    execute format('comment on function %s is %L', v_name, obj_description(r.oid, 'pg_proc'));
  end loop;
end $$;
comment on function tuskline_core.make_overloads() is
  'Creates or replaces the json and jsonb overloads of the verbs that take a payload as text.';
