-- Retention: what tasks leave behind when they are archived, and runs that delete tasks before their time.

create table tuskline.task_archive (
  like tuskline.task including comments,
  failures    json,
  output      json,
  archived_at timestamptz not null,
  primary key (id));
comment on table  tuskline.task_archive is 'Tasks that were deleted, of lambdas whose archive is table: as they ended, with their failed attempts and their output. Tuskline never reads it nor deletes from it.';
comment on column tuskline.task_archive.failures is 'Its failed attempts, the first one first; null: none.';
comment on column tuskline.task_archive.output is 'What the lambda returned, if anything.';
comment on column tuskline.task_archive.archived_at is 'When it came here.';

create table tuskline.purge_run (
  purge_id    bigint generated always as identity primary key,
  lambda      text references tuskline.lambda (name),
  statuses    tuskline.status[] not null,
  collection  text,
  ended_until timestamptz not null,
  most        bigint,
  reason      text,
  author      name not null default session_user,
  begun_at    timestamptz not null,
  mark        bigint not null default 0,
  looked      bigint not null default 0,
  purged      bigint not null default 0,
  spared      bigint not null default 0,
  state       text not null default 'running' check (state in ('running', 'done', 'stopped')),
  ended_at    timestamptz
) with (fillfactor = 50);
comment on table  tuskline.purge_run is 'Runs that delete tasks before their retention is over, and how far each has come. Begin one with start_purge(), go on with advance_purge() until it is not running.';
comment on sequence tuskline.purge_run_purge_id_seq is 'Numbers of such runs.';
comment on column tuskline.purge_run.purge_id is 'Number of the run.';
comment on column tuskline.purge_run.lambda is 'Only tasks of this lambda; null: of all.';
comment on column tuskline.purge_run.statuses is 'Only tasks that ended so.';
comment on column tuskline.purge_run.collection is 'Only of this collection; null: of all and of none.';
comment on column tuskline.purge_run.ended_until is 'Only tasks that had ended by then.';
comment on column tuskline.purge_run.most is 'How many at most; null: all.';
comment on column tuskline.purge_run.reason is 'Why, in its author''s words.';
comment on column tuskline.purge_run.author is 'Role that began it.';
comment on column tuskline.purge_run.begun_at is 'When.';
comment on column tuskline.purge_run.mark is 'Id up to which everything has been looked at.';
comment on column tuskline.purge_run.looked is 'Tasks looked at so far, of any lambda.';
comment on column tuskline.purge_run.purged is 'Tasks deleted so far.';
comment on column tuskline.purge_run.spared is 'Tasks that it is about and left alone, because somebody needs them or had them locked.';
comment on column tuskline.purge_run.state is 'running, done or stopped.';
comment on column tuskline.purge_run.ended_at is 'When it was done or stopped.';
