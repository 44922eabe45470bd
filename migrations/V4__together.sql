-- Chains: tasks that wait for others. Touched by tasks of a chain only.

create table tuskline_core.followed_lambda (lambda text primary key);
comment on table  tuskline_core.followed_lambda is
  'Lambdas whose tasks may have followers: a task that waits for one of them, or a session (await_end). Written at the first use and kept, so that results of other lambdas cost nothing more.';
comment on column tuskline_core.followed_lambda.lambda is 'The lambda.';

create table tuskline.chain_task (
  task_id           bigint primary key,
  chain_id          bigint not null,
  name              text   not null,
  depth             integer not null,
  on_parent_failure text   not null check (on_parent_failure in ('cancel', 'hold', 'run')),
  waits_for         bigint);
create index chain_task_chain on tuskline.chain_task (chain_id, task_id);
comment on table  tuskline.chain_task is 'Tasks that wait, or waited, for others, and those that they wait for. Made by schedule_chain.';
comment on index  tuskline.chain_task_chain is 'The tasks of a chain.';
comment on column tuskline.chain_task.task_id is 'The task.';
comment on column tuskline.chain_task.chain_id is 'Its chain: the number of the task that began it.';
comment on column tuskline.chain_task.name is 'Its name in the chain.';
comment on column tuskline.chain_task.depth is 'Tasks before it on the longest way from the beginning; beyond 1000, of those that still waited.';
comment on column tuskline.chain_task.on_parent_failure is 'When one of those it waits for fails for good: cancel it, hold it until that one is retried, or run it all the same.';
comment on column tuskline.chain_task.waits_for is 'The parent whose end it is watching for: the last one that had not ended when somebody looked. Null: it waits for none.';

create table tuskline.dependency (
  task_id   bigint not null,
  parent_id bigint not null,
  condition text   not null check (condition in ('success', 'failure', 'always')),
  outcome   tuskline.status,
  primary key (task_id, parent_id));
create index dependency_parent on tuskline.dependency (parent_id);
comment on table  tuskline.dependency is 'Which task waits for which.';
comment on index  tuskline.dependency_parent is 'Who waits for a task.';
comment on column tuskline.dependency.task_id is 'Who waits.';
comment on column tuskline.dependency.parent_id is 'For whom.';
comment on column tuskline.dependency.condition is 'For what end: success, failure (any other), or always (either).';
comment on column tuskline.dependency.outcome is 'How the parent ended; null: it has not, or was retried.';

create table tuskline.unmet_dependency (
  task_id   bigint not null,
  parent_id bigint not null,
  primary key (task_id, parent_id));
comment on table  tuskline.unmet_dependency is 'Dependencies that cannot be met any more, unless the parent is retried: it ended otherwise than the task needs.';
comment on column tuskline.unmet_dependency.task_id is 'Who waits.';
comment on column tuskline.unmet_dependency.parent_id is 'Who ended.';

create type tuskline_core.chained as (
  no integer, name text, depth integer, id bigint, lambda text, payload json, priority tuskline.priority, collection text,
  ordering_key text, limit_key text, fairness_key text, due timestamptz, on_parent_failure text,
  parents integer[], parent_ids bigint[], conditions text[]);
comment on type tuskline_core.chained is 'A task of a chain that is being scheduled: its place in the call, and whom it waits for, by place or by id.';

-- Unique keys: asked when a task with one is scheduled, and never again.

create table tuskline.unique_rule (
  lambda  text primary key references tuskline.lambda (name),
  scope   text not null check (scope in ('queued', 'running', 'period', 'forever')),
  period  interval check ((scope = 'period') = (period is not null) and period > '0'),
  outcome text not null check (outcome in ('keep', 'replace', 'postpone', 'reject')),
  author  name not null default session_user,
  set_at  timestamptz not null);
comment on table  tuskline.unique_rule is 'What unique_key means to a lambda. Set with set_unique().';
comment on column tuskline.unique_rule.lambda is 'The lambda.';
comment on column tuskline.unique_rule.scope is 'How long a task holds its key. queued: until a worker claims it. running: until it ends. period: so long from its scheduling. forever: beyond its retention.';
comment on column tuskline.unique_rule.period is 'Of period: how long.';
comment on column tuskline.unique_rule.outcome is 'What becomes of another task with the key. keep: the first stays as it is. replace: it gets the new payload. postpone: it gets the new due time. These while it waits, and its id is returned. reject: the call is refused.';
comment on column tuskline.unique_rule.author is 'Role that set it.';
comment on column tuskline.unique_rule.set_at is 'When it was set.';

create table tuskline.unique_key (
  lambda  text not null,
  key     text not null,
  task_id bigint not null,
  scope   text not null,
  until   timestamptz,
  primary key (lambda, key)
) with (fillfactor = 70);
comment on table  tuskline.unique_key is 'Who held each unique key last. Whether he still does, the state of his task says, or the clock; the janitor deletes what nobody holds.';
comment on column tuskline.unique_key.lambda is 'The lambda.';
comment on column tuskline.unique_key.key is 'The key.';
comment on column tuskline.unique_key.task_id is 'The task that holds it.';
comment on column tuskline.unique_key.scope is 'unique_rule.scope when it was scheduled.';
comment on column tuskline.unique_key.until is 'Of period: until when.';

-- Progress: what a running body tells of itself, and what its next attempt begins with; and who waits for
-- the end of tasks.

create table tuskline.progress (
  task_id    bigint primary key,
  fence      bigint not null,
  percent    real check (percent between 0 and 100),
  message    text,
  checkpoint json,
  said_at    timestamptz not null
) with (fillfactor = 50);
comment on table  tuskline.progress is 'How far long tasks have come, in their own words, one row for each that says so. Kept from one attempt to the next.';
comment on column tuskline.progress.task_id is 'The task.';
comment on column tuskline.progress.fence is 'The attempt that said it last.';
comment on column tuskline.progress.percent is 'How much is done.';
comment on column tuskline.progress.message is 'What it is at, at most 8 KB.';
comment on column tuskline.progress.checkpoint is 'What the next attempt needs to go on from here, at most 1 MiB.';
comment on column tuskline.progress.said_at is 'When.';

create table tuskline_core.awaited (
  task_id bigint primary key,
  since   timestamptz not null);
comment on table  tuskline_core.awaited is 'Tasks whose end somebody waits for: it is notified on channel tuskline_ended_<task_id>.';
comment on column tuskline_core.awaited.task_id is 'The task.';
comment on column tuskline_core.awaited.since is 'Since when. After a day the janitor forgets it.';

-- Operations: one act on all tasks that a filter names, a batch at a time.

create table tuskline.operation (
  operation_id bigint generated by default as identity primary key,
  action       text not null check (
    action in ('cancel', 'retry', 'priority', 'collection', 'purge', 'redrive')),
  lambda       text references tuskline.lambda (name),
  value        text,
  collection   text,
  priority     tuskline.priority,
  statuses     tuskline.status[] not null,
  fingerprint  text,
  ids          bigint[],
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
comment on table  tuskline.operation is
  'Operations on many tasks, and how far each has come. Begin one with start_operation(); store consumers carry it out, one at a time. Read the view operations.';
comment on sequence tuskline.operation_operation_id_seq is 'Numbers of operations.';
comment on column tuskline.operation.operation_id is 'Number of the operation.';
comment on column tuskline.operation.action is
  'cancel, retry, priority or collection (a new one for tasks that wait), purge (delete), redrive.';
comment on column tuskline.operation.lambda is 'Only tasks of this lambda; null: of all.';
comment on column tuskline.operation.value is 'The new priority or collection.';
comment on column tuskline.operation.collection is
  'Only tasks of this collection; null: of all and of none.';
comment on column tuskline.operation.priority is 'Only tasks of this priority; null: of all.';
comment on column tuskline.operation.statuses is 'Only tasks in one of these statuses.';
comment on column tuskline.operation.fingerprint is
  'Only dead letters whose last failure has this fingerprint; null: all.';
comment on column tuskline.operation.ids is 'Only these tasks; null: all.';
comment on column tuskline.operation.created_from is
  'Only tasks scheduled from then on; null: from the beginning.';
comment on column tuskline.operation.created_to is
  'Only tasks scheduled by then; not after the operation began.';
comment on column tuskline.operation.ended_to is
  'Only tasks that had ended by then; null: the operation is for tasks that have not ended.';
comment on column tuskline.operation.max_tasks is 'How many tasks to change at most; null: all.';
comment on column tuskline.operation.per_second is
  'How many tasks to change a second; null: as fast as possible.';
comment on column tuskline.operation.canary is
  'Whether a redrive releases 1 task, then 10, then the rest, and stops when one dies again.';
comment on column tuskline.operation.payload is
  'New payload of the one task of ids; null: it keeps its own.';
comment on column tuskline.operation.writes_files is
  'Whether the client that carries out a purge archives tasks to files. Store consumers skip it.';
comment on column tuskline.operation.reason is 'Why, in the words of the author.';
comment on column tuskline.operation.author is 'Role that began it.';
comment on column tuskline.operation.begun_at is 'When it began.';
comment on column tuskline.operation.next_at is 'When it may go on.';
comment on column tuskline.operation.mark is 'Id up to which every task was looked at.';
comment on column tuskline.operation.behind is
  'Ids up to the mark that another transaction had locked: the operation comes back to them.';
comment on column tuskline.operation.met is
  'Whether a redrive met a task since its walk last began. Then it walks once more, for tasks whose end was committed late.';
comment on column tuskline.operation.step is
  'How many tasks the present step of a canary releases: 1 or 10; null: the rest.';
comment on column tuskline.operation.watched is
  'Tasks of the present step of a canary, whose ends it waits for.';
comment on column tuskline.operation.looked is 'Tasks looked at so far.';
comment on column tuskline.operation.changed is 'Tasks changed so far.';
comment on column tuskline.operation.spared is
  'Tasks that a purge left alone: needed by a task, a session or a redrive, or bound for a file.';
comment on column tuskline.operation.state is
  'running; done: nothing is left to do; died_again: the canary stopped it; stopped: by stop_operation().';
comment on column tuskline.operation.note is 'Why it ended so, or which error it met last.';
comment on column tuskline.operation.ended_at is 'When it ended; null: it is running.';
