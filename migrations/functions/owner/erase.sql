-- Erases tasks: deletes them with their history, their keys and their rows in the archive.
--
-- A purge deletes ended tasks that nothing needs, and archives them. An erase deletes every
-- matching task of any status, and archives none. It needs several passes over a task:
--
--   the task               this pass                              a later pass
--   waits                  is cancelled; its effects run later    the next walk: it has ended
--   runs                   its worker is asked to stop            it has ended, or it still runs
--   has ended, is needed   nothing                                checks again (needed_ids)
--   has ended              is deleted, with all rows about it
--   is archived            its row is deleted
--
-- Running and needed tasks stay in the column behind. The operation ends when a walk finds no
-- matching task. Until then its note names the cause of the wait.
-- Archive files are outside the database. lines_to_erase() returns the numbers of their matching
-- lines.
create or replace function tuskline_core.erase_tasks(
  o tuskline.operation, p_ids bigint[], p_now timestamptz)
returns tuskline.operation language plpgsql as $$
declare
  v_open  bigint[] := tuskline_core.tasks_to_cancel(p_ids);
  v_ended bigint[];
  v_left  bigint[];
  v_rows  bigint;
begin
  o.met := true;
  v_rows := tuskline_core.erase_archived(p_ids);
  perform tuskline_core.cancel_tasks(
    v_open, concat_ws(': ', 'operation ' || o.operation_id, o.reason), p_now);
  v_ended := array(
    select t.id from tuskline_core.all_tasks t
     where t.id = any (p_ids) and t.finished_at is not null and t.id <> all (v_open) order by t.id);
  v_ended := array(
    select id from unnest(v_ended) as id
    except select id from unnest(tuskline_core.needed_ids(v_ended, true)) as id order by 1);
  if v_ended <> '{}' and exists (select from tuskline_core.policy_flag) then
    perform tuskline_core.withdraw(v_ended, null, p_now);
    v_ended := array( -- another transaction has locked a permit of the remaining ones
      select id from unnest(v_ended) as id
      except select p.task_id from tuskline.permit p
              where p.task_id = any (v_ended) and p.fence is null order by 1);
  end if;
  perform tuskline_core.forget_tasks(v_ended);
  v_rows := v_rows + tuskline_core.delete_ended(v_ended);
  v_left := array(
    select t.id from tuskline_core.all_tasks t
     where t.id = any (p_ids) and t.id <> all (v_open) order by t.id);
  o.changed := o.changed + v_rows;
  o.behind := o.behind || v_left;
  if v_left <> '{}' and v_rows = 0 and v_open = '{}' then
    o.next_at := p_now + interval '1 second';
    o.note := format('waits for %s: they run, or a chain, a session or a redrive needs them',
                     tuskline_core.some_tasks(v_left));
  end if;
  return o;
end $$;
comment on function tuskline_core.erase_tasks(tuskline.operation, bigint[], timestamptz) is
  'Deletes tasks that have ended, with all rows about them, and ends the remaining ones. '
  'Returns the new row of the operation.';

-- Deletes rows of the archive, and the data of their tasks in other tables.
--
-- Returns the number of tasks that are in the archive only: a stored task is counted when it is
-- deleted there.
create or replace function tuskline_core.erase_archived(p_ids bigint[]) returns bigint
language plpgsql as $$
declare
  v_ids  bigint[] := array(
    select a.id from tuskline.task_archive a where a.id = any (p_ids) order by a.id);
begin
  perform tuskline_core.forget_tasks(v_ids);
  delete from tuskline.task_archive a where a.id = any (v_ids);
  return (select count(*) from unnest(v_ids) as u (id)
           where not exists (select from tuskline_core.all_tasks t where t.id = u.id));
end $$;
comment on function tuskline_core.erase_archived(bigint[]) is
  'Deletes rows of the archive, and the data of their tasks in other tables. Returns how many '
  'tasks were in the archive only.';

-- Selects the tasks to cancel: waiting tasks, and running tasks that were not asked to stop yet.
create or replace function tuskline_core.tasks_to_cancel(p_ids bigint[]) returns bigint[]
language sql stable as $$
  select array(
    select t.id from tuskline.task t
     where t.id = any (p_ids) and t.id between (select min(id) from unnest(p_ids) as id)
                                           and (select max(id) from unnest(p_ids) as id)
       and t.finished_at is null
       and (t.status not in ('claimed', 'processing') or (t.flags & 2) = 0)
    union all
    select k.id from tuskline.task_kept k where k.id = any (p_ids) and k.finished_at is null
    order by 1)
$$;
comment on function tuskline_core.tasks_to_cancel(bigint[]) is
  'Selects the waiting tasks, and the running tasks that were not asked to stop yet.';

create or replace function tuskline_core.some_tasks(p_ids bigint[]) returns text
language sql immutable as $$
  select format('%s tasks, the first %s', cardinality(p_ids), array_to_string(p_ids[:3], ', '))
$$;
comment on function tuskline_core.some_tasks(bigint[]) is
  'The number of tasks and the first three ids, for a message.';

create or replace function tuskline_core.digest(p_text text) returns text
language sql immutable as $$
  select 'sha256:' || encode(sha256(convert_to(p_text, 'UTF8')), 'hex')
$$;
comment on function tuskline_core.digest(text) is
  'The SHA-256 of a text. A person who knows an erased value can compare it with this.';

-- Ends a walk of an erase over all ids. Then it begins the next walk, or ends the operation.
--
-- After a walk that found no matching task, it deletes the rows of the key that are left, and ends
-- the operation. The note then names the schedules that would make new matching tasks.
--
-- Race: a segment that is being retired is in no table that an erase reads. Its tasks may reach the
-- archive behind the mark. So the erase waits until no retirement is in progress, and walks again
-- if a segment was retired since the walk began.
create or replace function tuskline_core.finish_walk(o tuskline.operation, p_now timestamptz)
returns tuskline.operation language plpgsql as $$
declare
  v_no       bigint := (select min(s.segment_no) from tuskline.segments_to_finish() s);
  v_segments oid[] := tuskline_core.segments_to_walk();
  v_is_last  boolean := v_no is null and not o.met and coalesce(o.segments <@ v_segments, false);
begin
  if v_is_last then
    perform tuskline_core.forget_values(o);
    o.state := 'done';
    o.note := nullif(concat_ws('; ', (
      select 'these schedules have a matching payload: ' || string_agg(p.name, ', ' order by p.name)
        from tuskline.periodic p
       where (o.lambda is null or p.lambda = o.lambda) and p.payload #>> o.field = o.equals), (
      select 'so have schedules in the definitions of ' || string_agg(
               distinct k.lambda, ', ' order by k.lambda)
        from tuskline.definition k cross join jsonb_each(k.parts) p
       where (o.lambda is null or k.lambda = o.lambda) and p.key like 'schedule %'
         and p.value -> 'payload' #>> o.field = o.equals)), '');
    return o;
  end if;
  o.mark := 0;
  -- The erased tasks, and then those that the next walk finds: each task is counted once.
  o.looked := o.changed;
  o.met := false;
  o.segments := v_segments;
  if v_no is not null then
    o.next_at := p_now + interval '5 seconds';
    o.note := format('waits for segment %s: a server is retiring it, see tuskline doctor', v_no);
  end if;
  return o;
end $$;
comment on function tuskline_core.finish_walk(tuskline.operation, timestamptz) is
  'Begins the next walk of an erase over all ids, or ends the operation. Returns its new row.';

-- Returns the tables of the attached segments. While a segment is being retired, it adds 0, which
-- is no table.
create or replace function tuskline_core.segments_to_walk() returns oid[]
language sql volatile as $$
  select array(
    select i.inhrelid from pg_inherits i
     where i.inhparent = 'tuskline_core.task_store'::regclass and not i.inhdetachpending
    union all
    (select 0 from tuskline.segments_to_finish() limit 1))
$$;
comment on function tuskline_core.segments_to_walk() is
  'Tables of the attached segments, plus 0 while a segment is being retired.';

-- Locks the rows of an erase without waiting: tasks, and rows of the archive.
create or replace function tuskline_core.lock_to_erase(p_ids bigint[]) returns bigint[]
language plpgsql as $$
declare
  v_locked bigint[] := tuskline_core.lock_tasks(p_ids);
begin
  -- A task that another transaction has locked stays behind, with its archived row.
  return v_locked || array(
    select a.id from tuskline.task_archive a
     where a.id = any (p_ids) and a.id <> all (v_locked)
       and not exists (select from tuskline_core.all_tasks t where t.id = a.id)
     order by a.id for update skip locked);
end $$;
comment on function tuskline_core.lock_to_erase(bigint[]) is
  'Locks the tasks and rows of the archive that no other transaction has locked. Returns them.';

-- Selects the archived tasks that match an erase.
create or replace function tuskline_core.archived_ids(o tuskline.operation, p_ids bigint[])
returns bigint[] language plpgsql stable as $$
begin
  return array(
    select a.id from tuskline.task_archive a
     where a.id = any (p_ids)
       and tuskline_core.is_meant(
             o, a.lambda, a.status, a.priority, a.collection, a.created_at, a.finished_at,
             array[a.ordering_key, a.limit_key, a.fairness_key, a.unique_key], a.payload));
end $$;
comment on function tuskline_core.archived_ids(tuskline.operation, bigint[]) is
  'Selects the tasks whose row in the archive matches an erase.';

-- Returns the numbers of the lines of an archive file that an erase with these filters deletes.
--
-- p_lines are whole lines of JSON, as archive_lines() returns them. The first line has number 1.
create or replace function tuskline.lines_to_erase(
  p_lines        text[],
  p_lambda       text        default null,
  p_collection   text        default null,
  p_priority     text        default null,
  p_ids          bigint[]    default null,
  p_key          text        default null,
  p_field        text[]      default null,
  p_equals       text        default null,
  p_created_from timestamptz default null,
  p_created_to   timestamptz default null)
returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  o tuskline.operation := tuskline_core.new_operation(
    'erase', p_lambda, null, p_collection, p_priority, null, null, p_ids, p_key, p_field,
    p_equals, p_created_from, p_created_to, null, null);
begin
  return query
  select u.no from unnest(p_lines) with ordinality as u (line, no),
         json_populate_record(null::tuskline.task, u.line::json) t
   where (o.ids is null or t.id = any (o.ids))
     and tuskline_core.is_meant(
           o, t.lambda, t.status, t.priority, t.collection, t.created_at, t.finished_at,
           array[t.ordering_key, t.limit_key, t.fairness_key, t.unique_key], t.payload);
end $$;
comment on function tuskline.lines_to_erase(
  text[], text, text, text, bigint[], text, text[], text, timestamptz, timestamptz) is
  'Numbers of the lines of an archive file that an erase with these filters deletes, from 1.';
