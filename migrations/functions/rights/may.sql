-- Decides whether the caller may do something with a lambda.
--
-- A lambda without an owner is open: every role that may execute a verb uses it. A lambda with an
-- owner is closed. The rights on it are:
--
--   right      allows
--   schedule   to schedule its tasks, and to cancel one
--   work       to register a worker for it, to claim its tasks and to report results
--   inspect    to read payloads, results, errors, keys and checkpoints
--   operate    to cancel, retry, redrive, gate, throttle and unblock
--   own        all of these; to define, alter, limit, purge, erase and grant
--
-- The owner of the schema has every right. A right on * is a right on every closed lambda.

-- Tells whether any role has a right. note_rights writes it again when that changes.
--
-- Planner: a plan contains the constant, and is made again after a change. So rights cost nothing
-- until they are used.
create or replace function tuskline_core.rights_in_use() returns boolean
language sql immutable as 'select false';
comment on function tuskline_core.rights_in_use() is
  'Whether some role has a right on a lambda. A constant, written by note_rights().';

-- Writes rights_in_use again. Each change of a right calls it, and each migration.
--
-- Executors that registered before V10 have no queues, so the first right gives them theirs.
-- Locks: the caller has the guard of queues.
create or replace function tuskline_core.note_rights() returns void
language plpgsql as $$
declare
  v_used boolean := exists (select from tuskline.lambda_grant);
begin
  if v_used = tuskline_core.rights_in_use() then return; end if;
  update tuskline_core.live_executor a
     set role = e.role,
         queues = array(select q.queue_id from tuskline.queue q where q.lambda = any (e.lambdas))
    from tuskline.executor e
   where e.executor_id = a.executor_id and a.queues is null;
  execute format('create or replace function tuskline_core.rights_in_use() returns boolean '
                 'language sql immutable as %L', 'select ' || v_used);
end $$;
comment on function tuskline_core.note_rights() is
  'Writes rights_in_use() again if rights come into use, or are no longer used.';

-- Tells whether the caller has a right on a closed lambda.
--
-- The first statement is the plain case: one probe of the primary key.
create or replace function tuskline_core.has_right(p_lambda text, p_privilege text)
returns boolean language plpgsql stable as $$
declare
  v_caller name := tuskline_core.caller();
begin
  if exists (select from tuskline.lambda_grant g
              where g.lambda = p_lambda and g.role = v_caller and g.privilege = p_privilege)
     and tuskline_core.acts_as(v_caller) then
    return true;
  end if;
  return tuskline_core.acts_as(current_user)
    or exists (select from tuskline.lambda_grant g
                where g.lambda in (p_lambda, '*')
                  and (g.privilege = 'own' or g.privilege = p_privilege)
                  and tuskline_core.acts_as(g.role));
end $$;
comment on function tuskline_core.has_right(text, text) is
  'Whether the caller has a right on a closed lambda, by itself or by a role that it inherits.';

create or replace function tuskline_core.is_closed(p_lambda text) returns boolean
language sql stable as $$
  select exists (
    select from tuskline.queue q where q.lambda = p_lambda and q.schedulers is not null)
$$;
comment on function tuskline_core.is_closed(text) is 'Whether some role owns the lambda.';

create or replace function tuskline.may(p_lambda text, p_privilege text) returns boolean
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  if p_privilege = any ('{schedule,work,inspect,operate,own}') then
    return not tuskline_core.rights_in_use() or not tuskline_core.is_closed(p_lambda)
        or tuskline_core.has_right(p_lambda, p_privilege);
  end if;
  perform tuskline_core.refuse_privilege(p_privilege);
end $$;
comment on function tuskline.may(text, text) is
  'Whether the caller has a right on a lambda: schedule, work, inspect, operate or own. True for a '
  'lambda that no role owns.';

-- Lists the closed lambdas on which the caller lacks a right: for statements on many rows.
--
-- PUBLIC may execute it, because a view calls it with the rights of its reader.
-- Planner: it reads each grant once, and both looks into m are hashed or constant. One condition for
-- both compares each lambda with each: 6 ms in place of 0.6 for 300 lambdas of 400 roles.
-- Parallel restricted: in a worker process, PostgreSQL before 17.1 does not know the set role.
create or replace function tuskline.barred(p_privilege text) returns text[]
language plpgsql stable parallel restricted security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  if not tuskline_core.rights_in_use() or tuskline_core.acts_as(current_user) then
    return '{}';
  end if;
  return array(
    with g as materialized (
      select a.lambda, a.role, a.privilege from tuskline.lambda_grant a
       where a.privilege = 'own' or a.privilege = p_privilege
    ), m as materialized ( -- lambdas on which the caller has the right; asks for each role once
      select distinct g.lambda from g
       where g.role in (select d.role from (select distinct g.role from g offset 0) d
                         where tuskline_core.acts_as(d.role)))
    select distinct g.lambda from g
     where g.privilege = 'own' and g.lambda <> '*'
       and not exists (select from m where m.lambda = '*')
       and g.lambda not in (select m.lambda from m));
end $$;
comment on function tuskline.barred(text) is
  'The closed lambdas on which the caller lacks a right.';

-- Refuses the caller unless it has one of the rights on the lambda.
create or replace function tuskline_core.need(p_lambda text, variadic p_privileges text[])
returns void language plpgsql stable as $$
begin
  if tuskline_core.rights_in_use() and tuskline_core.is_closed(p_lambda)
     and not exists (select from unnest(p_privileges) as u (privilege)
                      where tuskline_core.has_right(p_lambda, u.privilege)) then
    perform tuskline_core.refuse_right(p_lambda, p_privileges);
  end if;
end $$;
comment on function tuskline_core.need(text, text[]) is
  'Refuses (42501) the caller unless it has one of these rights on the lambda.';

create or replace function tuskline_core.need_each(p_lambdas text[], p_privilege text)
returns void language plpgsql stable as $$
begin
  if tuskline_core.rights_in_use() then
    perform tuskline_core.need(u.lambda, p_privilege)
       from (select distinct unnest(p_lambdas) as lambda) u;
  end if;
end $$;
comment on function tuskline_core.need_each(text[], text) is
  'Refuses (42501) the caller unless it has the right on each of these lambdas.';

-- Refuses the caller unless it has one of the rights on the lambda of a task. An unknown task
-- passes: the verb tells that itself.
create or replace function tuskline_core.need_on_task(p_task bigint, variadic p_privileges text[])
returns void language plpgsql stable as $$
begin
  if tuskline_core.rights_in_use() then
    perform tuskline_core.need(
      (select t.lambda from tuskline_core.all_tasks t where t.id = p_task), variadic p_privileges);
  end if;
end $$;
comment on function tuskline_core.need_on_task(bigint, text[]) is
  'Refuses (42501) the caller unless it has one of these rights on the lambda of the task.';

-- Words the refusal of a caller that lacks a right, with the grant that would change it.
--
-- Its SQLSTATE is that of PostgreSQL for a missing privilege: drivers know it.
create or replace function tuskline_core.refusal_of_right(p_lambda text, p_privileges text[])
returns text[] language sql stable as $$
  select array[
    '42501',
    tuskline_core.message_of('no_right:', format('role %s has no right to %s %s',
      tuskline_core.caller(), array_to_string(p_privileges, ' or '),
      coalesce(p_lambda, 'every closed lambda'))),
    case
      when current_setting('role') = 'none' and current_setting('is_superuser') = 'on'
        then 'the login of a superuser has no right: set role ...'
      else format('%s can: select tuskline.grant_lambda(%L, %L, %L)',
                  case when tuskline_core.is_closed(p_lambda) then 'an owner of the lambda'
                       else 'the owner of the schema' end,
                  coalesce(p_lambda, '*'), tuskline_core.caller(), p_privileges[1]) end]
$$;
comment on function tuskline_core.refusal_of_right(text, text[]) is
  'Code, message and hint for a caller that lacks a right. A null lambda: a right on *.';

create or replace function tuskline_core.refuse_right(p_lambda text, p_privileges text[])
returns void language plpgsql stable as $$
declare
  v_said text[] := tuskline_core.refusal_of_right(p_lambda, p_privileges);
begin
  raise exception using errcode = v_said[1], message = v_said[2], hint = v_said[3];
end $$;
comment on function tuskline_core.refuse_right(text, text[]) is
  'Raises 42501: the caller lacks a right on a lambda.';

create or replace function tuskline_core.refuse_privilege(p_privilege text) returns void
language plpgsql immutable as $$
begin
  raise exception using errcode = 'TK056', message = tuskline_core.message_of('TK056', format(
    'invalid_grant: a right is schedule, work, inspect, operate or own, got %s',
    coalesce(quote_literal(left(p_privilege, 80)), 'null')));
end $$;
comment on function tuskline_core.refuse_privilege(text) is
  'Refuses (TK056) a privilege that is not one.';
