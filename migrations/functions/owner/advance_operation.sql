-- Advances an operation by one batch of tasks.
--
-- Store consumers do the same (advance_operations). Any session may call this. The session that
-- writes the files of a purge must call it (p_files). Call it until state is not running.
--
-- Returns the progress of the operation. file_ids are tasks to archive: in the same transaction the
-- caller writes them to files with archive_lines() and deletes them with delete_written().
--
-- Locks: the row of the operation; then its tasks, skip locked. A task that another transaction has
-- locked is left behind, and the operation returns to it later. So no transaction waits long for an
-- operation, and an operation does not wait for tasks.
create or replace function tuskline.advance_operation(
  p_operation bigint, p_limit integer default 1000, p_files boolean default false,
  out state text, out looked bigint, out changed bigint, out spared bigint, out note text,
  out file_ids bigint[])
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  o tuskline.operation;
begin
  select u.* into o from tuskline.operation u where u.operation_id = p_operation for update;
  if not found then
    perform tuskline_core.refuse('TK029',
      format('invalid_operation: there is no operation %s', p_operation));
  elsif o.writes_files and not p_files and o.state = 'running' then
    perform tuskline_core.refuse('TK029',
      format('invalid_operation: operation %s writes files', p_operation),
      format('tuskline operation wait %s --archive-dir ...', p_operation));
  end if;
  perform tuskline_core.need_operation(o) where tuskline_core.rights_in_use();
  if o.state = 'running' then
    o := tuskline_core.carry_operation(o, tuskline.clock(), greatest(p_limit, 1));
  end if;
  file_ids := '{}';
  if o.writes_files and o.state = 'running' then
    file_ids := tuskline_core.lock_tasks(tuskline_core.bound_for_files(o.behind));
  end if;
  state := o.state;
  looked := o.looked;
  changed := o.changed;
  spared := o.spared;
  note := o.note;
end $$;
comment on function tuskline.advance_operation(bigint, integer, boolean) is
  'Advances an operation by one batch. Returns its progress and the tasks that wait for '
  'delete_written(). Call it until state is not running.';

-- Advances each running operation by one batch. The store consumer calls it (run_policies).
--
-- Operations whose client writes files (writes_files) are skipped.
-- Returns the number of tasks looked at, and when to call again (next_at). next_at is null if no
-- time can be predicted: a canary waits for the ends of its tasks.
--
-- Locks: the row of each operation (skip locked). One store consumer at a time advances it.
create or replace function tuskline_core.advance_operations(
  p_now timestamptz, p_limit integer, out looked bigint, out next_at timestamptz)
language plpgsql as $$
declare
  o tuskline.operation;
  n tuskline.operation;
begin
  looked := 0;
  for o in select u.* from tuskline.operation u where u.ended_at is null and not u.writes_files
            order by u.operation_id for update skip locked loop
    begin
      n := tuskline_core.carry_operation(o, p_now, p_limit);
      -- The next walk of an erase counts from 0.
      looked := looked + greatest(n.looked - o.looked, 0);
      if n.state = 'running' and n.watched = '{}' then
        next_at := least(next_at, greatest(n.next_at, p_now));
      end if;
    exception when others then
      -- Usually lock_not_available, from a row that belongs to one of the tasks. Every error is
      -- saved as the note of the operation. It must not stop gates and further operations.
      n.next_at := p_now + case sqlstate when '55P03' then tuskline_core.relock_after()
                                         else interval '10 seconds' end;
      update tuskline.operation u set next_at = n.next_at, note = left(sqlerrm, 500)
       where u.operation_id = o.operation_id;
      next_at := least(next_at, n.next_at);
    end;
  end loop;
end $$;
comment on function tuskline_core.advance_operations(timestamptz, integer) is
  'Advances each running operation by one batch. Returns how many tasks they looked at, and when '
  'to call again.';

-- Advances an operation by one batch, unless it is paused, and saves its progress.
--
-- A canary is checked first. An operation is paused until next_at, and while tasks of a canary's
-- step have not ended (watched).
--
-- Planner: run_policies disables hash joins for its short statements. A batch needs them: without,
-- PostgreSQL compares a thousand tasks with a thousand ids, one by one.
create or replace function tuskline_core.carry_operation(
  o tuskline.operation, p_now timestamptz, p_limit integer)
returns tuskline.operation language plpgsql set enable_hashjoin = on as $$
begin
  if o.canary then o := tuskline_core.check_canary(o); end if;
  if o.state = 'running' then
    if o.watched <> '{}' or o.next_at > p_now then return o; end if;
    o.note := null;
    o := tuskline_core.step_operation(o, p_now, p_limit);
  end if;
  return tuskline_core.save_operation(o, p_now);
end $$;
comment on function tuskline_core.carry_operation(tuskline.operation, timestamptz, integer) is
  'Advances an operation by one batch and saves its progress.';

-- Saves the progress of an operation, or its end. An end is audited.
--
-- An operation that has ended keeps digests of the key and of the value that selected its tasks.
create or replace function tuskline_core.save_operation(o tuskline.operation, p_now timestamptz)
returns tuskline.operation language plpgsql as $$
begin
  if o.state <> 'running' then
    o.ended_at := p_now;
    o.watched := '{}';
    o.behind := '{}';
    o.key := tuskline_core.digest(o.key);
    o.equals := tuskline_core.digest(o.equals);
    insert into tuskline.audit (at, verb, subject, detail)
    values (p_now, 'end_operation', 'operation ' || o.operation_id,
            concat_ws(' ', o.state, o.changed, 'changed', o.note));
  end if;
  update tuskline.operation u
     set mark = o.mark, behind = o.behind, met = o.met, next_at = o.next_at, step = o.step,
         watched = o.watched, looked = o.looked, changed = o.changed, spared = o.spared,
         state = o.state, note = o.note, ended_at = o.ended_at, key = o.key, equals = o.equals,
         segments = o.segments
   where u.operation_id = o.operation_id;
  return o;
end $$;
comment on function tuskline_core.save_operation(tuskline.operation, timestamptz) is
  'Saves the progress of an operation, or its end.';

-- Applies an operation to its next tasks, or sets its state to done.
--
-- A batch has two parts: matching tasks above the mark, then tasks that earlier batches left
-- behind. Its size is bounded by p_limit, the step of a canary, max_tasks and the rate
-- (per_second). If no task of a batch could be locked, the next batch runs in 200 ms.
--
-- A redrive or an erase that met a task walks over the ids once more (met), because a task may have
-- ended, or have been scheduled, in a transaction that committed late. See finish_walk().
-- Returns the new row of the operation.
create or replace function tuskline_core.step_operation(
  o tuskline.operation, p_now timestamptz, p_limit integer)
returns tuskline.operation language plpgsql as $$
declare
  -- A pause earns at most one second of tasks.
  v_from  timestamptz := greatest(o.next_at, p_now - interval '1 second');
  v_mark  bigint;
  v_pass  integer;
  v_next  bigint[] := '{}';
  v_meant bigint[];
  v_ids   bigint[];
  v_mine  bigint[];
begin
  v_pass := least(p_limit, o.step, o.max_tasks - o.changed,
                  1 + floor(o.per_second * extract(epoch from p_now - v_from)));
  if v_pass > 0 then v_next := tuskline_core.next_ids(o, p_limit); end if;
  if v_next = '{}' and o.behind = '{}' and o.action = 'erase' then
    return tuskline_core.finish_walk(o, p_now);
  end if;
  if v_next = '{}' and o.behind = '{}' and o.met then
    o.mark := 0;
    o.met := false;
    v_next := tuskline_core.next_ids(o, p_limit);
  end if;
  if v_pass <= 0 or v_next = '{}' and o.behind = '{}' then
    o.state := 'done';
    return o;
  end if;
  v_meant := tuskline_core.meant_ids(o, v_next || o.behind[:p_limit], p_now);
  v_ids := array(select id from unnest(v_meant) as id where id > o.mark order by id limit v_pass);
  v_mark := case when cardinality(v_ids) = v_pass then v_ids[v_pass]
                 else coalesce(v_next[cardinality(v_next)], o.mark) end;
  v_ids := v_ids || array(select id from unnest(v_meant) as id where id <= o.mark
                           order by id limit v_pass - cardinality(v_ids));
  v_mine := case when o.action in ('retry', 'redrive') then tuskline_core.lock_to_restart(v_ids)
                 when o.action = 'erase' then tuskline_core.lock_to_erase(v_ids)
                 else tuskline_core.lock_tasks(v_ids) end;
  o.behind := o.behind[p_limit + 1:]
    || array(select id from unnest(v_meant) as id where id <= v_mark
             except select id from unnest(v_mine) as id order by 1);
  o.looked := o.looked + (select count(*) from unnest(v_next) as id where id <= v_mark);
  o.mark := v_mark;
  o.next_at := case when v_mine = '{}' and v_ids <> '{}' then p_now + tuskline_core.relock_after()
                    when o.per_second is null then o.next_at
                    else v_from + cardinality(v_mine) / o.per_second * interval '1 second' end;
  -- The tasks may have changed before they were locked.
  return tuskline_core.act_in_operation(o, tuskline_core.meant_ids(o, v_mine, p_now), p_now);
end $$;
comment on function tuskline_core.step_operation(tuskline.operation, timestamptz, integer) is
  'Applies an operation to its next tasks, or ends it. Returns its new row.';

-- Reads the next ids above the mark of an operation, in id order.
--
-- The ids are candidates; meant_ids checks them. Dead letters are read from their own short table.
-- An operation on tasks of any status reads both tables of tasks, because a segment that is dropped
-- moves its remaining tasks to task_kept. An erase reads the archive, too.
create or replace function tuskline_core.next_ids(o tuskline.operation, p_limit integer)
returns bigint[] language plpgsql as $$
begin
  if o.ids is not null then
    return array(select distinct id from unnest(o.ids) as id
      where id > o.mark order by id limit p_limit);
  elsif o.fingerprint is not null and o.lambda is not null then -- uses dead_letter_group
    return array(select d.task_id from tuskline.dead_letter d
      where d.lambda = o.lambda and d.fingerprint = o.fingerprint and d.task_id > o.mark
      order by d.task_id limit p_limit);
  elsif o.statuses <@ '{dead,fatal_failure}' then -- uses dead_letter_pkey
    return array(select d.task_id from tuskline.dead_letter d
      where d.task_id > o.mark order by d.task_id limit p_limit);
  end if;
  return array(select u.id from (
    (select t.id from tuskline.task t where t.id > o.mark order by t.id limit p_limit)
    union
    (select k.id from tuskline.task_kept k where k.id > o.mark order by k.id limit p_limit)
    union -- a task may be stored and archived
    (select a.id from tuskline.task_archive a where a.id > o.mark and o.action = 'erase'
      order by a.id limit p_limit)) u
    order by u.id limit p_limit);
end $$;
comment on function tuskline_core.next_ids(tuskline.operation, integer) is
  'Returns the next ids above the mark of an operation, of tasks that may match it.';

-- Selects those of the tasks that match the filters of an operation. Returns them in id order.
--
-- A redrive skips a dead letter that it has released itself. Otherwise it would release the same
-- task again and again. The check uses no times, so it also holds if the clock steps back.
-- retry and redrive skip tasks that are past their retention: they count as deleted.
-- An erase selects rows of the archive, too.
create or replace function tuskline_core.meant_ids(
  o tuskline.operation, p_ids bigint[], p_now timestamptz) returns bigint[]
language plpgsql as $$
declare
  v_first bigint := (select min(id) from unnest(p_ids) as id);
  v_last  bigint := (select max(id) from unnest(p_ids) as id);
  v_ids   bigint[];
begin
  v_ids := array(
    select t.id from tuskline_core.all_tasks t join tuskline.lambda l on l.name = t.lambda
     where t.id = any (p_ids) and t.id between v_first and v_last
       and tuskline_core.is_meant(
             o, t.lambda, t.status, t.priority, t.collection, t.created_at, t.finished_at,
             array[t.ordering_key, t.limit_key, t.fairness_key, t.unique_key], t.payload)
       and (o.action not in ('retry', 'redrive')
            or t.finished_at > p_now - tuskline_core.kept_for(l, t.status))
       and (o.action <> 'priority' or t.priority::text <> o.value)
       and (o.action <> 'collection' or t.collection is distinct from o.value)
       and (o.fingerprint is null and o.action <> 'redrive' or exists (
            select from tuskline.dead_letter d
             where d.task_id = t.id and (o.fingerprint is null or d.fingerprint = o.fingerprint)
               and d.redrive_id is distinct from o.operation_id))
     order by t.id);
  if o.action <> 'erase' then return v_ids; end if;
  return array(select id from unnest(v_ids || tuskline_core.archived_ids(o, p_ids)) as id
                group by id order by id);
end $$;
comment on function tuskline_core.meant_ids(tuskline.operation, bigint[], timestamptz) is
  'Returns those of the tasks that match an operation, in id order.';

-- Tells whether a task matches the filters that every action of an operation has.
--
-- Planner: PostgreSQL inlines this function. So a filter that is not given reads no column.
create or replace function tuskline_core.is_meant(
  o tuskline.operation, p_lambda text, p_status tuskline.status, p_priority tuskline.priority,
  p_collection text, p_created_at timestamptz, p_finished_at timestamptz, p_keys text[],
  p_payload json)
returns boolean language sql immutable as $$
  select p_status = any (o.statuses) and p_created_at <= o.created_to
     and (o.lambda is null or p_lambda = o.lambda)
     and (o.collection is null or p_collection = o.collection)
     and (o.priority is null or p_priority = o.priority)
     and (o.created_from is null or p_created_at >= o.created_from)
     and (o.ended_to is null or p_finished_at <= o.ended_to)
     and (o.key is null or o.key = any (p_keys))
     and (o.field is null or p_payload #>> o.field = o.equals)
$$;
comment on function tuskline_core.is_meant(
  tuskline.operation, text, tuskline.status, tuskline.priority, text, timestamptz, timestamptz,
  text[], json) is
  'Whether a task matches the filters that every action of an operation has.';

-- Locks tasks without waiting. Tasks that another transaction has locked are skipped.
--
-- Returns the locked tasks, in id order per table: task, then task_kept.
create or replace function tuskline_core.lock_tasks(p_ids bigint[]) returns bigint[]
language plpgsql as $$
begin
  return array(select t.id from tuskline.task t where t.id = any (p_ids)
                 and t.id between (select min(id) from unnest(p_ids) as id)
                              and (select max(id) from unnest(p_ids) as id)
                order by t.id for update skip locked)
    || array(select k.id from tuskline.task_kept k where k.id = any (p_ids)
              order by k.id for update skip locked);
end $$;
comment on function tuskline_core.lock_tasks(bigint[]) is
  'Locks the tasks that no other transaction has locked. Returns them.';
