-- refuse: every mistake of a caller ends here, in one form: class TK, a stable name, one line.
create or replace function tuskline.refuse(p_code text, p_text text, p_hint text default null)
returns void language plpgsql immutable as $$
declare
  -- What was got may hold line breaks; the message is one line all the same.
  v_text text := p_code || ' ' || regexp_replace(p_text, '[[:cntrl:]]', '?', 'g');
begin
  if p_hint is null then raise exception using errcode = p_code, message = v_text; end if;
  raise exception using errcode = p_code, message = v_text, hint = p_hint;
end $$;
comment on function tuskline.refuse(text, text, text) is
  'Raises a caller''s mistake under its TK code, as "TK001 stable_name: field, limit, what was got".';

-- check_name: names of lambdas and collections. ASCII only, so that no two spellings look alike.
create or replace function tuskline.check_name(p_field text, p_name text)
returns void language plpgsql immutable as $$
begin
  if p_name is null or p_name !~ '^[a-z][a-z0-9_]{0,62}$' then
    perform tuskline.refuse('TK002', format('invalid_name: %s must match [a-z][a-z0-9_]{0,62}, got %s',
      p_field, coalesce(quote_literal(left(p_name, 80)), 'null')));
  end if;
end $$;
comment on function tuskline.check_name(text, text) is 'Refuses (TK002) a name outside [a-z][a-z0-9_]{0,62}.';
