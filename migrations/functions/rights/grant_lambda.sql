-- Grants rights on a lambda to a role, or revokes them.
--
-- The first owner closes the lambda: from then on only roles with a right use it. So grant the
-- other rights before own, or in one transaction. The lambda * stands for every closed lambda, also
-- those that are closed later; only the owner of the schema grants on it.
--
-- A right is stored by the name of its role, so a dump can be restored where the role is missing.
-- Returns true if something has changed.
-- Locks: the guard of queues, so changes of rights run one after the other.
create or replace function tuskline.grant_lambda(
  p_lambda text, p_role text, variadic p_privileges text[])
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now timestamptz := tuskline.clock();
begin
  perform tuskline_core.check_grant(p_lambda, p_privileges);
  perform tuskline_core.check_grantee(p_role);
  insert into tuskline.lambda_grant (lambda, role, privilege, granted_at)
  select p_lambda, p_role, u.privilege, v_now from unnest(p_privileges) as u (privilege)
  on conflict do nothing;
  if not found then return false; end if;
  perform tuskline_core.note_grants(p_lambda);
  insert into tuskline.audit (at, verb, subject, detail)
  values (v_now, 'grant_lambda', p_lambda,
          format('%s to %s', array_to_string(p_privileges, ', '), p_role));
  return true;
end $$;
comment on function tuskline.grant_lambda(text, text, text[]) is
  'Grants rights on a lambda to a role. The first own closes the lambda. *: every closed lambda. '
  'True: something has changed. Audited.';

create or replace function tuskline.revoke_lambda(
  p_lambda text, p_role text, variadic p_privileges text[])
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now timestamptz := tuskline.clock();
begin
  perform tuskline_core.check_grant(p_lambda, p_privileges);
  delete from tuskline.lambda_grant g
   where g.lambda = p_lambda and g.role = p_role and g.privilege = any (p_privileges);
  if not found then return false; end if;
  perform tuskline_core.note_grants(p_lambda);
  insert into tuskline.audit (at, verb, subject, detail)
  values (v_now, 'revoke_lambda', p_lambda,
          format('%s from %s', array_to_string(p_privileges, ', '), p_role));
  return true;
end $$;
comment on function tuskline.revoke_lambda(text, text, text[]) is
  'Revokes rights on a lambda from a role, which need not exist any more. Only the owner of the '
  'schema revokes the last own, which opens the lambda. True: something has changed. Audited.';

-- Refuses invalid arguments, and a caller that does not own the lambda.
--
-- Above READ COMMITTED the snapshot may lack the change for which this one has waited, and
-- note_rights would open what that one closed.
create or replace function tuskline_core.check_grant(p_lambda text, p_privileges text[])
returns void language plpgsql as $$
declare
  v_unknown text := (
    select u.privilege from unnest(p_privileges) as u (privilege)
     where (u.privilege = any ('{schedule,work,inspect,operate,own}')) is not true limit 1);
begin
  if v_unknown is not null or array_position(p_privileges, null) > 0
     or coalesce(cardinality(p_privileges), 0) = 0 then
    perform tuskline_core.refuse_privilege(v_unknown);
  elsif current_setting('transaction_isolation') <> 'read committed' then
    perform tuskline_core.refuse('TK056',
      'invalid_grant: rights change at read committed only, got '
        || current_setting('transaction_isolation'));
  end if;
  perform tuskline_core.lock_guard('queue');
  if p_lambda is distinct from '*'
     and not exists (select from tuskline.lambda l where l.name = p_lambda) then
    perform tuskline_core.refuse_lambda(p_lambda);
  elsif not tuskline_core.acts_as(current_user)
    and not (tuskline_core.is_closed(p_lambda) and tuskline_core.has_right(p_lambda, 'own')) then
    perform tuskline_core.refuse_right(nullif(p_lambda, '*'), '{own}');
  end if;
end $$;
comment on function tuskline_core.check_grant(text, text[]) is
  'Refuses (42501, TK001, TK056) a change of rights that is invalid or not the caller''s.';

-- Refuses a grant to a role that is missing or a superuser.
--
-- Where a superuser owns the schema, rights protect nothing: see acts_as.
create or replace function tuskline_core.check_grantee(p_role text) returns void
language plpgsql as $$
begin
  if p_role = 'public' then
    perform tuskline_core.refuse('TK056', 'invalid_grant: a right belongs to one role, got public',
      'a lambda that every role may use has no owner');
  elsif p_role is null or not exists (select from pg_roles r where r.rolname = p_role) then
    perform tuskline_core.refuse('TK056', format('invalid_grant: there is no role %s',
      coalesce(quote_literal(left(p_role, 80)), 'null')), 'create role ...');
  elsif (select r.rolsuper from pg_roles r where r.rolname = p_role) then
    perform tuskline_core.refuse('TK056', format('invalid_grant: role %s is a superuser', p_role),
      'grant to an ordinary role, and set it');
  elsif (select r.rolsuper from pg_roles r where r.rolname = current_user) then
    perform tuskline_core.refuse('TK056', format(
      'invalid_grant: the owner of the schema, %s, is a superuser', current_user),
      'rights protect nothing there: migrate as an ordinary role');
  end if;
end $$;
comment on function tuskline_core.check_grantee(text) is
  'Refuses (TK056) a grant to a role that is missing or a superuser, or in the schema of one.';

-- Copies the roles that may schedule into the queues of a lambda: null if no role owns it.
create or replace function tuskline_core.note_grants(p_lambda text) returns void
language plpgsql as $$
declare
  v_roles text[] := (
    select array_agg(distinct g.role::text) filter (where g.privilege in ('schedule', 'own'))
      from tuskline.lambda_grant g
     where g.lambda = p_lambda having bool_or(g.privilege = 'own'));
begin
  if v_roles is null and tuskline_core.is_closed(p_lambda)
     and not tuskline_core.acts_as(current_user) then
    raise exception using errcode = 'insufficient_privilege',
      message = tuskline_core.message_of('no_right:', format(
        'without an owner %s would be open to every role', p_lambda)),
      hint = 'grant own to another role first; only the owner of the schema opens a lambda';
  end if;
  update tuskline.queue set schedulers = v_roles
   where lambda = p_lambda and schedulers is distinct from v_roles;
  perform tuskline_core.note_rights();
end $$;
comment on function tuskline_core.note_grants(text) is
  'Copies the roles that may schedule a lambda into its queues, if some role owns it.';

create or replace view tuskline.lambda_grants as
select g.lambda, g.role, g.privilege, g.granted_by, g.granted_at,
       not exists (select from pg_catalog.pg_roles r where r.rolname = g.role) as role_is_gone
  from tuskline.lambda_grant g;
comment on view tuskline.lambda_grants is
  'Rights of roles on lambdas. role_is_gone: no such role exists. A new role of that name would '
  'have the right, so revoke it.';
