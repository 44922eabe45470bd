-- Redrives: an operation restarts dead letters, and may watch how they end.

-- Moves a canary to its next step, or stops it. The steps are 1 task, 10 tasks, and the rest.
--
--   a task of a small step died again             the redrive stops, whatever the cause
--   a task of the rest died of the same cause     the redrive stops: that cause persists
--   a watched task has not ended                  the step goes on
--   a task of the step succeeded                  the next step begins
--   no task of the step succeeded, and none died  the step repeats: it proves nothing
--
-- A watched task may die between the two queries, or its dead letter may follow later (effects
-- that are left over). So a task that failed for good counts as not ended until the first query
-- finds it.
create or replace function tuskline_core.check_canary(o tuskline.operation)
returns tuskline.operation language plpgsql as $$
declare
  v_dead bigint;
  v_good boolean;
  v_open boolean;
begin
  select d.task_id into v_dead
    from tuskline.dead_letter d join tuskline.redriven v on v.task_id = d.task_id
   where d.redrive_id = o.operation_id and (o.step is not null or d.fingerprint = v.fingerprint)
   order by d.task_id limit 1;
  if found then
    o.state := 'died_again';
    o.note := (
      select format('task %s died again: %s, %s', v_dead, f.error_class, left(f.message, 200))
        from tuskline.task_failure f
       where f.task_id = v_dead order by f.failed_at desc, f.fence desc limit 1);
    return o;
  end if;
  if o.watched = '{}' then return o; end if;
  select coalesce(bool_or(t.finished_at is null or t.status in ('dead', 'fatal_failure')
                          and (d.task_id is null or d.redrive_id = o.operation_id)), false),
         coalesce(bool_or(t.status = 'success'), false)
    into v_open, v_good
    from tuskline_core.all_tasks t left join tuskline.dead_letter d on d.task_id = t.id
   where t.id = any (o.watched);
  if v_open then return o; end if;
  o.watched := '{}';
  o.step := case when not v_good then o.step when o.step = 1 then 10 end;
  return o;
end $$;
comment on function tuskline_core.check_canary(tuskline.operation) is
  'Moves a canary to its next step when a task of the present step has succeeded. '
  'Stops it when one has died again.';

-- Restarts dead letters, and records their old fingerprints. Returns how many restarted.
--
-- An operation with a payload of its own redrives one task, p_ids[1]; its old payload is recorded.
create or replace function tuskline_core.redrive_tasks(
  o tuskline.operation, p_ids bigint[], p_now timestamptz) returns bigint
language plpgsql as $$
declare
  v_ids          bigint[];
  v_fingerprints text[];
  v_changed      bigint;
begin
  select array_agg(d.task_id), array_agg(d.fingerprint) into v_ids, v_fingerprints
    from tuskline.dead_letter d where d.task_id = any (p_ids);
  v_changed := tuskline_core.restart_tasks(p_ids, p_now);
  insert into tuskline.redriven (task_id, redrive_id, fingerprint)
  select u.id, o.operation_id, u.fingerprint
    from unnest(v_ids, v_fingerprints) as u (id, fingerprint);
  if o.payload is not null then
    update tuskline.redriven v
       set replaced_at = p_now,
           old_payload = coalesce(
             (select t.payload from tuskline_core.all_tasks t where t.id = v.task_id), 'null')
     where v.task_id = p_ids[1];
    update tuskline.task t set payload = o.payload where t.id = p_ids[1];
    update tuskline.task_kept t set payload = o.payload where t.id = p_ids[1];
  end if;
  return v_changed;
end $$;
comment on function tuskline_core.redrive_tasks(tuskline.operation, bigint[], timestamptz) is
  'Restarts dead letters, with a new payload if the operation has one. Returns how many.';

-- Locks tasks before a restart, with all that restart_tasks locks, in the same order.
--
-- Locks: the segments, then the tasks together with their dependents. It skips a row that another
-- transaction has locked, and leaves out each task that needs that row.
-- Returns the tasks that it has locked, in id order.
create or replace function tuskline_core.lock_to_restart(p_ids bigint[]) returns bigint[]
language plpgsql as $$
declare
  v_segments bigint[];
  v_ids      bigint[];
  v_all      bigint[];
  v_locked   bigint[];
begin
  perform tuskline_core.recall_segments(p_ids);
  v_segments := array(select s.segment_no from tuskline.segment s
    where s.segment_no in (select tuskline_core.segment_of(id) from unnest(p_ids) as id)
    order by s.segment_no for key share of s skip locked);
  v_ids := array(select id from unnest(p_ids) as id
                  where tuskline_core.segment_of(id) = any (v_segments));
  v_all := v_ids || array(select d.task_id from tuskline.dependency d
                           where d.parent_id = any (v_ids));
  v_locked := array(
    select t.id from tuskline.task t
     where t.id = any (v_all) and t.id between (select min(id) from unnest(v_all) as id)
                                           and (select max(id) from unnest(v_all) as id)
     order by t.id for update skip locked)
    || array(select k.id from tuskline.task_kept k where k.id = any (v_ids)
              order by k.id for update skip locked);
  return array(select u.id from unnest(v_ids) as u (id) where u.id = any (v_locked) and not exists (
    select from tuskline.dependency d join tuskline.task t on t.id = d.task_id
     where d.parent_id = u.id and d.task_id <> all (v_locked)) order by u.id);
end $$;
comment on function tuskline_core.lock_to_restart(bigint[]) is
  'Locks tasks before a restart, with their dependents. Returns the tasks that no other '
  'transaction has locked.';
