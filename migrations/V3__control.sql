-- Tables of gates, limits and ordering policies. Only tasks that meet one touch these tables.
--
-- A waiter is a task in a wait list. Positions order the waiters; the first one is the head.
-- The main table is named task_limit because limit is a reserved word.

create table tuskline_core.policy_guard ();
comment on table tuskline_core.policy_guard is
  'Locked by the store consumer that checks backlogs and breakers, ends expired gates and '
  'throttles, and sorts queues. Holds no rows.';

create table tuskline_core.policy_flag (lambda text not null);
alter table tuskline_core.policy_flag replica identity full; -- for publications FOR ALL TABLES
comment on table tuskline_core.policy_flag is
  'Lambdas with a limit, an ordering policy, or a gate that is not a pause of a queue. Mostly '
  'empty and without an index: reading it costs a claim no page.';
comment on column tuskline_core.policy_flag.lambda is 'The lambda.';

create table tuskline_core.flagged_queue (
  queue_id integer not null,
  paused   tstzrange,
  passing  bigint,
  unsorted boolean not null,
  late     text[],
  mark     bigint not null default 0,
  last     bigint,
  behind   bigint);
alter table tuskline_core.flagged_queue replica identity full; -- as above
comment on table tuskline_core.flagged_queue is
  'Queues that are paused, or that hold rows which no policy has checked. Mostly empty and without '
  'an index: reading it costs a claim no page.';
comment on column tuskline_core.flagged_queue.queue_id is 'The queue.';
comment on column tuskline_core.flagged_queue.paused is
  'When nothing is claimed from it, by the gates on its lambda and priority. Null: never.';
comment on column tuskline_core.flagged_queue.passing is
  'Row whose task may be claimed although the queue is paused: a probe of a circuit breaker.';
comment on column tuskline_core.flagged_queue.unsorted is
  'True: a claim checks gates and limits for the tasks that it pops. A store consumer sorts the '
  'queue and sets this to false.';
comment on column tuskline_core.flagged_queue.late is
  'Transactions that may still enqueue a task unchecked: those open when a store consumer first '
  'looked and not yet ended. Null: none has looked.';
comment on column tuskline_core.flagged_queue.mark is
  'Rows up to this number are sorted in the current pass.';
comment on column tuskline_core.flagged_queue.last is
  'Last row of the current pass. Null: no pass is running. 0 for a paused queue: its tasks have '
  'released their permits.';
comment on column tuskline_core.flagged_queue.behind is
  'First row of the pass whose task was locked. The next pass starts there.';

create table tuskline.gate (
  gate_id    bigint generated always as identity primary key,
  lambda     text not null references tuskline.lambda (name),
  collection text,
  priority   tuskline.priority,
  action     text not null check (action in ('pause', 'drop', 'divert')),
  reason     text not null,
  author     name not null default session_user,
  set_at     timestamptz not null,
  until      timestamptz,
  opened_at  timestamptz,
  mark       bigint not null default 0);
comment on table tuskline.gate is
  'Gates that are set, or that are open and still hold tasks. Set with gate(), opened with '
  'ungate(). Both are audited.';
comment on sequence tuskline.gate_gate_id_seq is 'Numbers of gates.';
comment on column tuskline.gate.gate_id is 'Number of the gate.';
comment on column tuskline.gate.lambda is 'Lambda it is on.';
comment on column tuskline.gate.collection is
  'Only tasks of this collection. Null: all, also those without one.';
comment on column tuskline.gate.priority is 'Only tasks of this priority. Null: all.';
comment on column tuskline.gate.action is
  'pause: tasks wait. drop: they end as dropped. divert: they end as dead.';
comment on column tuskline.gate.reason is 'Reason, as its author gave it.';
comment on column tuskline.gate.author is 'Role that set it.';
comment on column tuskline.gate.set_at is 'When it was set.';
comment on column tuskline.gate.until is 'When it opens by itself. Null: never.';
comment on column tuskline.gate.opened_at is
  'When it was opened. Its row is deleted when no task is parked behind it any more. Null: it is '
  'set.';
comment on column tuskline.gate.mark is
  'Last task that was released since it was opened. The next search starts after it; tasks '
  'parked later with a lower id are found by the last search.';

create table tuskline.parked (
  gate_id   bigint not null,
  task_id   bigint not null unique,
  parked_at timestamptz not null,
  primary key (gate_id, task_id));
comment on table tuskline.parked is
  'Due tasks that a pause on their collection holds. When the gate opens, the store consumer '
  'releases them in id order. A pause of a whole queue parks nothing, see flagged_queue.';
comment on column tuskline.parked.gate_id is 'The gate.';
comment on column tuskline.parked.task_id is 'The task.';
comment on column tuskline.parked.parked_at is 'When it was parked.';

create table tuskline.task_limit (
  limit_id        bigint generated always as identity primary key,
  lambda          text not null references tuskline.lambda (name),
  collection      text,
  priority        tuskline.priority,
  kind            text not null check (kind in ('order', 'concurrency', 'rate')),
  by_key          boolean not null,
  fair            boolean not null default false,
  max_concurrency integer
    check ((kind = 'concurrency') = (max_concurrency is not null) and max_concurrency >= 0),
  per_second      double precision check ((kind = 'rate') = (per_second is not null)),
  burst           integer check ((kind = 'rate') = (burst is not null)),
  on_failure      text check ((kind = 'order') = (on_failure is not null)
                              and on_failure in ('block', 'skip', 'dead')),
  reason          text check (reason is null or kind = 'rate'),
  until           timestamptz check (until is null or reason is not null),
  author          name not null default session_user,
  set_at          timestamptz not null,
  dropped_at      timestamptz,
  late_joiners    text[],
  rank            integer not null generated always as (
    16 * (kind = 'rate')::integer + 8 * (kind = 'concurrency')::integer
    + 4 * (not by_key)::integer
    + 2 * (collection is null)::integer + (priority is null)::integer) stored);
create unique index task_limit_scope on tuskline.task_limit (
  lambda, coalesce(collection, ''), (num_nonnulls(priority)), coalesce(priority, 'low'),
  kind, by_key, (reason is null))
  where dropped_at is null;
comment on table tuskline.task_limit is
  'Concurrency limits, rate limits, throttles and ordering policies. Set with set_limit(), '
  'set_order(), throttle(); removed with drop_limit().';
comment on index tuskline.task_limit_scope is
  'One limit of a kind per lambda, collection and priority; one more by key; and one throttle.';
comment on sequence tuskline.task_limit_limit_id_seq is 'Numbers of limits.';
comment on column tuskline.task_limit.limit_id is 'Number of the limit.';
comment on column tuskline.task_limit.lambda is 'Lambda whose tasks are limited.';
comment on column tuskline.task_limit.collection is 'Only tasks of this collection. Null: all.';
comment on column tuskline.task_limit.priority is 'Only tasks of this priority. Null: all.';
comment on column tuskline.task_limit.fair is
  'True: waiting tasks take turns by fairness_key. False: they are served by priority and age.';
comment on column tuskline.task_limit.kind is
  'concurrency: tasks at the same time. rate: tasks per second. order: one task per ordering_key.';
comment on column tuskline.task_limit.by_key is
  'True: each limit_key (order: each ordering_key) is counted separately.';
comment on column tuskline.task_limit.max_concurrency is
  'Concurrency only, else null: most tasks that may be enqueued, claimed or processing at the same '
  'time.';
comment on column tuskline.task_limit.per_second is
  'Rate only, else null: tasks that may be enqueued per second.';
comment on column tuskline.task_limit.burst is
  'Rate only, else null: tasks that may be enqueued at once after a pause (token bucket size).';
comment on column tuskline.task_limit.on_failure is
  'Order only, else null: effect of a task that fails for good. block: its key waits for '
  'unblock(). skip: the next task runs. dead: all tasks that wait for the key become dead.';
comment on column tuskline.task_limit.reason is
  'Throttle only: reason, as its author gave it. Null: the limit is no throttle.';
comment on column tuskline.task_limit.until is
  'Throttle only: when it ends by itself. Null: never.';
comment on column tuskline.task_limit.author is 'Role that set it last.';
comment on column tuskline.task_limit.set_at is 'When it was set last.';
comment on column tuskline.task_limit.rank is
  'Tasks acquire permits by rank: order, concurrency, rate; by key first; narrow before wide.';
comment on column tuskline.task_limit.late_joiners is
  'Transactions, by their name in pg_locks, that may still join wait lists of a dropped limit. '
  'Null: none was noted yet.';
comment on column tuskline.task_limit.dropped_at is
  'When it was dropped. The row is deleted when no task waits for it any more. Null: it is set.';

create table tuskline.permit (
  limit_id    bigint not null,
  key         text   not null,
  permit_no   bigint not null,
  task_id     bigint not null,
  acquired_at timestamptz not null,
  primary key (limit_id, key, permit_no));
create index permit_task on tuskline.permit (task_id);
comment on table tuskline.permit is
  'Permits that tasks hold. A task acquires one before it is enqueued and releases it when its '
  'attempt ends; under an ordering policy when the task ends.';
comment on index tuskline.permit_task is 'Permits of one task.';
comment on column tuskline.permit.limit_id is 'The limit.';
comment on column tuskline.permit.key is
  'The key that is counted. Empty: the limit counts all its tasks together.';
comment on column tuskline.permit.permit_no is
  'Concurrency and order: from 1. Rate: the task id.';
comment on column tuskline.permit.task_id is
  'Task that holds the permit. Order: a failed task may hold it and block its key until unblock().';
comment on column tuskline.permit.acquired_at is 'When the task acquired it.';

create table tuskline.wait_list (
  limit_id  bigint not null,
  key       text   not null,
  position  double precision not null,
  task_id   bigint not null,
  joined_at timestamptz not null,
  primary key (limit_id, key, position, task_id));
create index wait_list_task on tuskline.wait_list (task_id);
comment on table tuskline.wait_list is
  'Due tasks that wait for a permit. One list per limit and key, lowest position first.';
comment on index tuskline.wait_list_task is 'Wait lists of one task.';
comment on column tuskline.wait_list.limit_id is 'The limit.';
comment on column tuskline.wait_list.key is 'The key that is counted.';
comment on column tuskline.wait_list.position is
  'Lowest first, then by task_id. Usually the second of arrival, plus 20 per priority below '
  'critical. Fair limit: the round. Order: 0.';
comment on column tuskline.wait_list.task_id is 'Task that waits.';
comment on column tuskline.wait_list.joined_at is 'When it joined.';

create table tuskline.tenant (
  limit_id      bigint not null,
  fairness_key  text   not null,
  weight        double precision not null check (weight between 0.001 and 1000),
  has_weight    boolean not null,
  last_position double precision not null,
  primary key (limit_id, fairness_key));
comment on table tuskline.tenant is
  'Tenants of fair limits: all with a weight, and all that waited since the list was last empty.';
comment on column tuskline.tenant.limit_id is 'The limit.';
comment on column tuskline.tenant.fairness_key is 'The tenant. Empty: tasks without fairness_key.';
comment on column tuskline.tenant.weight is 'Tasks per round, set with set_weight(). Default 1.';
comment on column tuskline.tenant.has_weight is 'True: the weight was set. False: the default.';
comment on column tuskline.tenant.last_position is 'Position of its last task in the wait list.';

create table tuskline_core.rate_state (
  limit_id      bigint not null,
  key           text   not null,
  next_at       timestamptz not null,
  scan_position double precision not null default '-infinity',
  scan_task_id  bigint not null default 0,
  swept_at      timestamptz not null default '-infinity',
  primary key (limit_id, key));
comment on table tuskline_core.rate_state is
  'Token bucket of each rate limit and key. Written under the row lock of the limit.';
comment on column tuskline_core.rate_state.limit_id is 'The limit.';
comment on column tuskline_core.rate_state.key is 'The key that is counted.';
comment on column tuskline_core.rate_state.next_at is 'When the next task may start.';
comment on column tuskline_core.rate_state.scan_position is
  'The next scan of the wait list starts after this position and scan_task_id, to skip dead rows. '
  'A task that joins before it starts a scan itself.';
comment on column tuskline_core.rate_state.scan_task_id is 'See scan_position.';
comment on column tuskline_core.rate_state.swept_at is
  'When the wait list was last scanned from its head; done every 10 s.';
