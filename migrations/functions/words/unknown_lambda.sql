-- Refuses a lambda that is not defined, and names one that may be meant.

-- Returns the defined lambda that is the nearest to a name: with a character more, less, other, or
-- moved. Null: there is none.
--
-- Two such names are equal when one character of each, or of one, is left out. Only refusals call
-- it: it reads every lambda, 10 ms for 1,000.
create or replace function tuskline_core.near_lambda(p_name text) returns text
language sql stable as $$
  with shorter as (
    select left(p_name, n - 1) || substr(p_name, n + 1) as part
      from generate_series(1, length(p_name) + 1) as n)
  select l.name from tuskline.lambda l
   where length(p_name) > 2 and exists (
     select from generate_series(1, length(l.name) + 1) as n
      where left(l.name, n - 1) || substr(l.name, n + 1) in (select part from shorter))
   order by abs(length(l.name) - length(p_name)), l.name limit 1
$$;
comment on function tuskline_core.near_lambda(text) is
  'The defined lambda of which the name differs in one character. Null: none.';

create or replace function tuskline_core.hint_of_lambda(p_name text) returns text
language sql stable as $$
  select coalesce('did you mean ' || quote_literal(tuskline_core.near_lambda(p_name))
                  || '? else ', '')
         || case when tuskline_core.is_name(p_name)
              then format('define it: select tuskline.define_lambda(%L)', p_name)
              else 'a name matches [a-z][a-z0-9_]{0,62}' end
$$;
comment on function tuskline_core.hint_of_lambda(text) is
  'What to do about a lambda that is not defined.';

create or replace function tuskline_core.refuse_lambda(p_name text) returns void
language plpgsql stable as $$
declare
  v_name text := left(p_name, 80);
begin
  raise exception using errcode = 'TK001', hint = tuskline_core.hint_of_lambda(v_name),
    message = tuskline_core.message_of('TK001',
      format('unknown_lambda: %s is not defined', coalesce(quote_literal(v_name), 'null')));
end $$;
comment on function tuskline_core.refuse_lambda(text) is
  'Refuses (TK001) a lambda that is not defined.';
