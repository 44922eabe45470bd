-- Registers a worker process: one row per incarnation.
--
-- A restarted process never inherits the leases of its predecessor, also with the same host and
-- pid.
--
-- p_former: the number that this very process had before, under which it no longer runs anything.
-- That executor ends here, so its tasks do not wait for its lease to expire. Its host and pid must
-- be equal: a restored copy may have given the number to another process. While rights are in use,
-- the same role must have registered it.
create or replace function tuskline.register_executor(
  p_host text, p_pid integer, p_lambdas text[], p_sdk_version text, p_lease interval,
  p_installation text default 'default', p_connections integer default null,
  p_former bigint default null)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now     timestamptz := tuskline.clock();
  v_unknown text := (
    select l from unnest(p_lambdas) as l
     where l not in (select name from tuskline.lambda) limit 1);
  v_longest interval;
  v_id      bigint;
  v_role    name;
begin
  -- Locks the row until the commit. Race: tuskline.adopt either waits for it and then ends this
  -- worker, or has committed, and check_installation reads the new name.
  select i.max_lease into v_longest from tuskline.installation i for share;
  perform tuskline.check_installation(p_installation);
  if v_unknown is not null or coalesce(cardinality(p_lambdas), 0) = 0 then
    perform tuskline_core.refuse_lambda(coalesce(v_unknown, ''));
  end if;
  if p_lease is null or p_lease not between '100 milliseconds' and v_longest then
    perform tuskline_core.refuse('TK010',
      format('invalid_lease: must be 100 ms to %s, got %s', v_longest,
             coalesce(p_lease::text, 'null')));
  end if;
  if p_connections is not null and p_connections not between 1 and 10000 then
    perform tuskline_core.refuse('TK009',
      format('invalid_setting: connections must be 1 to 10000, got %s', p_connections));
  end if;
  if not exists (select from tuskline_core.verified_incarnation) then
    perform tuskline_core.refuse_unverified();
  end if;
  perform tuskline_core.need_each(p_lambdas, 'work');
  update tuskline.executor e
     set ended_at = v_now, end_reason = 'replaced', expires_at = v_now, draining = true
   where e.executor_id = tuskline_core.own_executor(p_former) and e.ended_at is null
     and e.host = left(coalesce(p_host, '?'), 255) and e.pid = coalesce(p_pid, 0);
  if found then
    delete from tuskline_core.live_executor a where a.executor_id = p_former;
  end if;
  insert into tuskline.executor
    (executor_id, host, pid, lambdas, sdk_version, lease, connections, started_at, beat_at,
     expires_at)
  values
    (nextval('tuskline.executor_seq'), left(coalesce(p_host, '?'), 255), coalesce(p_pid, 0),
     p_lambdas, left(coalesce(p_sdk_version, '?'), 80), p_lease, p_connections, v_now, v_now,
     v_now + p_lease)
  returning executor_id, role into v_id, v_role;
  insert into tuskline_core.live_executor (executor_id, lease, role, queues)
  values (v_id, p_lease, v_role,
          array(select q.queue_id from tuskline.queue q where q.lambda = any (p_lambdas)));
  return v_id;
end $$;
comment on function tuskline.register_executor(
  text, integer, text[], text, interval, text, integer, bigint) is
  'Registers a worker process and returns its number. Its tasks run elsewhere after it is silent '
  'for p_lease. p_connections: its most connections. p_former: its number until now, which ends.';

create or replace function tuskline.end_executor(p_executor bigint) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now timestamptz := tuskline.clock();
begin
  p_executor := tuskline_core.own_executor(p_executor);
  update tuskline.executor
     set ended_at = v_now, end_reason = 'stopped', expires_at = v_now, draining = true
   where executor_id = p_executor and ended_at is null;
  delete from tuskline_core.live_executor where executor_id = p_executor;
end $$;
comment on function tuskline.end_executor(bigint) is
  'Ends a worker process in order. The tasks that it still holds may be rescued at once.';

create or replace function tuskline.executor_lambdas(p_lambdas text[])
returns table (lambda text, priority text, queue_id integer, attempt_timeout_ms bigint)
language sql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  select q.lambda, q.priority::text, q.queue_id,
         (1000 * extract(epoch from l.attempt_timeout))::bigint
    from tuskline.queue q join tuskline.lambda l on l.name = q.lambda
   where q.lambda = any (p_lambdas) order by q.lambda, q.priority
$$;
comment on function tuskline.executor_lambdas(text[]) is
  'Queues and attempt timeouts of these lambdas, for their workers.';

-- A column of executor_lambdas would change what that function returns. Then a migration drops
-- it and all views, also where views of the installation depend on them.
create or replace function tuskline.max_attempts(p_lambdas text[])
returns table (lambda text, max_attempts integer)
language sql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  select l.name, l.max_attempts from tuskline.lambda l where l.name = any (p_lambdas)
$$;
comment on function tuskline.max_attempts(text[]) is
  'Attempts after which a task of these lambdas is dead, for the log of their workers.';
