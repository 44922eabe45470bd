-- Saves the grants on functions, views and their columns before the functions are replaced.
--
-- A function that is dropped and created again loses its grants. The list is kept in a setting of
-- this transaction (tuskline.grants); sweep.sql reads it and grants them again.
select set_config('tuskline.grants', coalesce(jsonb_agg(g)::text, '[]'), true)
  from (select p.proname as name, null as attribute, 'function' as kind,
               a.privilege_type as privilege, a.grantee::regrole::text as grantee
          from pg_proc p, aclexplode(p.proacl) a
         where p.pronamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace)
           and a.grantee not in (0, p.proowner)
        union
        select c.relname, null, 'view', a.privilege_type, a.grantee::regrole::text
          from pg_class c, aclexplode(c.relacl) a
         where c.relnamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace)
           and c.relkind = 'v' and a.grantee not in (0, c.relowner)
        union
        select c.relname, t.attname, 'view', a.privilege_type, a.grantee::regrole::text
          from pg_class c
               join pg_attribute t on t.attrelid = c.oid and not t.attisdropped
               cross join aclexplode(t.attacl) a
         where c.relnamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace)
           and c.relkind = 'v' and a.grantee not in (0, c.relowner)) g;
