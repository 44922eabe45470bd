-- Applies the action of an operation to tasks that it has locked.
--
-- Returns the row of the operation with new counters. The caller saves it (save_operation).
create or replace function tuskline_core.act_in_operation(
  o tuskline.operation, p_ids bigint[], p_now timestamptz)
returns tuskline.operation language plpgsql as $$
declare
  v_changed bigint := cardinality(p_ids);
begin
  if p_ids = '{}' then return o; end if;
  if o.action = 'purge' then return tuskline_core.purge_tasks(o, p_ids, p_now); end if;
  if o.action = 'erase' then return tuskline_core.erase_tasks(o, p_ids, p_now); end if;
  if o.action = 'cancel' then
    perform tuskline_core.cancel_tasks(
      p_ids, concat_ws(': ', 'operation ' || o.operation_id, o.reason), p_now);
  elsif o.action = 'retry' then
    v_changed := tuskline_core.restart_tasks(p_ids, p_now, o.value is not null);
  elsif o.action = 'redrive' then
    v_changed := tuskline_core.redrive_tasks(o, p_ids, p_now);
    o.met := true;
    if o.step is not null then o.watched := p_ids; end if;
  else
    perform tuskline_core.move_waiting(o, p_ids, p_now);
  end if;
  o.changed := o.changed + v_changed;
  return o;
end $$;
comment on function tuskline_core.act_in_operation(tuskline.operation, bigint[], timestamptz) is
  'Applies the action of an operation to tasks that it has locked. Returns its new row.';

-- Gives waiting tasks their new priority or collection.
--
-- The tasks leave their queue, their gate and their wait lists. They release their permits and are
-- due at once, so the store consumer applies the policies of the new priority or collection.
-- A task in task_kept gets no timer here; it gets one when it returns to its segment
-- (time_returned).
--
-- Planner: the delete from the queue reads the whole queue. force_custom_plan plans it with the ids
-- known; only then does PostgreSQL hash them.
create or replace function tuskline_core.move_waiting(
  o tuskline.operation, p_ids bigint[], p_now timestamptz)
returns void language plpgsql
set plan_cache_mode = force_custom_plan as $$
declare
  v_first    bigint := (select min(id) from unnest(p_ids) as id);
  v_last     bigint := (select max(id) from unnest(p_ids) as id);
  v_priority tuskline.priority := case when o.action = 'priority' then o.value end;
  v_new      text := case when o.action = 'collection' then o.value end;
begin
  update tuskline.task_kept k
     set priority = coalesce(v_priority, k.priority), collection = coalesce(v_new, k.collection)
   where k.id = any (p_ids);
  with u as materialized (
    select u.queue_id, u.seq from tuskline.queue q join tuskline.queued u on u.queue_id = q.queue_id
     where q.lambda = o.lambda and u.task_id = any (p_ids) for update of u skip locked)
  delete from tuskline.queued d using u where d.queue_id = u.queue_id and d.seq = u.seq;
  update tuskline.task t
     set priority = coalesce(v_priority, t.priority), collection = coalesce(v_new, t.collection),
         status = case when t.status = 'enqueued' then 'new' else t.status end::tuskline.status,
         next_trigger_at = case when t.status = 'enqueued' then p_now else t.next_trigger_at end
   where t.id = any (p_ids) and t.id between v_first and v_last;
  if exists (select from tuskline_core.policy_flag where lambda = o.lambda) then
    delete from tuskline.parked k where k.task_id = any (p_ids);
    perform tuskline_core.leave_wait_lists(p_ids, p_now, 100);
    perform tuskline_core.run_effects(tuskline_core.permit_holders(p_ids), '{}', p_now, 1000);
    update tuskline.task t set next_trigger_at = p_now
     where t.id = any (p_ids) and t.id between v_first and v_last
       and not exists (select from tuskline.timer m
         where m.task_id = t.id and m.due = t.next_trigger_at and m.kind = 'due');
  end if;
  perform tuskline_core.add_timers(array_agg(t.id), array_agg(t.next_trigger_at), 'due', p_now)
     from tuskline.task t
    where t.id = any (p_ids) and t.id between v_first and v_last and t.next_trigger_at <= p_now;
end $$;
comment on function tuskline_core.move_waiting(tuskline.operation, bigint[], timestamptz) is
  'Gives waiting tasks a new priority or collection, and makes them due again.';

-- Deletes the tasks of a purge that nothing needs.
--
-- It spares tasks that another task, a session or a redrive needs (needed_ids). Tasks that are
-- archived to files are left to a caller that writes files (behind), and are spared otherwise.
-- A purge of dead letters alone also unblocks their ordering keys.
-- Returns the row of the operation with new counters.
create or replace function tuskline_core.purge_tasks(
  o tuskline.operation, p_ids bigint[], p_now timestamptz)
returns tuskline.operation language plpgsql as $$
declare
  v_unblocks boolean := o.statuses <@ '{dead,fatal_failure}';
  v_need     bigint[];
  v_free     bigint[];
  v_file     bigint[];
begin
  v_need := tuskline_core.needed_ids(p_ids, v_unblocks);
  v_free := array(select id from unnest(p_ids) as id
                  except select id from unnest(v_need) as id order by 1);
  v_file := tuskline_core.bound_for_files(v_free);
  o.spared := o.spared + cardinality(p_ids) - cardinality(v_free);
  if o.writes_files then
    o.behind := o.behind || v_file;
  else
    o.spared := o.spared + cardinality(v_file);
  end if;
  v_free := array(select id from unnest(v_free) as id
                  except select id from unnest(v_file) as id order by 1);
  if v_unblocks and exists (select from tuskline_core.policy_flag) then
    perform tuskline_core.withdraw(v_free, null, p_now);
  end if;
  o.changed := o.changed + tuskline_core.delete_tasks(v_free, p_now);
  return o;
end $$;
comment on function tuskline_core.purge_tasks(tuskline.operation, bigint[], timestamptz) is
  'Deletes the tasks of a purge that nothing needs. Returns the new row of the operation.';

-- Selects the tasks that are archived to files. Returns them in id order.
create or replace function tuskline_core.bound_for_files(p_ids bigint[]) returns bigint[]
language plpgsql as $$
begin
  if not exists (select from tuskline.lambda l where l.archive = 'file') then return '{}'; end if;
  return array(select t.id from tuskline_core.all_tasks t
                                join tuskline.lambda l on l.name = t.lambda
                where l.archive = 'file' and t.id = any (p_ids) order by t.id);
end $$;
comment on function tuskline_core.bound_for_files(bigint[]) is
  'Returns those of the tasks that are archived to files before they are deleted.';

-- Selects the ended tasks that a purge must not delete. p_ids is sorted.
--
--   needed by                  why
--   a task of a chain          it still waits for the task
--   an ordering key            the failed task blocks it (not with p_unblocks)
--   a session                  it waits for the end of the task
--   a redrive that is running  it released the task, or will release this dead letter
create or replace function tuskline_core.needed_ids(p_ids bigint[], p_unblocks boolean)
returns bigint[] language plpgsql as $$
declare
  v_first bigint := p_ids[1];
  v_last  bigint := p_ids[cardinality(p_ids)];
  v_ids   bigint[];
begin
  v_ids := array(
    select w.id from tuskline_core.wanted_in(v_first, v_last) as w (id) where not p_unblocks
    union all select p.id from tuskline_core.awaited_parents(v_first, v_last) as p (id)
    union all select a.task_id from tuskline_core.awaited a where a.task_id = any (p_ids));
  if not exists (select from tuskline.operation o
                  where o.action = 'redrive' and o.ended_at is null) then
    return v_ids;
  end if;
  return v_ids || array(
    select v.task_id from tuskline.redriven v
           join tuskline.operation o on o.operation_id = v.redrive_id
     where v.task_id = any (p_ids) and o.ended_at is null
    union all
    select d.task_id from tuskline.dead_letter d
           join tuskline.operation o on o.action = 'redrive' and o.ended_at is null
     where d.task_id = any (p_ids) and d.status = any (o.statuses) and d.died_at <= o.ended_to
       and (o.lambda is null or d.lambda = o.lambda)
       and (o.fingerprint is null or d.fingerprint = o.fingerprint)
       and (o.ids is null or d.task_id = any (o.ids))
       and d.redrive_id is distinct from o.operation_id
       and (o.collection is null or o.collection = (
            select t.collection from tuskline_core.all_tasks t where t.id = d.task_id)));
end $$;
comment on function tuskline_core.needed_ids(bigint[], boolean) is
  'Returns the ended tasks that a chain, an ordering key (unless p_unblocks), a waiting session '
  'or a redrive still needs. The ids given are sorted.';
