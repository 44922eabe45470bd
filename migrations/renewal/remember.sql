-- remember: before the functions are renewed, note who was granted what on functions and views, so
-- that a function that has to be dropped and made anew does not lose its grants. Kept in a setting
-- of this transaction; `sweep` reads it.
select set_config('tuskline.grants', coalesce(jsonb_agg(g)::text, '[]'), true)
  from (select p.proname as name, 'function' as kind, a.privilege_type as privilege, a.grantee::regrole::text as grantee
          from pg_proc p, aclexplode(p.proacl) a
         where p.pronamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace) and a.grantee not in (0, p.proowner)
        union
        select c.relname, 'view', a.privilege_type, a.grantee::regrole::text
          from pg_class c, aclexplode(c.relacl) a
         where c.relnamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace) and c.relkind = 'v' and a.grantee not in (0, c.relowner)) g;
