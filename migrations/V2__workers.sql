-- Tables of workers: their processes, the leases under which they hold tasks, requests to stop an
-- attempt, and the results of attempts.

create table tuskline.executor (
  executor_id bigint primary key,
  host        text not null,
  pid         integer not null,
  lambdas     text[] not null,
  sdk_version text not null,
  role        name not null default session_user,
  lease       interval not null,
  connections integer,
  beats       bigint not null default 0,
  silent_ms   integer not null default 0,
  started_at  timestamptz not null,
  beat_at     timestamptz not null,
  expires_at  timestamptz not null,
  draining    boolean not null default false,
  ended_at    timestamptz,
  end_reason  text
) with (fillfactor = 50);
comment on table tuskline.executor is 'Worker processes, one row per incarnation.';
comment on column tuskline.executor.executor_id is 'Number of this incarnation.';
comment on column tuskline.executor.host is 'Host name that the worker gave.';
comment on column tuskline.executor.pid is 'Its process id there.';
comment on column tuskline.executor.lambdas is 'Lambdas it serves.';
comment on column tuskline.executor.sdk_version is 'Version of the SDK it was built with.';
comment on column tuskline.executor.role is 'Role it logged in with.';
comment on column tuskline.executor.lease is
  'How long it must be silent before its tasks run elsewhere.';
comment on column tuskline.executor.connections is
  'Most connections that it keeps, without those that its bodies open. Null: it gave no number.';
comment on column tuskline.executor.silent_ms is
  'Least time since its last heartbeat, noted by store consumers. So the observation survives a '
  'store consumer that dies.';
comment on column tuskline.executor.beats is
  'Heartbeats so far. A store consumer that sees no change for a whole lease, by its own clock, '
  'may end the executor.';
comment on column tuskline.executor.started_at is 'When it registered.';
comment on column tuskline.executor.beat_at is 'When its last heartbeat came.';
comment on column tuskline.executor.expires_at is
  'Its last heartbeat plus its lease, by the clock of the database, which may step. For people, '
  'and for rescue() without p_silent.';
comment on column tuskline.executor.draining is 'True once it stops claiming.';
comment on column tuskline.executor.ended_at is
  'When it stopped, or was ended. Its tasks are taken away only after that.';
comment on column tuskline.executor.end_reason is
  'stopped. expired: silent for its lease. adopted: the installation got another name. '
  'copied: this database is a copy of the one it worked for. '
  'replaced: the same process has another number now.';

create table tuskline_core.live_executor (
  executor_id bigint primary key,
  lease       interval not null);
comment on table tuskline_core.live_executor is
  'Executors that have not ended, for claims. Its rows never change. Each heartbeat changes a row '
  'of executor; while an old snapshot exists, a claim would read all versions.';
comment on column tuskline_core.live_executor.executor_id is 'The executor.';
comment on column tuskline_core.live_executor.lease is 'Copy of executor.lease.';

create table tuskline.lease (
  executor_id bigint not null,
  lease_id    bigint not null,
  task_ids    bigint[] not null,
  primary key (executor_id, lease_id));
comment on table tuskline.lease is
  'One row per claimed batch. After its executor has ended, rescue() puts the tasks back.';
-- Stores the ids uncompressed: compressing 500 of them takes an eighth of the whole cost of
-- claiming and reporting 500 tasks.
alter table tuskline.lease alter column task_ids set storage external;
comment on column tuskline.lease.executor_id is 'Executor that claimed the batch.';
comment on column tuskline.lease.lease_id is 'Number of the lease: the fence of its tasks.';
comment on column tuskline.lease.task_ids is
  'The tasks, in id order. Some may have finished already.';

create table tuskline.cancellation (
  task_id      bigint primary key,
  fence        bigint not null,
  requested_at timestamptz not null,
  requested_by name not null default session_user,
  reason       text);
comment on table tuskline.cancellation is
  'Requests to stop a task that a worker holds. The worker learns of one with its next heartbeat, '
  'or from a wake-up.';
comment on column tuskline.cancellation.task_id is 'The task.';
comment on column tuskline.cancellation.fence is 'The attempt that must stop.';
comment on column tuskline.cancellation.requested_at is 'When the request was made.';
comment on column tuskline.cancellation.requested_by is 'Role that made the request.';
comment on column tuskline.cancellation.reason is 'Reason, as the requester gave it.';

create table tuskline.task_failure (
  task_id     bigint not null,
  fence       bigint not null,
  attempt     smallint not null,
  executor_id bigint not null,
  error_class text not null,
  message     text not null,
  fingerprint text not null,
  failed_at   timestamptz not null,
  outcome     tuskline.status,
  started_at  timestamptz,
  primary key (task_id, fence));
comment on table tuskline.task_failure is 'One row per failed attempt.';
comment on column tuskline.task_failure.task_id is 'The task.';
comment on column tuskline.task_failure.fence is 'Its fence in that attempt.';
comment on column tuskline.task_failure.attempt is 'Number of the attempt.';
comment on column tuskline.task_failure.executor_id is
  'Worker that ran the attempt. 0: there was no attempt.';
comment on column tuskline.task_failure.error_class is
  'error, fatal, panic, decode, timeout, crash or a class that the lambda gave.';
comment on column tuskline.task_failure.message is 'Error message, at most 8 KB.';
comment on column tuskline.task_failure.fingerprint is
  'Hash of class and message with the digits masked: equal for failures of one cause.';
comment on column tuskline.task_failure.failed_at is 'When it failed.';
comment on column tuskline.task_failure.outcome is
  'retriable_failure, fatal_failure or dead. Null: its worker died, or a gate, an ordering policy '
  'or a key ended the task without an attempt.';
comment on column tuskline.task_failure.started_at is
  'When the attempt was handed to a worker. Null: there was no attempt.';

create table tuskline.task_output (
  task_id     bigint primary key,
  output      json not null,
  finished_at timestamptz not null);
comment on table tuskline.task_output is 'Values that lambdas returned, if they returned one.';
comment on column tuskline.task_output.task_id is 'The task.';
comment on column tuskline.task_output.output is 'The value.';
comment on column tuskline.task_output.finished_at is 'When the task finished.';
