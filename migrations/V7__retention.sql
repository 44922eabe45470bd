-- Retention: what tasks leave behind when they are archived.

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
