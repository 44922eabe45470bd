-- Tables of the task store: lambdas, queues, tasks, segments, timers. The verbs are in functions/.
--
-- A task is one row of tuskline.task, from its insert to the end of its retention. That row is the
-- truth. Three tables say where to find the rows that need attention:
--
--   queued   due now, one row per ready task; unlogged, rebuilt from task
--   timer    due later: scheduled tasks and retries
--   lease    claimed by a worker, one row per claimed batch
--
-- Three rules decide the layout:
--   No column that changes is indexed. So every change of state is a heap-only update, of about
--   115 bytes of WAL; one such index makes it 450.
--   There is no hot singleton row.
--   Rows are always locked in id order.

create schema if not exists tuskline;
create schema if not exists tuskline_core;
comment on schema tuskline is
  'Tuskline: asynchronous tasks. Read the views tasks, queues, lambdas, executors, waiting.';
comment on schema tuskline_core is
  'Internal functions and tables of Tuskline, the queues and the segments. '
  'Use schema tuskline instead.';

create type tuskline.status as enum (
  'new', 'enqueued', 'claimed', 'processing', 'retriable_failure',
  'success', 'fatal_failure', 'dead', 'cancelled', 'dropped');
comment on type tuskline.status is
  'new: waits for its due time, a permit, a gate or a dependency. enqueued: in its queue. '
  'claimed: held by a worker. processing: its worker reported it as running. '
  'retriable_failure: waits for its next attempt. All from success on are terminal.';

create type tuskline.priority as enum ('critical', 'high', 'normal', 'low');
comment on type tuskline.priority is 'Order among the tasks of one lambda, first label first.';

-- SQLAlchemy sends a type with each text value. Without these casts its inserts fail.
create cast (text as tuskline.status) with inout as assignment;
create cast (varchar as tuskline.status) with inout as assignment;
create cast (text as tuskline.priority) with inout as assignment;
create cast (varchar as tuskline.priority) with inout as assignment;

create function tuskline.clock() returns timestamptz
language sql volatile as 'select clock_timestamp()';
comment on function tuskline.clock() is
  'The only clock: it decides what is due, and every time in a table comes from it. '
  'A verb reads it once.';

create table tuskline.lambda (
  name                text primary key check (name ~ '^[a-z][a-z0-9_]{0,62}$'),
  attempt_timeout     interval not null,
  max_attempts        smallint not null check (max_attempts >= 1),
  max_crashes         smallint not null check (max_crashes >= 1),
  retry_base          interval not null,
  retry_cap           interval not null,
  retention           interval not null,
  dead_retention      interval not null,
  cancelled_retention interval,
  dropped_retention   interval,
  fatal_retention     interval,
  archive             text     not null default 'none'
    check (archive in ('none', 'table', 'file')),
  direct              boolean  not null,
  max_payload_bytes   integer  not null check (max_payload_bytes between 1 and 1048576),
  max_backlog         integer  not null default 0 check (max_backlog >= 0),
  owner               name     not null default session_user,
  created_at          timestamptz not null default tuskline.clock(),
  altered_at          timestamptz not null default tuskline.clock());
comment on table tuskline.lambda is 'Defined lambdas. Change one with tuskline.alter_lambda().';
comment on column tuskline.lambda.name is 'Name by which tasks and workers refer to the lambda.';
comment on column tuskline.lambda.attempt_timeout is
  'Hard deadline of one attempt, at which the worker cancels it.';
comment on column tuskline.lambda.max_attempts is
  'Attempts that may end in a retriable failure before the task is dead.';
comment on column tuskline.lambda.max_crashes is
  'Worker deaths in a row that a task may be part of before it is dead.';
comment on column tuskline.lambda.retry_base is
  'Delay before the second attempt. It doubles each time, with 25 % jitter both ways.';
comment on column tuskline.lambda.retry_cap is 'Longest delay between two attempts, before jitter.';
comment on column tuskline.lambda.retention is
  'Retention of success, and of cancelled and dropped tasks without a retention of their own.';
comment on column tuskline.lambda.dead_retention is
  'Retention of dead tasks, and of fatal_failure without a retention of its own.';
comment on column tuskline.lambda.cancelled_retention is
  'Retention of cancelled tasks. Null: the same as retention.';
comment on column tuskline.lambda.dropped_retention is
  'Retention of dropped tasks. Null: the same as retention.';
comment on column tuskline.lambda.fatal_retention is
  'Retention of fatal_failure tasks. Null: the same as dead_retention.';
comment on column tuskline.lambda.archive is
  'Where its tasks go before they are deleted. none: nowhere. table: task_archive. '
  'file: JSON lines in the directory of tuskline serve --archive-dir; without one they stay.';
comment on column tuskline.lambda.direct is
  'True: the transaction that schedules a due task enqueues it. False: the store consumer does.';
comment on column tuskline.lambda.max_payload_bytes is
  'Largest payload that is accepted, in bytes of JSON text.';
comment on column tuskline.lambda.max_backlog is
  'Tasks that may wait in queues, in wait lists or behind gates before new ones are refused. '
  'Checked each second. 0: no bound.';
comment on column tuskline.lambda.owner is 'Role that defined it.';
comment on column tuskline.lambda.created_at is 'When it was defined.';
comment on column tuskline.lambda.altered_at is 'When it was last altered.';

create table tuskline.queue (
  queue_id          integer generated always as identity primary key,
  lambda            text not null references tuskline.lambda (name),
  priority          tuskline.priority not null,
  direct            boolean not null,
  max_payload_bytes integer not null,
  has_policies      boolean not null default false,
  is_full           boolean not null default false,
  unique (lambda, priority));
comment on table tuskline.queue is
  'One queue per lambda and priority. Its rows are in tuskline_core.queue_<queue_id>.';
comment on column tuskline.queue.queue_id is 'Number of the queue, part of the name of its table.';
comment on column tuskline.queue.lambda is 'Lambda whose tasks it holds.';
comment on column tuskline.queue.priority is 'Priority of the tasks it holds.';
comment on column tuskline.queue.direct is
  'lambda.direct, but false under a gate that is not a pause of the queue, a limit that is not by '
  'key, or a full backlog. Kept here so that scheduling reads one row.';
comment on column tuskline.queue.is_full is
  'True: the backlog of its lambda was full at the last count, so new tasks are refused.';
comment on column tuskline.queue.has_policies is
  'True: a gate that is not a pause of the queue, a limit or an ordering policy applies to it. The '
  'store consumer checks them.';
comment on column tuskline.queue.max_payload_bytes is
  'Copy of lambda.max_payload_bytes, so that scheduling reads one row.';

create sequence tuskline.queued_seq;
comment on sequence tuskline.queued_seq is 'Order of arrival in the queues.';

create table tuskline.queued (
  queue_id integer not null,
  bytes    integer not null default 0,
  seq      bigint  not null default nextval('tuskline.queued_seq'),
  task_id  bigint  not null
) partition by list (queue_id);
comment on table tuskline.queued is
  'Tasks that are ready to run. Its leaves are unlogged: after a crash rebuild_queues() fills them '
  'from task.';
comment on column tuskline.queued.queue_id is 'Queue, see tuskline.queue.';
comment on column tuskline.queued.bytes is
  'Size of the payload, for claims that are bounded in bytes; see payload_bytes().';
comment on column tuskline.queued.seq is 'Order of arrival. Numbers may commit out of order.';
comment on column tuskline.queued.task_id is
  'The task. The next claim skips and removes a row whose task is no longer enqueued.';

-- set_cell bounds both sequences of task ids to the range of the installation's cell.
create sequence tuskline.task_seq;
comment on sequence tuskline.task_seq is
  'Ids of tasks, by default and for tasks that are due at once. Bits 44 to 49 are the cell of the '
  'installation.';
create sequence tuskline.future_seq;
comment on sequence tuskline.future_seq is
  'Ids of tasks that are scheduled for later, from 2^50. Their own range keeps them out of the '
  'segments of due tasks, which then end sooner.';
create sequence tuskline.fence_seq;
comment on sequence tuskline.fence_seq is
  'Lease numbers, which are the fences of the tasks they cover. It never goes back.';
create sequence tuskline.executor_seq;
comment on sequence tuskline.executor_seq is
  'Executor numbers: one per process incarnation, never used twice.';

create table tuskline.task (
  id              bigint      not null default nextval('tuskline.task_seq'),
  fence           bigint      not null default 0,
  created_at      timestamptz not null default tuskline.clock(),
  -- The same interval as stalled_after().
  next_trigger_at timestamptz          default tuskline.clock() + interval '10 minutes',
  scheduled_at    timestamptz,
  started_at      timestamptz,
  finished_at     timestamptz,
  status          tuskline.status   not null default 'enqueued',
  priority        tuskline.priority not null default 'normal',
  attempt         smallint    not null default 0,
  crashes         smallint    not null default 0,
  flags           smallint    not null default 0,
  lambda          text        not null,
  collection      text,
  payload         json,
  ordering_key    text,
  limit_key       text,
  fairness_key    text,
  unique_key      text,
  traceparent     text
) partition by range (id);
comment on table tuskline.task is
  'Every task and its state: the truth. Insert (lambda, payload, ...) to schedule one. '
  'Partition task_<n> holds the ids n*2^24 to (n+1)*2^24-1.';
comment on column tuskline.task.id is 'Number of the task.';
comment on column tuskline.task.fence is
  'Number of the lease under which it was last claimed. A result with another fence is refused.';
comment on column tuskline.task.created_at is 'When it was scheduled.';
comment on column tuskline.task.next_trigger_at is
  'When it is checked again if nothing happens before. Null once terminal.';
comment on column tuskline.task.scheduled_at is 'When it is due. Null: at once.';
comment on column tuskline.task.started_at is
  'When its latest attempt was handed to a worker. Null: none was.';
comment on column tuskline.task.finished_at is 'When it became terminal. Null: it has not ended.';
comment on column tuskline.task.status is 'Its state, see the type tuskline.status.';
comment on column tuskline.task.priority is 'critical, high, normal or low.';
comment on column tuskline.task.attempt is
  'Attempts so far that ended in a result, and the present one.';
comment on column tuskline.task.crashes is
  'Worker deaths in a row while it was claimed. A result sets it to 0.';
comment on column tuskline.task.flags is
  'Sum of 1: it may hold permits. 2: its attempt is asked to stop. 4: it waits, or waited, for '
  'parents. Saves verbs a read of other tables.';
comment on column tuskline.task.lambda is 'Lambda that executes it.';
comment on column tuskline.task.collection is
  'Label of a subset of the lambda''s tasks. Null: none.';
comment on column tuskline.task.payload is 'Argument for the lambda. Null: none.';
comment on column tuskline.task.ordering_key is
  'Tasks of a lambda with one ordering key run one at a time, in order. Null: no order.';
comment on column tuskline.task.limit_key is
  'Key that limits by key count by: a customer, an account, a host. Null: they do not apply.';
comment on column tuskline.task.fairness_key is
  'Tenant under a fair limit. Null: the same as an empty text.';
comment on column tuskline.task.unique_key is
  'Unique key within the lambda. The first task holds it; set_unique() says what becomes of the '
  'next one. Null: none.';
comment on column tuskline.task.traceparent is
  'W3C trace context of the span that scheduled it: its attempts link to that span.';

-- Adds a level between task and its segments. An insert through it does not fire the trigger of
-- task, which is half of the cost of a single row.
create table tuskline_core.task_store
  partition of tuskline.task for values from (minvalue) to (maxvalue)
  partition by range (id);
comment on table tuskline_core.task_store is
  'All rows of tuskline.task, without the trigger that routes inserts. For schedule(), which '
  'routes its tasks itself.';

create type tuskline_core.exchanged as (
  refused           bigint[],
  deferred          bigint[],
  alive             boolean,
  lease_id          bigint,
  popped            integer[],
  first_seq         bigint[],
  last_seq          bigint[],
  oldest_writer_xid bigint,
  xid               bigint,
  task_id           bigint[],
  queue_index       smallint[],
  attempt           smallint[],
  crashes           smallint[],
  waited_ms         integer[],
  collection        text[],
  payload           json[],
  traceparent       text[],
  cut_at            integer);
comment on type tuskline_core.exchanged is
  'Answer of an exchange: about the results it brought, the claim, the queues, and each claimed '
  'task.';

create type tuskline_core.ended as (
  applied    integer,
  task_id    bigint[],
  status     tuskline.status[],
  attempt    smallint[],
  started_at timestamptz[],
  flagged    bigint[]);
comment on type tuskline_core.ended is
  'Tasks whose attempt has just ended. applied: how many. flagged: their end may have effects. '
  'If all attempts succeeded, task_id holds all given tasks, and status, attempt and started_at '
  'are null.';

create type tuskline_core.verdicts as (
  go          bigint[],
  permits     bigint[],
  stopped     bigint[],
  due         bigint[],
  again       bigint[],
  doomed      bigint[],
  outcome     tuskline.status[],
  error_class text[],
  message     text[]);
comment on type tuskline_core.verdicts is
  'Answer of the policies. go: may be enqueued or claimed. permits: tasks of go with permits. '
  'stopped: must wait and release permits. due: further tasks to enqueue now. again: tasks with '
  'work left. doomed: end with this outcome and reason.';

create table tuskline.segment (
  segment_no       bigint primary key,
  created_at       timestamptz not null default tuskline.clock(),
  opened_at        timestamptz,
  sealed_at        timestamptz,
  late_writers     text[],
  ripe_at          timestamptz,
  unarchived_since timestamptz);
comment on table tuskline.segment is
  'Partitions of tuskline.task. Made ahead of need and dropped whole after their retention.';
comment on column tuskline.segment.segment_no is 'n of tuskline_core.task_<n>.';
comment on column tuskline.segment.created_at is 'When the partition was made.';
comment on column tuskline.segment.opened_at is 'When its ids were first seen in use.';
comment on column tuskline.segment.late_writers is
  'Transactions, by their name in pg_locks, that may still commit rows into it. It is sealed after '
  'they have ended.';
comment on column tuskline.segment.ripe_at is
  'When it is worth reading again to see whether its retention is over. Null: now.';
comment on column tuskline.segment.unarchived_since is
  'Since when only a directory for file archives is missing to drop it.';
comment on column tuskline.segment.sealed_at is
  'When all its rows were found terminal and its ids used up. Queues are not rebuilt from it.';

create table tuskline_core.segment_guard ();
comment on table tuskline_core.segment_guard is
  'Locked by the transaction that makes segments. Holds no rows.';
create table tuskline_core.queue_guard ();
comment on table tuskline_core.queue_guard is
  'Locked by the transaction that makes queues. Holds no rows.';
create table tuskline_core.retention_guard ();
comment on table tuskline_core.retention_guard is
  'Locked by the janitor that retires segments, in a transaction of its own. Holds no rows.';

create table tuskline.task_kept (
  like tuskline.task including defaults including comments,
  primary key (id));
comment on table tuskline.task_kept is
  'Tasks that outlive their dropped segment. The view tasks shows both tables.';

create type tuskline_core.timer_kind as enum ('due', 'recheck', 'parents', 'effects');
comment on type tuskline_core.timer_kind is
  'due: the task, or its next attempt, is due. recheck: the head of a wait list tries again to '
  'acquire its permit. parents: the task checks its dependencies again. effects: effects of the '
  'end of the task or of its attempt are left.';

create table tuskline.timer (
  due     timestamptz not null,
  task_id bigint      not null,
  kind    tuskline_core.timer_kind not null default 'due',
  primary key (due, task_id, kind));
comment on table tuskline.timer is
  'Work of a store consumer on a task, and when it is due. enqueue_due() does it.';
comment on column tuskline.timer.due is 'When.';
comment on column tuskline.timer.task_id is 'The task.';
comment on column tuskline.timer.kind is 'Kind of the work, see the type timer_kind.';
