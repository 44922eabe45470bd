-- Binds an executor to the role that registered it, while rights are in use.
--
-- Numbers of executors and fences are consecutive, so a worker can guess those of another. No key
-- is needed against that: each call has a role, and the row of the executor names one.

-- Planner: mostly it reads live_executor alone. Each heartbeat changes a row of executor.
create or replace function tuskline_core.own_executor(p_executor bigint) returns bigint
language plpgsql stable as $$
declare
  v_role name;
begin
  if not tuskline_core.rights_in_use() then return p_executor; end if;
  select a.role into v_role
    from tuskline_core.live_executor a where a.executor_id = p_executor;
  if v_role is null then -- it has ended, or registered before there were rights
    select e.role into v_role from tuskline.executor e where e.executor_id = p_executor;
  end if;
  return case when v_role = tuskline_core.caller() then p_executor end;
end $$;
comment on function tuskline_core.own_executor(bigint) is
  'The number of an executor if the role of the caller registered it, else null.';

-- Negates the fences that are no leases of the executor.
--
-- A negative fence matches no task, so such a result is refused like one that comes late. The
-- order stays, because tasks are parallel to it.
-- p_executor comes from own_executor.
-- Planner: a probe for each lease, by both columns of the key (see drop_leases). Mostly all tasks
-- of a call are of one.
create or replace function tuskline_core.own_fences(p_executor bigint, p_fences bigint[])
returns bigint[] language plpgsql stable as $$
declare
  v_own bigint[];
begin
  if not tuskline_core.rights_in_use() or p_fences is null then return p_fences; end if;
  if p_fences[1] = all (p_fences) then
    perform from tuskline.lease l where l.executor_id = p_executor and l.lease_id = p_fences[1];
    if found then return p_fences; end if;
  else
    v_own := array(
      select u.fence from (select distinct f.fence from unnest(p_fences) as f (fence)) u
       where (select true from tuskline.lease l
               where l.executor_id = p_executor and l.lease_id = u.fence limit 1));
  end if;
  return array(select case when u.fence = any (v_own) then u.fence else -abs(u.fence) end
                 from unnest(p_fences) with ordinality as u (fence, number) order by u.number);
end $$;
comment on function tuskline_core.own_fences(bigint, bigint[]) is
  'The fences; those that are no leases of the executor are negated.';

create or replace function tuskline_core.refuse_claim(p_executor bigint) returns void
language plpgsql stable as $$
begin
  raise exception using errcode = 'insufficient_privilege',
    message = tuskline_core.message_of('no_right:', format('executor %s is of another role than '
      '%s, or has not registered for each queue', p_executor, tuskline_core.caller())),
    hint = 'a worker registers and claims as one role, for its own lambdas';
end $$;
comment on function tuskline_core.refuse_claim(bigint) is
  'Raises 42501: the executor is of another role, or did not register for a queue.';

-- Tells whether the caller may continue with an executor: its role registered it and may still work
-- on each of its lambdas. A heartbeat without that right is no heartbeat.
create or replace function tuskline_core.is_entitled(p_role name, p_lambdas text[]) returns boolean
language sql stable as $$
  select not tuskline_core.rights_in_use()
      or p_role = tuskline_core.caller() and not tuskline.barred('work') && p_lambdas
$$;
comment on function tuskline_core.is_entitled(name, text[]) is
  'Whether the role of the caller registered this executor and may still work on its lambdas.';
