-- Tables of chains: tasks that depend on tasks. Only tasks of a chain touch these tables.

create table tuskline_core.followed_lambda (lambda text primary key);
comment on table tuskline_core.followed_lambda is
  'Lambdas for whose tasks a dependent or a session (await_end) may wait. Written at the first '
  'use and kept. Results of all remaining lambdas cost nothing more.';
comment on column tuskline_core.followed_lambda.lambda is 'The lambda.';

create table tuskline.chain_task (
  task_id           bigint primary key,
  chain_id          bigint not null,
  name              text   not null,
  depth             integer not null,
  on_parent_failure text   not null check (on_parent_failure in ('cancel', 'hold', 'run')),
  waits_for         bigint);
create index chain_task_chain on tuskline.chain_task (chain_id, task_id);
comment on table tuskline.chain_task is
  'Tasks with dependencies, present or past, and their parents. Written by schedule_chain().';
comment on index tuskline.chain_task_chain is 'Tasks of one chain.';
comment on column tuskline.chain_task.task_id is 'The task.';
comment on column tuskline.chain_task.chain_id is 'Its chain: the id of the task that began it.';
comment on column tuskline.chain_task.name is 'Its name in the chain.';
comment on column tuskline.chain_task.depth is
  'Tasks before it on the longest path. Above 1000, only tasks that still waited are counted.';
comment on column tuskline.chain_task.on_parent_failure is
  'When a parent fails for good. cancel: cancel the task. hold: wait until the parent is retried. '
  'run: run the task anyway.';
comment on column tuskline.chain_task.waits_for is
  'Parent whose end it watches: the last one that had not ended at the last check. Null: it waits '
  'for none.';

create table tuskline.dependency (
  task_id   bigint not null,
  parent_id bigint not null,
  condition text   not null check (condition in ('success', 'failure', 'always')),
  outcome   tuskline.status,
  primary key (task_id, parent_id));
create index dependency_parent on tuskline.dependency (parent_id);
comment on table tuskline.dependency is 'Dependencies of tasks on parent tasks.';
comment on index tuskline.dependency_parent is 'Dependents of one task.';
comment on column tuskline.dependency.task_id is 'Dependent task.';
comment on column tuskline.dependency.parent_id is 'Task that it waits for.';
comment on column tuskline.dependency.condition is
  'End that it waits for: success, failure (any other end), or always (either).';
comment on column tuskline.dependency.outcome is
  'How the parent ended. Null: it has not ended, or was retried.';

create table tuskline.unmet_dependency (
  task_id   bigint not null,
  parent_id bigint not null,
  primary key (task_id, parent_id));
comment on table tuskline.unmet_dependency is
  'Dependencies whose parent ended otherwise than the task needs. Only a retry of the parent can '
  'meet one.';
comment on column tuskline.unmet_dependency.task_id is 'Dependent task.';
comment on column tuskline.unmet_dependency.parent_id is 'Task that ended.';

create type tuskline_core.chained as (
  no                integer,
  name              text,
  depth             integer,
  id                bigint,
  lambda            text,
  payload           json,
  priority          tuskline.priority,
  collection        text,
  ordering_key      text,
  limit_key         text,
  fairness_key      text,
  traceparent       text,
  due               timestamptz,
  on_parent_failure text,
  parents           integer[],
  parent_ids        bigint[],
  conditions        text[]);
comment on type tuskline_core.chained is
  'Task of a chain that is being scheduled: its number in the call, and its parents by number or '
  'by id.';

-- Tables of unique keys. The key of a task is checked once, when the task is scheduled.

create table tuskline.unique_policy (
  lambda  text primary key references tuskline.lambda (name),
  scope   text not null check (scope in ('queued', 'running', 'period', 'forever')),
  period  interval check ((scope = 'period') = (period is not null) and period > '0'),
  outcome text not null check (outcome in ('keep', 'replace', 'postpone', 'reject')),
  author  name not null default session_user,
  set_at  timestamptz not null);
comment on table tuskline.unique_policy is
  'Meaning of unique_key for a lambda. Set with set_unique().';
comment on column tuskline.unique_policy.lambda is 'The lambda.';
comment on column tuskline.unique_policy.scope is
  'How long a task holds its key. queued: until a worker claims it. running: until it ends. '
  'period: for a time from its scheduling. forever: beyond its retention.';
comment on column tuskline.unique_policy.period is
  'Scope period only, else null: how long.';
comment on column tuskline.unique_policy.outcome is
  'Treatment of one more task with the key. reject: the call is refused. Otherwise the id of the '
  'holder is returned; if it waits, replace gives it the new payload, postpone the new due time, '
  'keep nothing.';
comment on column tuskline.unique_policy.author is 'Role that set it last.';
comment on column tuskline.unique_policy.set_at is 'When it was set last.';

create table tuskline.definition (
  lambda     text primary key references tuskline.lambda (name),
  version    integer[] not null,
  parts      jsonb not null,
  author     name not null default session_user,
  defined_at timestamptz not null);
comment on table tuskline.definition is
  'Last definition of each lambda that an application has brought with define().';
comment on column tuskline.definition.lambda is 'The lambda.';
comment on column tuskline.definition.version is
  'Version of the application, as numbers: 1.4.2 is {1,4,2}. Empty: it gave none.';
comment on column tuskline.definition.parts is
  'Settings and parts that it defined. The next call of define() applies what differs from these.';
comment on column tuskline.definition.author is 'Role that called define().';
comment on column tuskline.definition.defined_at is 'When it was defined last.';

create table tuskline.unique_key (
  lambda  text not null,
  key     text not null,
  task_id bigint not null,
  scope   text not null,
  until   timestamptz,
  primary key (lambda, key)
) with (fillfactor = 70);
comment on table tuskline.unique_key is
  'Last holder of each unique key. The state of that task or the clock says whether it still holds '
  'the key. The janitor deletes keys that are free.';
comment on column tuskline.unique_key.lambda is 'The lambda.';
comment on column tuskline.unique_key.key is 'The key.';
comment on column tuskline.unique_key.task_id is 'Task that acquired the key last.';
comment on column tuskline.unique_key.scope is 'unique_policy.scope when it was scheduled.';
comment on column tuskline.unique_key.until is 'Scope period only: when the key becomes free.';

-- Tables of progress: reports of running tasks, and sessions that wait for the end of a task.

create table tuskline.progress (
  task_id    bigint primary key,
  fence      bigint not null,
  percent    real check (percent between 0 and 100),
  message    text,
  checkpoint json,
  said_at    timestamptz not null
) with (fillfactor = 50);
comment on table tuskline.progress is
  'Progress that long tasks report, one row per task. Kept from one attempt to the next.';
comment on column tuskline.progress.task_id is 'The task.';
comment on column tuskline.progress.fence is 'Fence of the attempt that reported last.';
comment on column tuskline.progress.percent is 'Percentage done.';
comment on column tuskline.progress.message is 'Message of the task, at most 8 KB.';
comment on column tuskline.progress.checkpoint is
  'State from which the next attempt continues, at most 1 MiB.';
comment on column tuskline.progress.said_at is 'When it was reported.';

create table tuskline_core.awaited (
  task_id bigint primary key,
  since   timestamptz not null);
comment on table tuskline_core.awaited is
  'Tasks for whose end a session waits. Their end is notified on channel tuskline_ended_<task_id>.';
comment on column tuskline_core.awaited.task_id is 'The task.';
comment on column tuskline_core.awaited.since is
  'When a session began to wait. The janitor deletes the row after a day.';

-- Table of operations: one action on all tasks that a filter selects, a batch at a time.

create table tuskline.operation (
  operation_id bigint generated by default as identity primary key,
  action       text not null check (
    action in ('cancel', 'retry', 'priority', 'collection', 'purge', 'redrive', 'erase')),
  lambda       text references tuskline.lambda (name),
  value        text,
  collection   text,
  priority     tuskline.priority,
  statuses     tuskline.status[] not null,
  fingerprint  text,
  ids          bigint[],
  key          text,
  field        text[],
  equals       text check ((field is null) = (equals is null)),
  created_from timestamptz,
  created_to   timestamptz not null,
  ended_to     timestamptz,
  max_tasks    bigint,
  per_second   double precision,
  canary       boolean not null,
  payload      json,
  writes_files boolean not null,
  reason       text,
  author       name not null,
  begun_at     timestamptz not null,
  next_at      timestamptz not null,
  mark         bigint not null,
  behind       bigint[] not null,
  met          boolean not null,
  step         integer,
  watched      bigint[] not null,
  looked       bigint not null,
  changed      bigint not null,
  spared       bigint not null,
  state        text not null check (state in ('running', 'done', 'died_again', 'stopped')),
  note         text,
  ended_at     timestamptz check ((ended_at is null) = (state = 'running'))
) with (fillfactor = 50);
comment on table tuskline.operation is
  'Operations on many tasks and their progress. Begin one with start_operation(); store consumers '
  'carry it out, one at a time. Read the view operations.';
comment on sequence tuskline.operation_operation_id_seq is 'Numbers of operations.';
comment on column tuskline.operation.operation_id is 'Number of the operation.';
comment on column tuskline.operation.action is
  'cancel, retry, priority or collection (a new one for waiting tasks), purge (delete ended tasks), '
  'redrive, erase (delete tasks everywhere).';
comment on column tuskline.operation.lambda is 'Only tasks of this lambda. Null: all.';
comment on column tuskline.operation.value is
  'The new priority or collection. Null: the action sets neither.';
comment on column tuskline.operation.collection is
  'Only tasks of this collection. Null: all, also those without one.';
comment on column tuskline.operation.priority is 'Only tasks of this priority. Null: all.';
comment on column tuskline.operation.statuses is 'Only tasks in one of these statuses.';
comment on column tuskline.operation.fingerprint is
  'Only dead letters whose last failure has this fingerprint. Null: all.';
comment on column tuskline.operation.ids is 'Only these tasks. Null: all.';
comment on column tuskline.operation.key is
  'Only tasks with this ordering, limit, fairness or unique key. Null: all. Once an erase has '
  'ended: the SHA-256 of the key.';
comment on column tuskline.operation.field is
  'Path of the field of the payload that has the value equals. Null: all tasks.';
comment on column tuskline.operation.equals is
  'Value of that field, as text. Once an erase has ended: the SHA-256 of the value.';
comment on column tuskline.operation.created_from is
  'Only tasks scheduled at this time or later. Null: no bound.';
comment on column tuskline.operation.created_to is
  'Only tasks scheduled by this time; at the latest the begin of the operation.';
comment on column tuskline.operation.ended_to is
  'Only tasks that ended by this time. Null: the operation is for tasks that have not ended.';
comment on column tuskline.operation.max_tasks is 'Most tasks to change. Null: all.';
comment on column tuskline.operation.per_second is
  'Tasks to change per second. Null: as fast as possible.';
comment on column tuskline.operation.canary is
  'True: a redrive releases 1 task, then 10, then the rest, and stops when one dies again.';
comment on column tuskline.operation.payload is
  'New payload of the one task in ids. Null: it keeps its payload.';
comment on column tuskline.operation.writes_files is
  'True: the client that carries out a purge archives tasks to files, and store consumers skip it.';
comment on column tuskline.operation.reason is 'Reason, as its author gave it. Null: none.';
comment on column tuskline.operation.author is 'Role that began it.';
comment on column tuskline.operation.begun_at is 'When it began.';
comment on column tuskline.operation.next_at is 'When it may continue.';
comment on column tuskline.operation.mark is 'Id up to which every task was examined.';
comment on column tuskline.operation.behind is
  'Ids up to the mark that another transaction had locked. The operation returns to them.';
comment on column tuskline.operation.met is
  'True: a redrive met a task since its last start from the lowest id. It then starts once more, '
  'for tasks whose end was committed late.';
comment on column tuskline.operation.step is
  'Tasks that the current step of a canary releases: 1 or 10. Null: the rest.';
comment on column tuskline.operation.watched is
  'Tasks of the current step of a canary. The operation waits for their ends.';
comment on column tuskline.operation.looked is 'Tasks examined so far.';
comment on column tuskline.operation.changed is 'Tasks changed so far.';
comment on column tuskline.operation.spared is
  'Tasks that a purge left: needed by a task, a session or a redrive, or to be archived to a file.';
comment on column tuskline.operation.state is
  'running. done: nothing is left to do. died_again: stopped by its canary. stopped: by '
  'stop_operation().';
comment on column tuskline.operation.note is 'Reason of its end, or the last error. Null: none.';
comment on column tuskline.operation.ended_at is 'When it ended. Null: it is running.';
