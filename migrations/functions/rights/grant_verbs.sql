-- Grants the verbs and views of the manifest to each group of roles that exists.
--
-- migrate calls it, so a group has the verbs of a new version at once. A role with CREATEROLE makes
-- the groups: tuskline roles --print. Then the owner of the schema migrates or calls this.
-- A privilege that the manifest does not name is revoked from a group. Give more to your own roles.
-- A role of such a name that can log in is no group: it keeps what it has.
-- PUBLIC gets and loses what the manifest says, too: a restore where a group is missing skips each
-- revoke from PUBLIC that stands beside a grant to that group.
-- Returns the groups that exist.
-- Guarantees: a second call changes nothing, so no plan is made again.
create or replace function tuskline.grant_verbs() returns text[]
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_groups text[] := array(
    select distinct r.rolname::text
      from tuskline_core.wanted_grants() w join pg_roles r on r.rolname = w.grantee
     where not r.rolcanlogin order by 1);
  r record;
begin
  if exists (select from tuskline_core.wrong_rights()) then
    perform tuskline_core.close_functions();
  end if;
  -- Revokes come first: that of a privilege on a table takes those on its columns along.
  for r in select f.* from tuskline_core.found_grants() f
            where f.grantee = any (v_groups)
              and (f.grantee, f.privilege) not in (select * from tuskline_core.wanted_grants())
            order by f.grantee, f.privilege loop
    execute format('revoke %s from %I', r.privilege, r.grantee);
  end loop;
  for r in select w.* from tuskline_core.wanted_grants() w
            where w.grantee = any (v_groups)
              and (w.grantee, w.privilege) not in (select * from tuskline_core.found_grants())
            order by w.grantee, w.privilege loop
    execute format('grant %s to %I', r.privilege, r.grantee);
  end loop;
  return v_groups;
end $$;
comment on function tuskline.grant_verbs() is
  'Gives each group of roles that exists (tuskline_scheduler, _worker, _operator, _team, _viewer, '
  '_monitor) its verbs and views, and no others. Returns these groups.';

-- Lists the privileges that the owner of the schema has granted to the groups, as wanted_grants().
create or replace function tuskline_core.found_grants()
returns table (grantee text, privilege text)
language sql stable set search_path = pg_catalog, pg_temp as $$
  with s as (
    select n.oid from pg_namespace n where n.nspname in ('tuskline', 'tuskline_core'))
  select r.rolname::text, lower(a.privilege_type) || ' on ' || o.name
    from (select n.nspacl as acl, format('schema %s', n.oid::regnamespace) as name
            from pg_namespace n join s on s.oid = n.oid
          union all
          select p.proacl, format('function %s', p.oid::regprocedure)
            from pg_proc p join s on s.oid = p.pronamespace
          union all
          select c.relacl, format('%s %s', case c.relkind when 'S' then 'sequence' else 'table' end,
                                  c.oid::regclass)
            from pg_class c join s on s.oid = c.relnamespace) o
         cross join lateral aclexplode(o.acl) a
         join pg_roles r on r.oid = a.grantee
   where pg_get_userbyid(a.grantor) = current_user and starts_with(r.rolname, 'tuskline_')
  union all
  select r.rolname::text, format('%s (%s) on table %s', lower(a.privilege_type),
                                 quote_ident(t.attname), c.oid::regclass)
    from pg_class c
         join s on s.oid = c.relnamespace
         join pg_attribute t on t.attrelid = c.oid and t.attacl is not null and not t.attisdropped
         cross join lateral aclexplode(t.attacl) a
         join pg_roles r on r.oid = a.grantee
   where pg_get_userbyid(a.grantor) = current_user and starts_with(r.rolname, 'tuskline_')
$$;
comment on function tuskline_core.found_grants() is
  'Privileges that the current role has granted to roles named tuskline_..., as GRANT names them.';
