-- Raises a caller's mistake in the one form of all refusals: class TK, a stable name, one line.
--
-- Each function between the mistake and the caller adds a line to the error that people read, and
-- each PERFORM its statement. So a check that verbs call raises by itself, with message_of.
create or replace function tuskline_core.refuse(p_code text, p_text text, p_hint text default null)
returns void language plpgsql immutable as $$
declare
  v_text text := tuskline_core.message_of(p_code, p_text);
begin
  if p_hint is null then raise exception using errcode = p_code, message = v_text; end if;
  raise exception using errcode = p_code, message = v_text, hint = p_hint;
end $$;
comment on function tuskline_core.refuse(text, text, text) is
  'Raises a caller''s mistake under its TK code, as "TK001 stable_name: field, limit, value".';

-- Formats a message as one line, also if it quotes a text with line breaks.
create or replace function tuskline_core.message_of(p_code text, p_text text) returns text
language sql immutable as $$
  select p_code || ' ' || regexp_replace(p_text, '[[:cntrl:]]', '?', 'g')
$$;
comment on function tuskline_core.message_of(text, text) is
  'Message of a refusal: its code and its text, in one line.';

create or replace function tuskline_core.is_name(p_name text) returns boolean
language sql immutable as $$ select p_name ~ '^[a-z][a-z0-9_]{0,62}$' $$;
comment on function tuskline_core.is_name(text) is
  'Whether a text is a valid name of a lambda or a collection. Null for null.';

-- Refuses an invalid name of a lambda or a collection. ASCII only: no two names look alike.
create or replace function tuskline_core.check_name(p_field text, p_name text)
returns void language plpgsql immutable as $$
begin
  if tuskline_core.is_name(p_name) is not true then
    raise exception using errcode = 'TK002', message = tuskline_core.message_of('TK002',
      format('invalid_name: %s must match [a-z][a-z0-9_]{0,62}, got %s',
             p_field, coalesce(quote_literal(left(p_name, 80)), 'null')));
  end if;
end $$;
comment on function tuskline_core.check_name(text, text) is
  'Refuses (TK002) a name outside [a-z][a-z0-9_]{0,62}.';
