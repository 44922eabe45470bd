-- Archives tasks before retention deletes them, for lambdas that have an archive.
--
--   archive = 'table'  rows of task_archive. The transaction that deletes a task writes its row.
--                      For a segment, batches write the rows before it is dropped.
--   archive = 'file'   JSON lines, written and synced by the server before it deletes the tasks
--
-- Guarantees: after a crash both may run again. A row is there once. A line may be there twice,
-- with the same id.
create or replace function tuskline_core.failures_of(p_task bigint) returns json
language sql stable as $$
  select json_agg(
           json_build_object(
             'attempt', f.attempt, 'fence', f.fence, 'executor_id', f.executor_id,
             'outcome', f.outcome, 'started_at', f.started_at, 'failed_at', f.failed_at,
             'error_class', f.error_class, 'message', f.message, 'fingerprint', f.fingerprint)
           order by f.failed_at, f.fence)
    from tuskline.task_failure f where f.task_id = p_task
$$;
comment on function tuskline_core.failures_of(bigint) is
  'The failed attempts of a task as a JSON array, in order of time. Null: none.';

-- Tells whether a segment has tasks to archive before it is dropped.
--
-- The janitor renames such a detached segment to gone_<n> (sets it aside). Then its waiting tasks
-- return to a fresh segment at once. Writing millions of lines takes time, and a full disk more.
create or replace function tuskline.wants_archive(p_no bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  return tuskline_core.has_tasks_of('task_', p_no,
    array(select l.name from tuskline.lambda l where l.archive <> 'none'));
end $$;
comment on function tuskline.wants_archive(bigint) is
  'Whether a segment has tasks that are archived before they are deleted.';

create or replace function tuskline.goes_to_file(p_no bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  return tuskline_core.has_tasks_of('gone_', p_no,
    array(select l.name from tuskline.lambda l where l.archive = 'file'));
end $$;
comment on function tuskline.goes_to_file(bigint) is
  'Whether a segment that was set aside has tasks that are archived to files.';

-- Tells whether the table p_prefix || p_no (task_<n> or gone_<n>) has tasks of these lambdas.
--
-- Without a lambda it reads nothing.
create or replace function tuskline_core.has_tasks_of(
  p_prefix text, p_no bigint, p_lambdas text[])
returns boolean language plpgsql as $$
declare
  v_found boolean := false;
begin
  if p_lambdas <> '{}' and to_regclass('tuskline_core.' || p_prefix || p_no) is not null then
    execute format(
      'select exists (select from tuskline_core.%I t where t.lambda = any ($1))',
      p_prefix || p_no) into v_found using p_lambdas;
  end if;
  return v_found;
end $$;
comment on function tuskline_core.has_tasks_of(text, bigint, text[]) is
  'Whether a segment, or one that was set aside, has tasks of these lambdas.';

create or replace function tuskline.segments_set_aside() returns setof bigint
language sql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  select substr(c.relname, 6)::bigint from pg_class c
   where c.relnamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace)
     and c.relkind = 'r' and c.relname ~ '^gone_[0-9]+$'
   order by 1
$$;
comment on function tuskline.segments_set_aside() is
  'Segments that were set aside to be archived and dropped.';

-- Copies a batch of a segment that was set aside to task_archive.
--
-- Returns the id to continue after. Null: that was the last batch.
create or replace function tuskline.archive_segment(
  p_no bigint, p_after bigint default 0, p_limit integer default 5000) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now timestamptz := tuskline.clock();
  v_ids bigint[];
begin
  if not exists (select from tuskline.lambda l where l.archive = 'table') then
    return null;
  end if;
  execute format(
    'select array(select t.id from tuskline_core.gone_%s t'
    ' join tuskline.lambda l on l.name = t.lambda'
    ' where t.id > $1 and l.archive = ''table'' order by t.id limit $2)', p_no)
    into v_ids using p_after, p_limit;
  execute format(
    'insert into tuskline.task_archive select t.*, tuskline_core.failures_of(t.id),'
    ' (select o.output from tuskline.task_output o where o.task_id = t.id), $2'
    ' from tuskline_core.gone_%s t where t.id = any ($1) on conflict do nothing', p_no)
    using v_ids, v_now;
  return v_ids[p_limit];
end $$;
comment on function tuskline.archive_segment(bigint, bigint, integer) is
  'Copies a batch of a segment that was set aside to task_archive. '
  'Returns the id to continue after (null: that was the last).';

-- Returns these tasks as JSON, one task per line.
--
-- JSON allows line breaks only between tokens, so a space can replace each of them.
create or replace function tuskline.archive_lines(p_ids bigint[]) returns setof text
language sql volatile security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  select translate(row_to_json(a)::text, chr(10) || chr(13), '  ')
    from (select u.*, tuskline_core.failures_of(u.id) as failures,
                 (select o.output from tuskline.task_output o
                   where o.task_id = u.id) as output,
                 tuskline.clock() as archived_at
            from (select t.* from tuskline.task t where t.id = any (p_ids)
                  union all
                  select k.* from tuskline.task_kept k where k.id = any (p_ids)) u) a
$$;
comment on function tuskline.archive_lines(bigint[]) is
  'These tasks as JSON, one per line, with their failed attempts and their output.';

-- Deletes tasks that have ended, with their history. Copies them to task_archive if they go there.
--
-- Returns how many. Locks: the caller has locked the tasks.
create or replace function tuskline_core.delete_tasks(p_ids bigint[], p_now timestamptz)
returns bigint language plpgsql as $$
declare
  v_first bigint := (select min(id) from unnest(p_ids) as id);
  v_last  bigint := (select max(id) from unnest(p_ids) as id);
begin
  if v_first is null then return 0; end if;
  if exists (select from tuskline.lambda l where l.archive = 'table') then
    insert into tuskline.task_archive
    select u.*, tuskline_core.failures_of(u.id),
           (select o.output from tuskline.task_output o where o.task_id = u.id), p_now
      from (select t.* from tuskline.task t
             where t.id = any (p_ids) and t.id between v_first and v_last -- prunes the partitions
            union all
            select k.* from tuskline.task_kept k where k.id = any (p_ids)) u
           join tuskline.lambda l on l.name = u.lambda
     where l.archive = 'table' and u.finished_at is not null
    on conflict do nothing;
  end if;
  return tuskline_core.delete_ended(p_ids);
end $$;
comment on function tuskline_core.delete_tasks(bigint[], timestamptz) is
  'Deletes tasks that have ended, with their history. Copies those of lambdas with archive '
  '''table'' to task_archive first. Returns how many.';

-- Deletes tasks that have ended, with their history, and archives none. Returns how many.
create or replace function tuskline_core.delete_ended(p_ids bigint[]) returns bigint
language plpgsql as $$
declare
  v_first bigint := (select min(id) from unnest(p_ids) as id);
  v_last  bigint := (select max(id) from unnest(p_ids) as id);
  v_gone  bigint[];
begin
  with d as (
    delete from tuskline.task t
     where t.id = any (p_ids) and t.id between v_first and v_last -- prunes the partitions
       and t.finished_at is not null
    returning t.id
  ), k as (
    delete from tuskline.task_kept k
     where k.id = any (p_ids) and k.finished_at is not null
    returning k.id)
  select array(select d.id from d union all select k.id from k) into v_gone;
  perform tuskline_core.delete_history(v_gone);
  return cardinality(v_gone);
end $$;
comment on function tuskline_core.delete_ended(bigint[]) is
  'Deletes tasks that have ended, with their history, and archives none. Returns how many.';

create or replace function tuskline.delete_written(
  p_ids bigint[], p_operation bigint default null) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_gone bigint := tuskline_core.delete_tasks(p_ids, tuskline.clock());
begin
  update tuskline.operation set changed = changed + v_gone where operation_id = p_operation;
  return v_gone;
end $$;
comment on function tuskline.delete_written(bigint[], bigint) is
  'Deletes tasks whose lines are synced to a file, in the transaction that locked them. '
  'Returns how many. p_operation: the purge that counts them.';

-- Counts the segments and kept tasks that wait for a server that archives to files.
--
-- A kept task counts from 10 minutes after its retention ended.
create or replace function tuskline.unarchived(
  out segments bigint, out tasks bigint, out since timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now timestamptz := tuskline.clock();
begin
  segments := 0;
  tasks := 0;
  if not exists (select from tuskline.lambda l where l.archive = 'file') then return; end if;
  select (select count(*) from tuskline.segment g where g.unarchived_since is not null)
         + (select count(*) from tuskline.segments_set_aside() as no
             where tuskline.goes_to_file(no)),
         (select min(g.unarchived_since) from tuskline.segment g)
    into segments, since;
  select count(*), least(since, min(k.finished_at + tuskline_core.kept_for(l, k.status)))
    into tasks, since
    from tuskline.task_kept k join tuskline.lambda l on l.name = k.lambda
   where l.archive = 'file'
     and k.finished_at
         <= v_now - tuskline_core.kept_for(l, k.status) - interval '10 minutes';
end $$;
comment on function tuskline.unarchived() is
  'Segments and kept tasks past retention that wait for a server with --archive-dir, '
  'and since when.';
