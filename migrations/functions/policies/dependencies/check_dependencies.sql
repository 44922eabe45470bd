-- Checks whether the parents of tasks that come due have ended as the tasks need.
--
-- The caller has locked the tasks. Returns (verdicts):
--
--   go       tasks that wait for no parent, or no longer
--   stopped  tasks that wait on
--   doomed   tasks to cancel, with a message that names the parent
--
-- A child watches only its last parent that had not ended (chain_task.waits_for). It is checked
-- again when that parent ends, or when any parent ends otherwise than it needs. So a fan-in of
-- 10,000 costs one or two checks, and parents do not queue for the row of a counter.
create or replace function tuskline_core.check_dependencies(p_ids bigint[], p_now timestamptz)
returns tuskline_core.verdicts language plpgsql as $$
declare
  v       tuskline_core.verdicts;
  v_first bigint := (select min(id) from unnest(p_ids) as id);
  v_last  bigint := (select max(id) from unnest(p_ids) as id);
  v_again bigint[] := '{}'; -- tasks with a parent whose row is locked
  v_later bigint[] := '{}'; -- tasks that are due later than their parents have ended
  v_due   timestamptz[] := '{}'; -- the due times of v_later
  v_next  text;
  c       record;
begin
  v.stopped := '{}'; v.doomed := '{}';
  -- offset 0: each task is looked up by its id. A join may compare all children with all tasks.
  for c in
    select s.*, t.lambda, t.created_at, t.scheduled_at
      from (select distinct id from unnest(p_ids) as id) u
           cross join lateral (
             select t.lambda, t.created_at, t.scheduled_at from tuskline.task t
              where t.id = u.id and t.id between v_first and v_last -- prunes the partitions
                and t.status = 'new' and t.flags & 4 > 0 offset 0) t -- 4: has or had parents
           cross join lateral (
             select s.task_id, s.waits_for, s.on_parent_failure from tuskline.chain_task s
              where s.task_id = u.id and s.waits_for is not null offset 0) s
     order by s.task_id
  loop
    v_next := tuskline_core.read_parents(c.task_id, c.waits_for, c.on_parent_failure);
    if v_next = 'go' then
      perform tuskline_core.count_waits('dependency', c.lambda, array[c.created_at], p_now);
    end if;
    if v_next = 'go' and c.scheduled_at > p_now then
      v_later := v_later || c.task_id;
      v_due := v_due || c.scheduled_at;
    elsif v_next = 'again' then
      v_again := v_again || c.task_id;
    end if;
    if v_next = 'cancel' then
      v.doomed := v.doomed || c.task_id;
    elsif v_next <> 'go' or c.scheduled_at > p_now then
      v.stopped := v.stopped || c.task_id;
    end if;
  end loop;
  perform tuskline_core.add_timers(v_later, v_due, 'due', p_now);
  perform tuskline_core.add_timers(
    v_again, array[p_now + tuskline_core.recheck_after()], 'parents', p_now);
  v.go := array(
    select id from unnest(p_ids) as id
     where id <> all (v.stopped) and id <> all (v.doomed) order by id);
  if v.doomed <> '{}' then
    select array_agg(b.task_id), array_agg('cancelled'::tuskline.status),
           array_agg('parent'::text), array_agg(b.message)
      into v.doomed, v.outcome, v.error_class, v.message
      from (select distinct on (d.task_id) d.task_id,
                   format('task %s, for whose %s it waited, ended as %s',
                          d.parent_id, d.condition, d.outcome) as message
              from tuskline.unmet_dependency b
                   join tuskline.dependency d using (task_id, parent_id)
             where b.task_id = any (v.doomed) order by d.task_id, d.parent_id) b;
  end if;
  return v;
end $$;
comment on function tuskline_core.check_dependencies(bigint[], timestamptz) is
  'Checks the parents of tasks that come due: the tasks go, wait on, or are cancelled.';

-- Reads the parents of one task, from the last one down, until it finds one that has not ended.
--
-- Parents above p_watch are known to have ended. The parent that has not ended becomes the one that
-- the task watches (chain_task.waits_for).
--
-- Returns:
--   go      every parent has ended as needed
--   wait    the watched parent has not ended
--   again   another transaction holds the row lock of a parent: check again in 20 ms
--   hold    a parent failed: wait until it is retried
--   cancel  a parent ended otherwise than needed
--
-- Locks: the row of the parent (FOR SHARE). Either this transaction sees the end of the parent, or
-- the transaction that ends the parent sees which children watch it (resolve_dependents).
create or replace function tuskline_core.read_parents(
  p_task bigint, p_watch bigint, p_on_parent_failure text)
returns text language plpgsql as $$
declare
  v_condition text;
  v_verdict   text;
  v_parent    bigint;
  v_status    tuskline.status;
  v_ended     boolean;
begin
  loop
    select d.parent_id, d.condition into v_parent, v_condition from tuskline.dependency d
     where d.task_id = p_task and d.parent_id <= p_watch and d.outcome is null
     order by d.parent_id desc limit 1;
    -- Read after the outcomes: a parent may end between the two statements, and the transaction
    -- that writes its outcome also writes the unmet dependency.
    -- A failure that did not come (condition failure) cancels the task, also with hold.
    select case when p_on_parent_failure = 'hold' and bool_and(d.condition = 'success')
                then 'hold' else 'cancel' end
      into v_verdict
      from tuskline.unmet_dependency b
           join tuskline.dependency d on d.task_id = b.task_id and d.parent_id = b.parent_id
     where b.task_id = p_task having count(*) > 0;
    if found then return v_verdict; end if;
    update tuskline.chain_task set waits_for = v_parent
     where task_id = p_task and waits_for is distinct from v_parent;
    if v_parent is null then return 'go'; end if;
    select t.status, t.finished_at is not null into v_status, v_ended
      from tuskline.task t where t.id = v_parent for share skip locked;
    if not found then
      if exists (select from tuskline.task t where t.id = v_parent) then return 'again'; end if;
      -- The segment of the parent is dropped. The parent is in task_kept, or it ended so long ago
      -- that its status is unknown.
      select k.status, k.finished_at is not null into v_status, v_ended
        from tuskline.task_kept k where k.id = v_parent for share skip locked;
      if not found then
        if exists (select from tuskline_core.all_tasks t where t.id = v_parent) then
          return 'again'; -- it is locked, or moves back to its segment
        end if;
        v_status := 'dropped'; v_ended := true;
      end if;
    end if;
    if not v_ended then return 'wait'; end if;
    -- The parent ended before its transaction could see this dependency.
    update tuskline.dependency d set outcome = v_status
     where d.task_id = p_task and d.parent_id = v_parent;
    if not tuskline_core.is_met(v_condition, p_on_parent_failure, v_status) then
      insert into tuskline.unmet_dependency (task_id, parent_id)
      values (p_task, v_parent) on conflict do nothing;
    end if;
    p_watch := v_parent;
  end loop;
end $$;
comment on function tuskline_core.read_parents(bigint, bigint, text) is
  'Reads the parents of a task. Returns go, wait, again, hold or cancel.';
