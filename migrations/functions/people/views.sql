-- Defines the views that people read: tasks, queues, workers, attempts, limits and gates.
--
-- Functions read the view all_tasks where a task may have outlived its segment, and no other view:
-- the views of people show no contents to a reader that lacks the right inspect. These columns are
-- null then; no row is hidden.
--
-- Planner: barred runs once for each statement. By min() the planner knows that the subquery has
-- one row, and leaves it out of a statement that reads no contents: its plan is as if no view hid
-- any. No view is a security_barrier: it would lose the order of the segments, and the latest 50 of
-- a million tasks would take 1 s in place of 0.4 ms. A leaky function in a condition sees nulls.
create or replace view tuskline_core.all_tasks as
select id, lambda, collection, priority, status, attempt, crashes,
       coalesce(scheduled_at, created_at) as due_at, created_at, started_at, finished_at,
       next_trigger_at, fence, payload, ordering_key, limit_key, fairness_key, unique_key,
       traceparent
  from tuskline.task
union all
select id, lambda, collection, priority, status, attempt, crashes,
       coalesce(scheduled_at, created_at), created_at, started_at, finished_at,
       next_trigger_at, fence, payload, ordering_key, limit_key, fairness_key, unique_key,
       traceparent
  from tuskline.task_kept;
comment on view tuskline_core.all_tasks is
  'Every task that is not deleted, with its contents, for functions.';

create or replace view tuskline.tasks as
select t.id, t.lambda, t.collection, t.priority, t.status, t.attempt, t.crashes, t.due_at,
       t.created_at, t.started_at, t.finished_at, t.next_trigger_at, t.fence,
       case when t.lambda <> all (b.barred) then t.payload end as payload,
       case when t.lambda <> all (b.barred) then t.ordering_key end as ordering_key,
       case when t.lambda <> all (b.barred) then t.limit_key end as limit_key,
       case when t.lambda <> all (b.barred) then t.fairness_key end as fairness_key,
       case when t.lambda <> all (b.barred) then t.unique_key end as unique_key,
       t.traceparent
  from tuskline_core.all_tasks t
       left join (select min(tuskline.barred('inspect')) as barred) b on true;
comment on view tuskline.tasks is
  'Every task that is not deleted, also those that outlived their segment. '
  'Give an id: that is one index probe at any size.';

create or replace view tuskline.queues as
select q.queue_id, q.lambda, q.priority, coalesce(d.depth, 0) as depth,
       'queue_' || q.queue_id as leaf,
       (select count(*) from tuskline.executor e
         where e.ended_at is null and e.expires_at > tuskline.clock() and not e.draining
           and q.lambda = any (e.lambdas)) as live_workers
  from tuskline.queue q
       left join (select queue_id, count(*) as depth
                    from tuskline.queued group by queue_id) d using (queue_id);
comment on view tuskline.queues is
  'Queues: tasks in each now (counted), its leaf table, '
  'and live workers that serve it (not ended, silent or draining).';

create or replace view tuskline.lambdas as
select l.*, sum(q.depth) as depth, max(q.live_workers) as live_workers
  from tuskline.lambda l left join tuskline.queues q on q.lambda = l.name
 group by l.name;
comment on view tuskline.lambdas is
  'Lambdas with their settings, ready tasks and live workers.';

-- Planner: a clock in the list of columns would make a reader of the newest ones read all.
create or replace view tuskline.executors as
select e.executor_id, e.host, e.pid, e.lambdas, e.sdk_version, e.role,
       case when e.end_reason is not null then e.end_reason
            when e.expires_at <= c.at then 'silent'
            when e.draining then 'draining'
            else 'alive' end as state,
       e.started_at, e.beat_at, e.expires_at, e.ended_at,
       (select count(*) from tuskline.lease l where l.executor_id = e.executor_id) as leases,
       e.processes
  from tuskline.executor e left join (select tuskline.clock() as at offset 0) c on true;
comment on view tuskline.executors is
  'Worker processes, and how many leases each holds. silent: no heartbeat for a lease by the '
  'database clock. expired: ended after a silence. Also alive, draining and stopped. processes: '
  'those in which a host controller runs attempts.';

create or replace view tuskline.attempts as
select f.task_id, f.attempt, f.fence, f.executor_id,
       coalesce(f.outcome::text, 'crashed') as outcome,
       f.started_at, f.failed_at as ended_at, f.error_class,
       case when b.barred = '{}'
                 or (select t.lambda <> all (b.barred)
                       from tuskline_core.all_tasks t where t.id = f.task_id limit 1)
            then f.message end as message, f.fingerprint
  from tuskline.task_failure f
       left join (select min(tuskline.barred('inspect')) as barred) b on true
 where f.executor_id <> 0
union all
select t.id, t.attempt, t.fence, s.executor_id,
       case when t.status in ('claimed', 'processing') then 'running' else t.status::text end,
       t.started_at, t.finished_at, null, null, null
  from tuskline_core.all_tasks t
       left join tuskline.lease s
         on s.lease_id = t.fence and t.status in ('claimed', 'processing')
 where t.attempt > 0 and t.status in ('claimed', 'processing', 'success', 'cancelled')
   and not exists (select from tuskline.task_failure f
                    where f.task_id = t.id and f.fence = t.fence);
comment on view tuskline.attempts is
  'Attempts of tasks: each that failed, and the latest if it runs, succeeded or was cancelled. '
  'crashed: its worker died. Give a task_id, order by fence.';

-- Lists the tasks that a pause of their queue holds (for the view waiting).
--
-- Planner: a part of the view would read each segment once more, and with JIT take seconds to plan.
-- So this is a function. It runs with the rights of its owner, as a view does.
create or replace function tuskline.held_in_queues()
returns table (id bigint, lambda text, collection text, priority tuskline.priority,
               status tuskline.status, due timestamptz, due_in interval, reason text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_barred text[] := tuskline.barred('inspect');
begin
  if not exists (select from tuskline_core.flagged_queue) then return; end if;
  return query
    select t.id, t.lambda, t.collection, t.priority, t.status, g.until, g.until - tuskline.clock(),
           format('gate %s (%s) of %s: %s', g.gate_id, g.action, g.author,
                  case when t.lambda <> all (v_barred) then g.reason
                       else split_part(g.reason, ':', 1) end)
      from tuskline_core.paused_queues(tuskline.clock()) q
           cross join lateral
             tuskline_core.gate_of(q.lambda, null, q.priority, tuskline.clock()) g
           join tuskline.queued d on d.queue_id = q.queue_id
           join tuskline.task t on t.id = d.task_id
     where t.status = 'enqueued';
end $$;
comment on function tuskline.held_in_queues() is
  'Tasks that a pause of their queue holds, for the view waiting.';

create or replace view tuskline.waiting as
select t.id, t.lambda, t.collection, t.priority, t.status,
       m.due, m.due - tuskline.clock() as due_in,
       case when t.status = 'retriable_failure'
              then format('backing off after attempt %s%s', t.attempt,
                     case when t.lambda <> all (b.barred) then ': ' || (
                       select left(f.message, 200) from tuskline.task_failure f
                        where f.task_id = t.id order by f.failed_at desc limit 1) end)
            when m.due > tuskline.clock() then 'due later'
            else 'due, waits for the store consumer (tuskline serve)' end as reason
  from tuskline.timer m join tuskline_core.all_tasks t on t.id = m.task_id
       left join (select min(tuskline.barred('inspect')) as barred) b on true
 where t.status in ('new', 'retriable_failure')
   -- A timer at another time than the task's own only makes the head of a wait list recheck.
   and (m.due = t.next_trigger_at
        or not exists (select from tuskline.wait_list l where l.task_id = t.id))
union all
select t.id, t.lambda, t.collection, t.priority, t.status, g.until, g.until - tuskline.clock(),
       case when g.opened_at is null
              then format('gate %s (%s) of %s: %s', g.gate_id, g.action, g.author,
                          case when t.lambda <> all (b.barred) then g.reason
                               else split_part(g.reason, ':', 1) end)
            else format('gate %s was opened, waits for the store consumer', k.gate_id) end
  from tuskline.parked k
       join tuskline_core.all_tasks t on t.id = k.task_id
       left join tuskline.gate g using (gate_id)
       left join (select min(tuskline.barred('inspect')) as barred) b on true
 where t.status in ('new', 'retriable_failure')
union all
select h.* from tuskline.held_in_queues() h
union all
-- A task with a timer of its own is shown above: that row says more than the wait list.
select t.id, t.lambda, t.collection, t.priority, t.status, null, null,
       case when r.dropped_at is not null
              then format('limit %s was dropped, waits for the store consumer', r.limit_id)
            when r.kind = 'order' then format('order: earlier tasks of %s run first',
              case when t.lambda <> all (b.barred) then format('key %L', l.key) else 'its key' end)
            else format('limit %s: %s%s', r.limit_id,
                   case when r.kind = 'rate' then r.per_second || ' a second'
                        else r.max_concurrency || ' at a time' end,
                   case when l.key <> '' and t.lambda <> all (b.barred)
                        then format(' for key %L', l.key) end) end
  from tuskline.wait_list l
       join tuskline.task_limit r using (limit_id)
       join tuskline_core.all_tasks t on t.id = l.task_id
       left join (select min(tuskline.barred('inspect')) as barred) b on true
 where t.status in ('new', 'retriable_failure')
   and not exists (select from tuskline.timer m
                    where m.due = t.next_trigger_at and m.task_id = t.id)
union all
select t.id, t.lambda, t.collection, t.priority, t.status, null, null,
       case when b.parent_id is null then format('waits for task %s', c.waits_for)
            else format('held: task %s, for whose %s it waits, ended as %s',
                        b.parent_id, b.condition, b.outcome) end
  from tuskline.chain_task c
       join tuskline_core.all_tasks t on t.id = c.task_id
       left join lateral (
         select d.parent_id, d.condition, d.outcome
           from tuskline.unmet_dependency k
                join tuskline.dependency d using (task_id, parent_id)
          where k.task_id = c.task_id order by d.parent_id limit 1) b on true
 where t.status = 'new' and num_nonnulls(c.waits_for, b.parent_id) > 0
   and not exists (select from tuskline.timer m
                    where m.due = t.next_trigger_at and m.task_id = t.id);
comment on view tuskline.waiting is
  'Tasks that wait: for their due time, a gate, a limit, an ordering policy or a parent. '
  'due is null where no time is known. Add "order by due limit n" on a large store.';

create or replace function tuskline.held_by_gates() returns table (gate_id bigint, held bigint)
language sql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  select o.gate_id, count(*)
    from tuskline_core.paused_queues(tuskline.clock()) q
         cross join lateral tuskline_core.gate_of(q.lambda, null, q.priority, tuskline.clock()) o
         join tuskline.queued d on d.queue_id = q.queue_id
   group by o.gate_id
$$;
comment on function tuskline.held_by_gates() is
  'How many queued tasks each pause of a queue holds, for the view gates.';

-- Planner: a reader that does not take the column parked, as tuskline top, counts no task.
create or replace view tuskline.gates as
select g.gate_id, g.lambda, g.collection, g.priority, g.action,
       (select count(*) from tuskline.parked k where k.gate_id = g.gate_id)
         + coalesce((select h.held from tuskline.held_by_gates() h where h.gate_id = g.gate_id), 0)
         as parked,
       case when g.lambda <> all (b.barred) then g.reason
            else split_part(g.reason, ':', 1) end as reason,
       g.author, g.set_at, g.until, g.opened_at
  from tuskline.gate g
       left join (select min(tuskline.barred('inspect')) as barred) b on true;
comment on view tuskline.gates is
  'Gates that are set, or were opened and still have parked tasks. '
  'parked: how many tasks each holds (counted).';

create or replace view tuskline.limits as
select r.limit_id, r.lambda, r.collection, r.priority, r.kind, r.by_key, r.fair,
       r.max_concurrency, r.per_second, r.burst, r.on_failure,
       coalesce(s.held, 0) as held, coalesce(l.waiting, 0) as waiting,
       r.reason, r.until, r.author, r.set_at, r.dropped_at
  from tuskline.task_limit r
       left join (select p.limit_id, count(*) as held
                    from tuskline.permit p left join tuskline.task t on t.id = p.task_id
                   where p.fence is null or p.fence = t.fence and t.finished_at is null
                   group by p.limit_id) s using (limit_id)
       left join (select limit_id, count(*) as waiting
                    from tuskline.wait_list group by limit_id) l using (limit_id);
comment on view tuskline.limits is
  'Limits and ordering policies, how many permits of each are held (rate: by tasks that have not '
  'started), and how many tasks wait for one (counted).';

create or replace view tuskline.blocked_keys as
select r.lambda, case when r.lambda <> all (b.barred) then s.key end as ordering_key,
       s.task_id, t.status, t.finished_at as blocked_since,
       (select count(*) from tuskline.wait_list l
         where l.limit_id = s.limit_id and l.key = s.key) as waiting
  from tuskline.task_limit r
       join tuskline.permit s using (limit_id)
       join tuskline_core.all_tasks t on t.id = s.task_id
       left join (select min(tuskline.barred('inspect')) as barred) b on true
 where r.kind = 'order' and t.finished_at is not null;
comment on view tuskline.blocked_keys is
  'Ordering keys that a failed task blocks. unblock(lambda, key) releases them.';

-- Shows everything that is known about one task, in one row.
create or replace function tuskline.task_status(p_task bigint)
returns table (
  id bigint, lambda text, collection text, priority text, status text,
  attempt integer, max_attempts integer, crashes integer,
  due_at timestamptz, created_at timestamptz, started_at timestamptz, finished_at timestamptz,
  next_trigger_at timestamptz,
  executor_id bigint, host text, pid integer, lease_until timestamptz,
  cancel_requested_at timestamptz,
  failures bigint, error_class text, error text, output json, payload json,
  percent real, message text, checkpoint json, said_at timestamptz,
  ordering_key text, limit_key text, fairness_key text, unique_key text, traceparent text)
language sql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  select t.id, t.lambda, t.collection, t.priority::text, t.status::text,
         t.attempt::int, l.max_attempts::int, t.crashes::int,
         t.due_at, t.created_at, t.started_at, t.finished_at, t.next_trigger_at,
         e.executor_id, e.host, e.pid, e.expires_at, c.requested_at,
         (select count(*) from tuskline.task_failure f where f.task_id = t.id),
         f.error_class, case when m.shown then f.message end, case when m.shown then o.output end,
         case when m.shown then t.payload end, p.percent, case when m.shown then p.message end,
         case when m.shown then p.checkpoint end,
         case when num_nonnulls(p.percent, p.message, p.checkpoint) > 0 then p.said_at end,
         case when m.shown then t.ordering_key end, case when m.shown then t.limit_key end,
         case when m.shown then t.fairness_key end, case when m.shown then t.unique_key end,
         t.traceparent
    from tuskline_core.all_tasks t
         left join tuskline.lambda l on l.name = t.lambda
         left join tuskline.lease s
           on t.status in ('claimed', 'processing') and s.lease_id = t.fence
         left join tuskline.executor e on e.executor_id = s.executor_id
         left join tuskline.cancellation c on c.task_id = t.id and c.fence = t.fence
         left join tuskline.task_output o on o.task_id = t.id
         left join tuskline.progress p on p.task_id = t.id
         left join lateral (
           select f.error_class, f.message from tuskline.task_failure f
            where f.task_id = t.id
            order by f.failed_at desc, f.fence desc limit 1) f on true
         cross join lateral (
           select not tuskline_core.rights_in_use() or tuskline.may(t.lambda, 'inspect') as shown
           offset 0) m
   where t.id = p_task
$$;
comment on function tuskline.task_status(bigint) is
  'Everything known about one task: state, attempt, worker, lease, last error, output, progress. '
  'Contents are null without the right inspect. No row: unknown id.';
