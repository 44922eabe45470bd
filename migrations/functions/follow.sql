-- follow: what the end of tasks sets off in those that wait for them. Called in the transaction that ends
-- them, after their rows have changed, so that a child sees either the end of its parent or its lock.
-- A child watches one parent at a time (chain_task.waits_for), the last that had not ended when it looked:
-- only that one's end, or one that it cannot use, makes it look again. So a fan-in of 10,000 costs one look
-- or two, not 10,000, and there is no counter that all of them would queue for.
-- Both sides of the join name the ids: else a plan may read all tasks between the first and the last of them,
-- and these may be of two ranges, with the whole store in between.
-- p_go: children may go on in this very transaction; else by way of the store consumer, a level at a time.
-- More than 1,000 always do: a lane's statement has a deadline, and with it go the results of others.
create or replace function tuskline.follow(p_ids bigint[], p_now timestamptz, p_go boolean default true) returns void
language plpgsql as $$
declare
  v_first    bigint := (select min(id) from unnest(p_ids) as id);
  v_last     bigint := (select max(id) from unnest(p_ids) as id);
  v_children bigint[];
  v_parents  bigint[];
  v_met      boolean[];
  v_next     bigint[];
begin
  if exists (select from tuskline.in_use where feature = 'waits') then perform tuskline.tell_waiting(p_ids); end if;
  if not exists (select from tuskline.in_use where feature = 'chains') then return; end if;
  with e as (
    select d.task_id, d.parent_id, t.status, tuskline.is_met(d.condition, c.on_parent_failure, t.status) as met
      from tuskline.dependency d join tuskline.task t on t.id = d.parent_id join tuskline.chain_task c on c.task_id = d.task_id
     where d.parent_id = any (p_ids) and t.id = any (p_ids) and t.id between v_first and v_last and t.finished_at is not null
     order by d.task_id, d.parent_id for update of d
  ), u as (
    update tuskline.dependency d set outcome = e.status from e
     where d.task_id = e.task_id and d.parent_id = e.parent_id and d.outcome is distinct from e.status
    returning d.task_id, d.parent_id, e.met
  ), b as (
    insert into tuskline.broken (task_id, parent_id) select u.task_id, u.parent_id from u where not u.met on conflict do nothing)
  select array_agg(u.task_id), array_agg(u.parent_id), array_agg(u.met) into v_children, v_parents, v_met from u;
  if v_children is null then return; end if;
  -- A statement of its own: a child that has just looked, and chose one of these to watch, is seen here.
  select array_agg(distinct c.task_id order by c.task_id) into v_next
    from unnest(v_children, v_parents, v_met) as u (child, parent, met) join tuskline.chain_task c on c.task_id = u.child
   where c.waits_for = u.parent or not u.met;
  if v_next is null then return; end if;
  if not p_go or cardinality(v_next) > 1000 then
    insert into tuskline.timer (due, task_id) select p_now, id from unnest(v_next) as id on conflict do nothing;
    perform tuskline.wake_timer(p_now, p_now);
  else
    perform tuskline.go_on(v_next, p_now);
  end if;
end $$;
comment on function tuskline.follow(bigint[], timestamptz, boolean) is 'Tells those that wait for tasks which have just ended; lets them go on if these were the last.';

create or replace function tuskline.is_met(p_condition text, p_on_parent_failure text, p_outcome tuskline.status) returns boolean
language sql immutable as $$
  select case p_condition when 'always' then true when 'failure' then p_outcome <> 'success'
         else p_outcome = 'success' or p_on_parent_failure = 'run' end
$$;
comment on function tuskline.is_met(text, text, tuskline.status) is 'Whether a parent ended as its child needs.';
