-- Drops every view, and every function on which no object depends.
--
-- migrate runs it only if a function cannot be replaced in place: `create or replace` cannot change
-- what a function returns. A session in the middle of a call may miss a function for a moment.
-- Functions with dependent objects stay and are replaced in place. Examples are the function of the
-- trigger (route), the clock in column defaults, and functions in a user's own views.
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
  for r in select p.oid::regprocedure as name
             from pg_proc p
            where p.pronamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace)
              and not exists (
                select from pg_depend d
                 where d.refclassid = 'pg_proc'::regclass and d.refobjid = p.oid) loop
    execute format('drop routine %s', r.name);
  end loop;
end $$;
