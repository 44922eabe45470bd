-- Drops every view.
--
-- migrate runs it only if a function or a view cannot be replaced in place: `create or replace`
-- changes neither the columns of a view nor what a function returns, and such a function cannot be
-- dropped while a view reads it. migrate then drops each such function alone. A function with
-- other dependent objects stays and is replaced in place. Examples are the function of the trigger
-- (route), the clock in column defaults, and functions in a user's own views.
do $$
declare
  r record;
begin
  -- One statement for all: after a restore, a view may be older than a view that it reads.
  for r in select string_agg(c.oid::regclass::text, ', ') as names
             from pg_class c
            where c.relnamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace)
              and c.relkind = 'v'
           having count(*) > 0 loop
    execute format('drop view %s', r.names);
  end loop;
end $$;
