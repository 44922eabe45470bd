-- As task_status(), for a role that may not see application data.
create or replace function tuskline.task_facts(p_task bigint)
returns table (
  id bigint, lambda text, collection text, priority text, status text,
  attempt integer, max_attempts integer, crashes integer,
  due_at timestamptz, created_at timestamptz, started_at timestamptz, finished_at timestamptz,
  next_trigger_at timestamptz,
  executor_id bigint, host text, pid integer, lease_until timestamptz,
  cancel_requested_at timestamptz, failures bigint, error_class text, error text,
  percent real, message text, said_at timestamptz,
  ordering_key text, limit_key text, fairness_key text, unique_key text, traceparent text)
language sql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  select s.id, s.lambda, s.collection, s.priority, s.status, s.attempt, s.max_attempts, s.crashes,
         s.due_at, s.created_at, s.started_at, s.finished_at, s.next_trigger_at,
         s.executor_id, s.host, s.pid, s.lease_until, s.cancel_requested_at,
         s.failures, s.error_class, s.error, s.percent, s.message, s.said_at,
         s.ordering_key, s.limit_key, s.fairness_key, s.unique_key, s.traceparent
    from tuskline.task_status(p_task) s
$$;
comment on function tuskline.task_facts(bigint) is
  'As task_status(), without payload, output and checkpoint.';
