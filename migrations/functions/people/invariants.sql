-- Checks the stored state against the guarantees, for people and `tuskline doctor --verify`.
--
-- Each function below lists violations: the name of the invariant, and the id of the task (for
-- live_executors: of the executor). invariants() counts them.
--
-- Guarantees: invariants() reads one snapshot, so rows that a verb writes together appear together.
-- It changes nothing. A later transaction may still complete effects, so an incomplete effect is a
-- violation only if no timer is left for it.
-- It reads every task, so a fast command must not call it.

create or replace function tuskline_core.may_be_restarted(p_task bigint, p_lambda text)
returns boolean language sql stable as $$
  select exists (select from tuskline.audit a
                  where a.verb = 'retry_chain'
                     or a.verb = 'retry' and a.subject = 'task ' || p_task)
      or exists (select from tuskline.operation o
                  where o.action in ('retry', 'redrive') and coalesce(o.lambda = p_lambda, true))
$$;
comment on function tuskline_core.may_be_restarted(bigint, text) is
  'Whether the audit or an operation may have restarted a task.';

-- Lists tasks whose columns contradict each other, and tasks whose fence was never issued.
--
-- A task may start before it is due if the clock was set back between its enqueueing and its claim.
-- Then another task with an earlier fence has started after that due time.
create or replace function tuskline_core.broken_columns() returns table (invariant text, id bigint)
language sql stable as $$
  select 'ended_tasks', t.id from tuskline_core.all_tasks t
   where (t.status >= 'success') <> (t.finished_at is not null)
      or (t.status >= 'success' and t.next_trigger_at is not null)
  union all
  select 'due_times', t.id from tuskline_core.all_tasks t
   where t.status in ('claimed', 'processing', 'success')
     and t.started_at < t.due_at - tuskline_core.clock_lag()
     and not exists (select from tuskline_core.all_tasks o
                      where o.fence < t.fence and o.started_at >= t.due_at)
  union all
  select 'fences', t.id from tuskline_core.all_tasks t
   where t.fence > coalesce(pg_sequence_last_value('tuskline.fence_seq'), 0)
$$;
comment on function tuskline_core.broken_columns() is
  'Violations of the invariants ended_tasks, due_times and fences.';

-- Lists running tasks without a lease or with two leases, and leases without an executor.
--
-- A lease with ended tasks is no violation: the worker gives it back with a later exchange.
create or replace function tuskline_core.broken_leases() returns table (invariant text, id bigint)
language sql stable as $$
  with h as materialized (
    select u.id, l.lease_id as fence, count(*) as leases
      from tuskline.lease l cross join unnest(l.task_ids) as u (id)
     group by u.id, l.lease_id)
  select case when h.id is null then 'leases' else 'one_lease' end, t.id
    from tuskline.task t left join h on h.id = t.id and h.fence = t.fence
   where t.status in ('claimed', 'processing') and h.leases is distinct from 1
  union all
  select 'lease_owners', u.id
    from tuskline.lease l cross join unnest(l.task_ids) as u (id)
   where not exists (select from tuskline.executor e where e.executor_id = l.executor_id)
  union all
  select 'live_executors', coalesce(e.executor_id, a.executor_id)
    from (select x.executor_id from tuskline.executor x where x.ended_at is null) e
         full join tuskline_core.live_executor a on a.executor_id = e.executor_id
   where e.executor_id is null or a.executor_id is null
$$;
comment on function tuskline_core.broken_leases() is
  'Violations of the invariants leases, one_lease, lease_owners and live_executors.';

-- Lists waiting tasks without a timer, gate, limit or parent, and enqueued tasks without a queue
-- row.
--
-- find_stalled also lists tasks that wait for a parent, so that they check the parent again. These
-- are no violation here: the end of the parent starts them (invariant dependencies).
-- A queue row whose task is not enqueued is no violation: the next claim removes it. After a crash
-- no queue is examined until all queues are rebuilt.
create or replace function tuskline_core.broken_waits() returns table (invariant text, id bigint)
language sql stable as $$
  select 'queues', t.id
    from tuskline.task t join tuskline.queue q on q.lambda = t.lambda and q.priority = t.priority
   where t.status = 'enqueued' and exists (select from tuskline_core.verified_incarnation)
     and not exists (select from tuskline.queued d
                      where d.queue_id = q.queue_id and d.task_id = t.id)
  union all
  select 'queues', t.id
    from tuskline.queued d
         join tuskline.queue q on q.queue_id = d.queue_id
         join tuskline.task t on t.id = d.task_id
   where t.status = 'enqueued' and t.lambda <> q.lambda
  union all
  select 'waiting', u.id
    from (select tuskline.clock() - tuskline_core.stalled_after() as before) c
         cross join tuskline.segment g
         cross join lateral tuskline_core.untimed_tasks(g.segment_no, c.before) u
   where g.sealed_at is null
     and not exists (select from tuskline.chain_task c
                      where c.task_id = u.id and c.waits_for is not null)
     and not exists (select from tuskline.unmet_dependency k where k.task_id = u.id)
$$;
comment on function tuskline_core.broken_waits() is
  'Violations of the invariants queues and waiting.';

-- Lists tasks that exceed a concurrency limit, a rate's burst or an order, and permits of ended
-- tasks.
--
-- Only permits and starts after the last change of the limit count, because a limit may be set
-- below the number of running tasks.
create or replace function tuskline_core.broken_limits() returns table (invariant text, id bigint)
language sql stable as $$
  select 'concurrency', p.task_id
    from (select r.max_concurrency, s.task_id,
                 row_number() over (partition by s.limit_id, s.key order by s.permit_no) as nth
            from tuskline.permit s join tuskline.task_limit r on r.limit_id = s.limit_id
           where r.kind = 'concurrency' and s.acquired_at > r.set_at + tuskline_core.clock_lag()) p
   where p.nth > p.max_concurrency
  union all
  select 'rate', p.task_id
    from (select r.burst, s.task_id,
                 row_number() over (partition by s.limit_id, s.key order by s.permit_no) as nth
            from tuskline.permit s join tuskline.task_limit r on r.limit_id = s.limit_id
                 join tuskline.task t on t.id = s.task_id
           where r.kind = 'rate' and s.acquired_at > r.set_at + tuskline_core.clock_lag()
             and t.fence = s.fence and t.finished_at is null) p
   where p.nth > p.burst
  union all
  select 'order', o.id
    from (select t.id, count(*) over (partition by r.limit_id, t.ordering_key) as running
            from tuskline.task_limit r join tuskline.task t on t.lambda = r.lambda
           where r.kind = 'order' and r.dropped_at is null and t.ordering_key is not null
             and coalesce(r.collection = t.collection, r.collection is null)
             and coalesce(r.priority = t.priority, true)
             and t.status in ('claimed', 'processing')
             and t.started_at > r.set_at + tuskline_core.clock_lag()) o
   where o.running > 1
  union all
  select 'permits', s.task_id
    from tuskline.permit s
         join tuskline.task_limit r on r.limit_id = s.limit_id
         join tuskline.task t on t.id = s.task_id
   where t.finished_at is not null and r.kind <> 'rate'
     and not (r.kind = 'order' and r.on_failure = 'block'
              and t.status in ('fatal_failure', 'dead'))
     and not exists (select from tuskline.timer m where m.task_id = t.id and m.kind = 'effects')
$$;
comment on function tuskline_core.broken_limits() is
  'Violations of the invariants concurrency, rate, order and permits.';

create or replace function tuskline_core.is_retiring(p_task bigint) returns boolean
language sql stable as $$
  select exists (select from tuskline.segment g
                  where g.segment_no = tuskline_core.segment_of(p_task)
                    and not tuskline_core.is_attached(g.segment_no))
      or to_regclass('tuskline_core.gone_' || tuskline_core.segment_of(p_task)) is not null
$$;
comment on function tuskline_core.is_retiring(bigint) is
  'Whether the segment of a task is being retired: its DETACH has begun, and it is not gone yet.';

-- Lists unique keys with two holders, dependencies that do not know the end of their parent, and
-- wrong dead letters.
--
-- Three states are no violation. A restarted task may run beside the task that took its key in the
-- meantime. Dead letters of a segment that is being retired are deleted later, with its history. A
-- task with an unmet dependency is held, and still names the parent that it waited for.
create or replace function tuskline_core.broken_relations()
returns table (invariant text, id bigint) language sql stable as $$
  with k as materialized (
    select t.id, t.lambda, t.unique_key,
           count(*) over (partition by t.lambda, t.unique_key) as tasks
      from tuskline.task t join tuskline.unique_policy u on u.lambda = t.lambda
     where t.unique_key is not null and t.finished_at is null
       and t.created_at > u.set_at + tuskline_core.clock_lag()
       and u.scope in ('running', 'forever'))
  select 'unique_keys', k.id from k
   where k.tasks > 1
     and not exists (select from k s
                      where s.lambda = k.lambda and s.unique_key = k.unique_key
                        and tuskline_core.may_be_restarted(s.id, s.lambda))
  union all
  select 'dependencies', d.task_id
    from tuskline.dependency d
         join tuskline_core.all_tasks p on p.id = d.parent_id
         join tuskline.task c on c.id = d.task_id
         join tuskline.chain_task w on w.task_id = d.task_id
   where p.finished_at is not null and c.status = 'new'
     and (d.outcome is distinct from p.status
          or w.waits_for = d.parent_id
             and not exists (select from tuskline.unmet_dependency k where k.task_id = d.task_id))
     and not exists (select from tuskline.timer m where m.task_id in (d.task_id, d.parent_id))
  union all
  select 'dead_letters', coalesce(d.task_id, t.id)
    from tuskline.dead_letter d
         full join (select k.id from tuskline_core.all_tasks k
                     where k.status in ('dead', 'fatal_failure')) t on t.id = d.task_id
   where (d.task_id is null or t.id is null)
     and not tuskline_core.is_retiring(coalesce(d.task_id, t.id))
$$;
comment on function tuskline_core.broken_relations() is
  'Violations of the invariants unique_keys, dependencies and dead_letters.';

create or replace function tuskline.invariants()
returns table (invariant text, guarantee text, violations bigint, examples text[])
language sql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  with b as materialized (
    select * from tuskline_core.broken_columns()
    union all select * from tuskline_core.broken_leases()
    union all select * from tuskline_core.broken_waits()
    union all select * from tuskline_core.broken_limits()
    union all select * from tuskline_core.broken_relations())
  select i.invariant, i.guarantee, count(b.id),
         coalesce((array_agg(distinct b.id order by b.id) filter (where b.id is not null))[1:5],
                  '{}')::text[]
    from (values
           (1, 'ended_tasks', 'an ended task has an end time, and each other task has none'),
           (2, 'leases', 'a task that runs is held by the lease of its fence'),
           (3, 'one_lease', 'no task is held by two leases of its fence'),
           (4, 'lease_owners', 'each lease is of a worker that is listed'),
           (5, 'live_executors', 'the workers that may claim are those that have not ended'),
           (6, 'queues', 'each enqueued task has its row in a queue of its lambda'),
           (7, 'waiting', 'each due task has a timer, a gate, a limit or a parent to wait for'),
           (8, 'due_times', 'no task started before it was due'),
           (9, 'concurrency', 'no limit has more permits than its max_concurrency'),
           (10, 'rate', 'no rate limit has more tasks ready to start than its burst'),
           (11, 'order', 'no two tasks of one ordering key run at a time'),
           (12, 'permits', 'no ended task holds a permit'),
           (13, 'unique_keys', 'no two tasks that have not ended hold one unique key'),
           (14, 'dependencies', 'the end of a parent has reached each task that waits for it'),
           (15, 'dead_letters', 'the dead letters are the tasks that failed for good'),
           (16, 'fences', 'no fence is above those that were issued'))
           as i (no, invariant, guarantee)
         left join b on b.invariant = i.invariant
   group by i.no, i.invariant, i.guarantee order by i.no
$$;
comment on function tuskline.invariants() is
  'Each invariant of the stored state, how many rows violate it, and up to five of them: tasks, or '
  'executors for live_executors. Reads every task once or more; changes nothing.';
