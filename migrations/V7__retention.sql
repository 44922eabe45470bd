-- Table of retention: the archive of deleted tasks.

create table tuskline.task_archive (
  like tuskline.task including comments,
  failures    json,
  output      json,
  archived_at timestamptz not null,
  primary key (id));
comment on table tuskline.task_archive is
  'Deleted tasks of lambdas whose archive is table: their last state, failed attempts and output. '
  'Only an erase reads it or deletes from it.';
comment on column tuskline.task_archive.failures is
  'Its failed attempts, the first one first. Null: none.';
comment on column tuskline.task_archive.output is 'Value that the lambda returned, if any.';
comment on column tuskline.task_archive.archived_at is 'When it was archived.';
