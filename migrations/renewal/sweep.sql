-- Drops the functions that this transaction has not written, then restores the saved grants.
--
-- Such a function has left the set, or is the old signature of one that gained a parameter. An old
-- signature would make each call ambiguous. Functions with dependent objects stay.
-- A function that it wrote has an age of 0, or less if a subtransaction wrote it.
-- The functions of segments and queues stay: each claim and each result calls them, and install.sql
-- writes them in place.
-- The grants that remember.sql saved are restored by name, for every signature of that name. The
-- grant on a column that has gone goes with it.
do $$
declare
  r record;
  f record;
begin
  for r in select p.oid::regprocedure as name
             from pg_proc p
            where p.pronamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace)
              and age(p.xmin) > 0
              and p.proname !~ '^(pop|(pop|take|end)_[0-9]+)$'
              and not exists (
                select from pg_depend d
                 where d.refclassid = 'pg_proc'::regclass and d.refobjid = p.oid) loop
    execute format('drop routine %s', r.name);
  end loop;
  for r in select * from jsonb_to_recordset(current_setting('tuskline.grants')::jsonb)
                     as g (name text, attribute text, kind text, privilege text,
                           grantee text) loop
    for f in select case r.kind when 'function' then 'routine' else 'table' end as kind, o.name
               from (select 'function' as kind, p.oid::regprocedure::text as name
                       from pg_proc p
                      where p.pronamespace in (
                              'tuskline'::regnamespace, 'tuskline_core'::regnamespace)
                        and p.proname = r.name
                     union all
                     select 'view', c.oid::regclass::text
                       from pg_class c
                      where c.relnamespace in (
                              'tuskline'::regnamespace, 'tuskline_core'::regnamespace)
                        and c.relname = r.name
                        and (r.attribute is null or exists (
                          select from pg_attribute t
                           where t.attrelid = c.oid and t.attname = r.attribute
                             and not t.attisdropped))) o
              where o.kind = r.kind loop
      execute format('grant %s%s on %s %s to %s', r.privilege,
        ' (' || quote_ident(r.attribute) || ')', f.kind, f.name, r.grantee);
    end loop;
  end loop;
end $$;
