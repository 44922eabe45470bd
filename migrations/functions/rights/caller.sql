-- Tells who calls a verb: the role that the session has set, else the role that it logged in with.
--
-- A security definer function does not see the role with whose rights it was called: its
-- current_user is the owner of the schema, and PostgreSQL shows no other one. A session can set
-- only a role of which its login is a member, so neither can be forged.
--
--   the call comes from                       the caller is
--   a login of its own                        the login
--   a pooler or a gateway with one login      the role that it sets for each transaction
--   postgres_fdw                              the user of the user mapping
--   a security definer function of a team     the role of the session, as above. The owner of that
--                                             function needs only execute on the verb
--
-- Planner: one expression, so it is inlined.
create or replace function tuskline_core.caller() returns name
language sql stable as $$
  select case current_setting('role') when 'none' then session_user
              else current_setting('role')::name end
$$;
comment on function tuskline_core.caller() is
  'The role for which rights are checked: the role that the session has set, else its login.';

-- Tells whether the caller has the privileges of a role, by itself or because it inherits them.
--
-- The login of a superuser has none until it sets a role. ANALYZE, autovacuum, REINDEX and REFRESH
-- run functions of the owner of a table in a session of another login, mostly a superuser. A role
-- that owns a table could borrow that login: it puts a verb into an index expression and waits for
-- autovacuum. Such functions cannot set a role.
-- A role that was dropped has none. A gateway's login is NOINHERIT, so it has none before it sets a
-- role.
create or replace function tuskline_core.acts_as(p_role name) returns boolean
language sql stable as $$
  select pg_has_role(to_regrole(quote_ident(tuskline_core.caller())),
                     to_regrole(quote_ident(p_role)), 'usage') is true
     and (current_setting('role') <> 'none' or current_setting('is_superuser') = 'off')
$$;
comment on function tuskline_core.acts_as(name) is
  'Whether the caller has the privileges of a role. False for the login of a superuser.';
