-- Gates, limits and orders: touched by tasks that meet one only.

create table tuskline_core.policy_guard ();
comment on table tuskline_core.policy_guard is
  'Locked by the store consumer that looks at backlogs and breakers. Holds no rows.';

create table tuskline_core.policy_flag (lambda text not null);
alter table tuskline_core.policy_flag replica identity full; -- a publication FOR ALL TABLES wants one
comment on table  tuskline_core.policy_flag is 'Lambdas that have a gate or a rule. Mostly empty, and without an index, so that every claim may ask at the price of no page.';
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
comment on table  tuskline_core.flagged_queue is
  'Queues that are paused, or that hold rows which no policy has been asked about. Mostly empty, '
  'and without an index, so that every claim may ask at the price of no page.';
comment on column tuskline_core.flagged_queue.queue_id is 'The queue.';
comment on column tuskline_core.flagged_queue.paused is
  'When nothing is claimed from it, as the gates on its lambda and priority say; null: never.';
comment on column tuskline_core.flagged_queue.passing is
  'The row whose task may be claimed although the queue is paused: a probe of a circuit breaker.';
comment on column tuskline_core.flagged_queue.unsorted is
  'True: a claim asks gates and limits about the tasks that it pops. A store consumer sorts the '
  'queue and sets it to false.';
comment on column tuskline_core.flagged_queue.late is
  'Transactions that may still queue a task without asking: those that were open when a store '
  'consumer first looked. Null: none has looked.';
comment on column tuskline_core.flagged_queue.mark is
  'The rows up to this number are sorted, in the pass that is running.';
comment on column tuskline_core.flagged_queue.last is
  'The last row of the pass that is running; null: none is. Of a paused queue 0: its tasks have '
  'given back their permits.';
comment on column tuskline_core.flagged_queue.behind is
  'The first row of the pass whose task was locked: the next pass begins there.';

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
comment on table  tuskline.gate is 'Gates that are set, or were opened and still hold tasks. Set one with tuskline.gate(), open it with tuskline.ungate(); audit has both.';
comment on sequence tuskline.gate_gate_id_seq is 'Numbers of gates.';
comment on column tuskline.gate.gate_id is 'Number of the gate.';
comment on column tuskline.gate.lambda is 'Lambda it is on.';
comment on column tuskline.gate.collection is 'Only tasks of this collection; null: of all and of none.';
comment on column tuskline.gate.priority is 'Only tasks of this priority; null: of all.';
comment on column tuskline.gate.action is
  'pause: tasks wait. drop: they end as dropped. divert: they end as dead.';
comment on column tuskline.gate.reason is 'Why, in its author''s words.';
comment on column tuskline.gate.author is 'Role that set it.';
comment on column tuskline.gate.set_at is 'When it was set.';
comment on column tuskline.gate.until is 'When it opens by itself; null: never.';
comment on column tuskline.gate.opened_at is 'When it was opened; its row goes as soon as nothing is parked behind it any more.';
comment on column tuskline.gate.mark is
  'Task up to which everything parked was let go since it was opened, but for what was parked '
  'later.';

create table tuskline.parked (
  gate_id   bigint not null,
  task_id   bigint not null unique,
  parked_at timestamptz not null,
  primary key (gate_id, task_id));
comment on table  tuskline.parked is
  'Due tasks that a gate on their collection holds. When it opens the store consumer lets them '
  'go, in id order. A pause of a lambda or priority parks nothing: see flagged_queue.';
comment on column tuskline.parked.gate_id is 'The gate.';
comment on column tuskline.parked.task_id is 'The task.';
comment on column tuskline.parked.parked_at is 'Since when.';

create table tuskline.task_limit (
  limit_id    bigint generated always as identity primary key,
  lambda     text not null references tuskline.lambda (name),
  collection text,
  priority   tuskline.priority,
  kind       text not null check (kind in ('order', 'concurrency', 'rate')),
  by_key     boolean not null,
  fair       boolean not null default false,
  max_concurrency integer check ((kind = 'concurrency') = (max_concurrency is not null) and max_concurrency >= 0),
  per_second double precision check ((kind = 'rate') = (per_second is not null)),
  burst      integer check ((kind = 'rate') = (burst is not null)),
  on_failure text check ((kind = 'order') = (on_failure is not null) and on_failure in ('block', 'skip', 'dead')),
  reason     text check (reason is null or kind = 'rate'),
  until      timestamptz check (until is null or reason is not null),
  author     name not null default session_user,
  set_at     timestamptz not null,
  dropped_at timestamptz,
  late_joiners text[],
  rank       integer not null generated always as (16 * (kind = 'rate')::integer + 8 * (kind = 'concurrency')::integer
    + 4 * (not by_key)::integer + 2 * (collection is null)::integer + (priority is null)::integer) stored);
create unique index task_limit_scope on tuskline.task_limit (
  lambda, coalesce(collection, ''), (num_nonnulls(priority)), coalesce(priority, 'low'),
  kind, by_key, (reason is null))
  where dropped_at is null;
comment on table  tuskline.task_limit is 'How many tasks of a lambda may run at a time, or start in a second, and which keep an order. Set with set_limit() and set_order().';
comment on index  tuskline.task_limit_scope is
  'One rule of a kind for a lambda, a collection, a priority or both of these; one by key; and '
  'one throttle.';
comment on sequence tuskline.task_limit_limit_id_seq is 'Numbers of rules.';
comment on column tuskline.task_limit.limit_id is 'Number of the rule.';
comment on column tuskline.task_limit.lambda is 'Lambda whose tasks it counts.';
comment on column tuskline.task_limit.collection is 'Only tasks of this collection; null: all.';
comment on column tuskline.task_limit.priority is 'Only tasks of this priority; null: of all.';
comment on column tuskline.task_limit.fair is 'Whether those in line take turns by fairness_key; else by priority and age.';
comment on column tuskline.task_limit.kind is 'order: one at a time by ordering_key. concurrency: at most so many at a time. rate: at most so many a second.';
comment on column tuskline.task_limit.by_key is 'Whether each key is counted by itself: ordering_key of an order, limit_key of a limit.';
comment on column tuskline.task_limit.max_concurrency is 'Of concurrency: tasks enqueued, claimed or processing at a time.';
comment on column tuskline.task_limit.per_second is 'Of rate: tasks that may be enqueued in a second.';
comment on column tuskline.task_limit.burst is 'Of rate: tasks that may be enqueued at once after a rest.';
comment on column tuskline.task_limit.on_failure is 'Of order: block holds the key until unblock(); skip goes on with the next; dead ends all that wait for the key.';
comment on column tuskline.task_limit.reason is
  'Of a throttle: why, in its author''s words. A rate without one is a limit for good.';
comment on column tuskline.task_limit.until is 'Of a throttle: when it ends by itself; null: never.';
comment on column tuskline.task_limit.author is 'Role that set it.';
comment on column tuskline.task_limit.set_at is 'When it was set.';
comment on column tuskline.task_limit.rank is 'The order in which a task meets the rules: orders first, then limits at a time, then rates; by key first, and the narrower before the wider.';
comment on column tuskline.task_limit.late_joiners is
  'Transactions, as pg_locks names them, that may still join wait lists of a dropped rule; null: alive.';
comment on column tuskline.task_limit.dropped_at is 'When it was taken away; its row goes as soon as nobody stands in its lines any more.';

create table tuskline.permit (
  limit_id  bigint not null,
  key      text   not null,
  permit_no  bigint not null,
  task_id  bigint not null,
  acquired_at timestamptz not null,
  primary key (limit_id, key, permit_no));
create index permit_task on tuskline.permit (task_id);
comment on table  tuskline.permit is 'Places that tasks hold under a rule, from their enqueueing to the end of the attempt; under an order, of the task.';
comment on index  tuskline.permit_task is 'What a task holds.';
comment on column tuskline.permit.limit_id is 'The rule.';
comment on column tuskline.permit.key is 'The key that is counted; empty: the rule counts all together.';
comment on column tuskline.permit.permit_no is 'Which place, from 1; of a rate, the task itself.';
comment on column tuskline.permit.task_id is 'Who holds it. A task that has failed blocks its key, until unblock().';
comment on column tuskline.permit.acquired_at is 'Since when.';

create table tuskline.wait_list (
  limit_id bigint not null,
  key     text   not null,
  position    double precision not null,
  task_id bigint not null,
  primary key (limit_id, key, position, task_id));
create index wait_list_task on tuskline.wait_list (task_id);
comment on table  tuskline.wait_list is 'Due tasks that wait for a place under a rule, in this order.';
comment on index  tuskline.wait_list_task is 'What a task waits for.';
comment on column tuskline.wait_list.limit_id is 'The rule.';
comment on column tuskline.wait_list.key is 'The key that is counted.';
comment on column tuskline.wait_list.position is 'Place in the line: of a fair limit, the round; of an order, 0; else the second of arrival, and 20 more for each priority below critical.';
comment on column tuskline.wait_list.task_id is 'Who waits.';

create table tuskline.tenant (
  limit_id      bigint not null,
  fairness_key text   not null,
  weight       double precision not null check (weight between 0.001 and 1000),
  has_weight   boolean not null,
  last_position double precision not null,
  primary key (limit_id, fairness_key));
comment on table  tuskline.tenant is 'Who takes turns under a fair limit: those with a weight of their own, and those who have stood in line since it was last empty.';
comment on column tuskline.tenant.limit_id is 'The limit.';
comment on column tuskline.tenant.fairness_key is 'The tenant; empty: tasks without a fairness_key.';
comment on column tuskline.tenant.weight is 'Tasks in a round, as set with set_weight(); else 1.';
comment on column tuskline.tenant.has_weight is 'Whether its weight was set.';
comment on column tuskline.tenant.last_position is 'Round of its last task in line.';

create table tuskline_core.rate_state (
  limit_id  bigint not null,
  key      text   not null,
  next_at  timestamptz not null,
  scan_position double precision not null default '-infinity',
  scan_task_id bigint not null default 0,
  swept_at timestamptz not null default '-infinity',
  primary key (limit_id, key));
comment on table  tuskline_core.rate_state is 'How far each rate has come. Written under the lock of its rule.';
comment on column tuskline_core.rate_state.limit_id is 'The rule.';
comment on column tuskline_core.rate_state.key is 'The key that is counted.';
comment on column tuskline_core.rate_state.next_at is 'When the next task may start.';
comment on column tuskline_core.rate_state.scan_position is 'Turn above which the next look into the line begins; who joins below it asks for himself.';
comment on column tuskline_core.rate_state.scan_task_id is 'Task above which it begins, of that turn.';
comment on column tuskline_core.rate_state.swept_at is 'When somebody last looked below the mark.';
