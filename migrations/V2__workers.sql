-- Tables of workers: their processes, the leases under which they hold tasks, requests to stop an
-- attempt, and the results of attempts. Tables of the installation: its recovery after a restart or
-- a restore, its name, the audit, and the functions that are installed.

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
  'When it stopped, or was ended. Its tasks are taken away only after that. Null: it has not '
  'ended.';
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

create unlogged table tuskline_core.queues_complete (
  is_only boolean primary key default true check (is_only),
  since   timestamptz not null);
comment on table tuskline_core.queues_complete is
  'Has one row while every enqueued task has its row in a queue. Empty after a crash and on a '
  'promoted standby: then rebuild_queues() fills the queues before anything is claimed.';
comment on column tuskline_core.queues_complete.is_only is 'True: there is at most one row.';
comment on column tuskline_core.queues_complete.since is 'When the queues were last filled.';

create table tuskline_core.incarnation (
  is_only           boolean primary key default true check (is_only),
  started_at        timestamptz not null,
  database_oid      oid not null,
  system_identifier bigint,
  written_by        xid not null default '0',
  verified_at       timestamptz not null,
  claims_from       timestamptz not null);
comment on table tuskline_core.incarnation is
  'One row: the life of the database that issued the last fences and executor numbers. In another '
  'life rebuild_queues() raises the numbers first. See the view verified_incarnation.';
comment on column tuskline_core.incarnation.is_only is 'True: there is at most one row.';
comment on column tuskline_core.incarnation.started_at is
  'When the server was started, by pg_postmaster_start_time().';
comment on column tuskline_core.incarnation.database_oid is
  'Oid of the database. A copy from a template has a different one.';
comment on column tuskline_core.incarnation.system_identifier is
  'The cluster, by pg_control_system(). Null: the owner may not read it.';
comment on column tuskline_core.incarnation.written_by is
  'Transaction that wrote this row: its xmin, unless the row was restored from a dump or '
  'replicated.';
comment on column tuskline_core.incarnation.verified_at is
  'When this life began for the task store. Observations of executors from another life are void.';
comment on column tuskline_core.incarnation.claims_from is
  'Nothing is claimed before. In a copy, workers of the original may still run its tasks for one '
  'lease.';

create table tuskline_core.late_commit (
  gid         text not null,
  prepared_at timestamptz not null,
  segments    bigint[] not null,
  primary key (gid, prepared_at));
comment on table tuskline_core.late_commit is
  'Transactions that were prepared when the queues were rebuilt. After one has ended, '
  'rebuild_queues() reads its segments again.';
comment on column tuskline_core.late_commit.gid is 'Its name: pg_prepared_xacts.gid.';
comment on column tuskline_core.late_commit.prepared_at is
  'When it was prepared: pg_prepared_xacts.prepared.';
comment on column tuskline_core.late_commit.segments is 'Segments that it has written to.';

create table tuskline_core.recovery_guard ();
comment on table tuskline_core.recovery_guard is
  'Locked by the transaction that rebuilds the queues. Holds no rows.';

create table tuskline.installation (
  is_only  boolean primary key default true check (is_only),
  name     text not null default 'default' check (name ~ '^[a-z][a-z0-9_]{0,62}$'),
  cell     smallint not null default 0 check (cell between 0 and 63),
  named_by name not null default session_user,
  named_at timestamptz not null default tuskline.clock());
insert into tuskline.installation default values;
comment on table tuskline.installation is
  'One row: name and cell of this installation. Workers and servers with another name get no '
  'work, so a restored copy of production runs nothing. Change the name with tuskline.adopt().';
comment on column tuskline.installation.is_only is 'True: there is one row.';
comment on column tuskline.installation.name is
  'Name that every worker and server must give (TUSKLINE_INSTALLATION). default: never named.';
comment on column tuskline.installation.cell is
  'Number of its range of ids, 0 to 63; see cell_of(). Installations of different cells never '
  'issue the same id. The first migration sets it for good.';
comment on column tuskline.installation.named_by is 'Role that gave the name.';
comment on column tuskline.installation.named_at is 'When the name was given.';

create table tuskline.audit (
  at      timestamptz not null,
  actor   name not null default session_user,
  verb    text not null,
  subject text not null,
  detail  text);
alter table tuskline.audit replica identity full; -- see stamp
comment on table tuskline.audit is 'Acts of operators and owners, append-only.';
comment on column tuskline.audit.at is 'When.';
comment on column tuskline.audit.actor is 'Role that acted.';
comment on column tuskline.audit.verb is 'define_lambda, alter_lambda, cancel, ...';
comment on column tuskline.audit.subject is 'Lambda, task or other object.';
comment on column tuskline.audit.detail is 'Arguments of the act.';

create table tuskline_core.stamp (
  schema_version integer not null,
  digest         text not null,
  applied_by     text not null,
  applied_at     timestamptz not null);
-- Without a key and without this, a publication FOR ALL TABLES refuses every delete.
alter table tuskline_core.stamp replica identity full;
comment on table tuskline_core.stamp is
  'Installed set of functions. A binary never replaces a newer set.';
comment on column tuskline_core.stamp.schema_version is
  'Number of the set. It grows with every change of meaning.';
comment on column tuskline_core.stamp.digest is 'Hash of the function texts.';
comment on column tuskline_core.stamp.applied_by is 'Version of the binary that installed it.';
comment on column tuskline_core.stamp.applied_at is 'When it was installed.';
