-- heed_parents: asks for tasks that are about to be enqueued whether those they wait for have ended. Returns
-- the ones that need wait for nobody, in id order. The caller has locked them.
-- Looks from the last parent down, above none that is known to have ended, and stops at the first that has
-- not: that one is watched from now on. Its row is locked for the moment, so that its end either is seen
-- here, or sees (follow) who watches; one whose row is locked may just be ending: look again in 20 ms.
create or replace function tuskline.heed_parents(p_ids bigint[], p_now timestamptz) returns bigint[]
language plpgsql as $$
declare
  v_first  bigint := (select min(id) from unnest(p_ids) as id);
  v_last   bigint := (select max(id) from unnest(p_ids) as id);
  v_out    bigint[] := '{}';
  v_cancel bigint[] := '{}';
  v_later  bigint[] := '{}';
  v_again  bigint[] := '{}';
  v_next   text;
  c        record;
begin
  -- Each by its id, in a subquery that stays one: a join may compare all children with all tasks.
  for c in select s.*, t.scheduled_at from (select distinct id from unnest(p_ids) as id) u
             cross join lateral (select s.task_id, s.waits_for, s.on_parent_failure from tuskline.chain_task s
                                  where s.task_id = u.id and s.waits_for is not null offset 0) s
             cross join lateral (select t.scheduled_at from tuskline.task t
                                  where t.id = u.id and t.id between v_first and v_last and t.status = 'new' offset 0) t
            order by s.task_id loop
    v_next := tuskline.look_at_parents(c.task_id, c.waits_for, c.on_parent_failure);
    if v_next = 'go' and c.scheduled_at > p_now then v_next := 'later'; end if;
    continue when v_next = 'go';
    v_out := v_out || c.task_id;
    if v_next = 'cancel' then v_cancel := v_cancel || c.task_id; end if;
    if v_next = 'later' then v_later := v_later || c.task_id; end if;
    if v_next = 'again' then v_again := v_again || c.task_id; end if;
  end loop;
  if v_out = '{}' then return p_ids; end if;
  update tuskline.task t
     set status = case when t.id = any (v_cancel) then 'cancelled' else t.status end::tuskline.status,
         finished_at = case when t.id = any (v_cancel) then p_now end,
         next_trigger_at = case when t.id = any (v_cancel) then null when t.id = any (v_later) then t.scheduled_at
                                when t.id = any (v_again) then p_now + interval '20 milliseconds' else p_now + interval '10 minutes' end
   where t.id = any (v_out) and t.id between v_first and v_last;
  insert into tuskline.timer (due, task_id)
  select t.next_trigger_at, t.id from tuskline.task t
   where t.id = any (v_later || v_again) and t.id between v_first and v_last on conflict do nothing;
  -- It may have places: its parent came to life again when it had them, and may be in line for one of them.
  if exists (select from tuskline.guarded) then perform tuskline.give_up(v_out, null, p_now); end if;
  if v_cancel <> '{}' then
    insert into tuskline.task_failure (task_id, fence, attempt, executor_id, error_class, message, fingerprint, failed_at)
    select distinct on (d.task_id) d.task_id, 0, 0, 0, 'parent', format('task %s, for whose %s it waited, ended as %s', d.parent_id, d.condition, d.outcome),
           tuskline.fingerprint('parent', d.condition), p_now
      from tuskline.broken b join tuskline.dependency d on d.task_id = b.task_id and d.parent_id = b.parent_id
     where b.task_id = any (v_cancel) order by d.task_id, d.parent_id on conflict do nothing;
    perform tuskline.follow(v_cancel, p_now, false);
  end if;
  return array(select id from unnest(p_ids) as id where id <> all (v_out) order by id);
end $$;
comment on function tuskline.heed_parents(bigint[], timestamptz) is 'Of tasks that come due, those whose parents have ended as they need; the others wait on, or are cancelled.';

-- look_at_parents: go, wait, again (a parent is just changing), hold or cancel.
create or replace function tuskline.look_at_parents(p_task bigint, p_watch bigint, p_on_parent_failure text) returns text
language plpgsql as $$
declare
  v_condition text;
  v_verdict   text;
  v_parent    bigint;
  v_status    tuskline.status;
  v_ended     boolean;
begin
  loop
    select d.parent_id, d.condition into v_parent, v_condition from tuskline.dependency d
     where d.task_id = p_task and d.parent_id <= p_watch and d.outcome is null order by d.parent_id desc limit 1;
    -- After the look at the outcomes: a parent may end in between, and what its outcome breaks is written with it.
    -- A branch for a failure that did not come is not needed, whatever it does about failures.
    select case when p_on_parent_failure = 'hold' and bool_and(d.condition = 'success') then 'hold' else 'cancel' end into v_verdict
      from tuskline.broken b join tuskline.dependency d on d.task_id = b.task_id and d.parent_id = b.parent_id
     where b.task_id = p_task having count(*) > 0;
    if found then return v_verdict; end if;
    update tuskline.chain_task set waits_for = v_parent where task_id = p_task and waits_for is distinct from v_parent;
    if v_parent is null then return 'go'; end if;
    select t.status, t.finished_at is not null into v_status, v_ended from tuskline.task t where t.id = v_parent for share skip locked;
    if not found then
      if exists (select from tuskline.task t where t.id = v_parent) then return 'again'; end if;
      -- Of a segment that has gone: kept, or over for so long that nobody knows how it ended.
      select k.status, k.finished_at is not null into v_status, v_ended from tuskline.task_kept k where k.id = v_parent for share skip locked;
      if not found then
        if exists (select from tuskline.tasks t where t.id = v_parent) then return 'again'; end if; -- on its way back
        v_status := 'dropped'; v_ended := true;
      end if;
    end if;
    if not v_ended then return 'wait'; end if;
    -- It ended before it could know of this one.
    update tuskline.dependency d set outcome = v_status where d.task_id = p_task and d.parent_id = v_parent;
    if not tuskline.is_met(v_condition, p_on_parent_failure, v_status) then
      insert into tuskline.broken (task_id, parent_id) values (p_task, v_parent) on conflict do nothing;
    end if;
    p_watch := v_parent;
  end loop;
end $$;
comment on function tuskline.look_at_parents(bigint, bigint, text) is 'What a task that waits for others is to do now: go, wait, look again, be held, or be cancelled.';
