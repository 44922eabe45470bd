-- clear: drops every view and every function that nothing else hangs on. Only run when a function
-- cannot be replaced in place (`create or replace` may not change what a function returns): sessions
-- in the middle of a call would see it vanish for an instant. What others depend on (the trigger's
-- route, the defaults' clock, somebody's own view) stays and is replaced in place.
do $$
declare
  r record;
begin
  for r in select c.oid::regclass as name from pg_class c
            where c.relnamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace) and c.relkind = 'v' order by c.oid desc loop
    execute format('drop view %s', r.name);
  end loop;
  for r in select p.oid::regprocedure as name from pg_proc p
            where p.pronamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace)
              and not exists (select from pg_depend d where d.refclassid = 'pg_proc'::regclass and d.refobjid = p.oid) loop
    execute format('drop routine %s', r.name);
  end loop;
end $$;
