-- Writes the end of tasks to the dependencies on them, and finds the dependents to check.
--
-- The caller has changed the rows of the parents already. So a child sees either the end of its
-- parent or the row lock.
-- Returns (verdicts) in due the dependents to check now: they watched one of these tasks, or cannot
-- use its end. One call handles at most p_max dependencies. If there may be more, the tasks come
-- back in again.
create or replace function tuskline_core.resolve_dependents(
  p_ids bigint[], p_max integer, p_now timestamptz)
returns tuskline_core.verdicts language plpgsql as $$
declare
  v          tuskline_core.verdicts;
  v_first    bigint := (select min(id) from unnest(p_ids) as id);
  v_last     bigint := (select max(id) from unnest(p_ids) as id);
  v_ids      bigint[]; -- tasks of p_ids that have ended
  v_is       tuskline.status[]; -- the statuses of v_ids
  v_children bigint[]; -- these three: one element per dependency
  v_parents  bigint[];
  v_met      boolean[];
begin
  select array_agg(t.id), array_agg(t.status) into v_ids, v_is
    from tuskline.task t
   where t.id = any (p_ids) and t.id between v_first and v_last -- prunes the partitions
     and t.finished_at is not null;
  if coalesce(cardinality(v_ids), 0) < cardinality(p_ids) then -- some may have left their segment
    select v_ids || array_agg(k.id), v_is || array_agg(k.status) into v_ids, v_is
      from tuskline.task_kept k
     where k.id = any (p_ids) and k.id <> all (coalesce(v_ids, '{}'))
       and k.finished_at is not null;
  end if;
  with e as (
    select d.task_id, d.parent_id, t.status,
           tuskline_core.is_met(d.condition, c.on_parent_failure, t.status) as met
      from tuskline.dependency d
           join tuskline.chain_task c on c.task_id = d.task_id
           join unnest(v_ids, v_is) as t (id, status) on t.id = d.parent_id
     where d.parent_id = any (v_ids) and d.outcome is distinct from t.status
     order by d.task_id, d.parent_id limit p_max for update of d
  ), u as (
    update tuskline.dependency d set outcome = e.status from e
     where d.task_id = e.task_id and d.parent_id = e.parent_id
    returning d.task_id, d.parent_id, e.met
  ), b as (
    insert into tuskline.unmet_dependency (task_id, parent_id)
    select u.task_id, u.parent_id from u where not u.met on conflict do nothing)
  select array_agg(u.task_id), array_agg(u.parent_id), array_agg(u.met)
    into v_children, v_parents, v_met from u;
  if v_children is null then return v; end if;
  -- A separate statement: its snapshot includes a child that has just begun to watch a task.
  v.due := array(
    select distinct c.task_id
      from unnest(v_children, v_parents, v_met) as u (child, parent, met)
           join tuskline.chain_task c on c.task_id = u.child
     where c.waits_for = u.parent or not u.met order by 1);
  if cardinality(v_children) = p_max then v.again := p_ids; end if;
  return v;
end $$;
comment on function tuskline_core.resolve_dependents(bigint[], integer, timestamptz) is
  'Writes the end of tasks to the dependencies on them. Returns the dependents to check.';

create or replace function tuskline_core.is_met(
  p_condition text, p_on_parent_failure text, p_outcome tuskline.status)
returns boolean language sql immutable as $$
  select case p_condition
           when 'always' then true
           when 'failure' then p_outcome <> 'success'
           else p_outcome = 'success' or p_on_parent_failure = 'run'
         end
$$;
comment on function tuskline_core.is_met(text, text, tuskline.status) is
  'Whether a parent ended as its child needs.';

-- Makes dependents wait again for parents that start again.
create or replace function tuskline_core.restart_dependents(p_ids bigint[], p_now timestamptz)
returns void language plpgsql as $$
declare
  v_children bigint[];
begin
  update tuskline.dependency d set outcome = null
   where d.parent_id = any (p_ids) and d.outcome is not null;
  delete from tuskline.unmet_dependency b where b.parent_id = any (p_ids);
  v_children := array(
    select distinct d.task_id from tuskline.dependency d where d.parent_id = any (p_ids));
  update tuskline.chain_task c
     set waits_for = coalesce(
           (select max(d.parent_id) from tuskline.dependency d
             where d.task_id = c.task_id and d.outcome is null),
           c.waits_for)
   where c.task_id = any (p_ids || v_children);
  -- A child may watch another parent from now on. The transaction that ends that parent may have
  -- looked for watchers before this one commits. So each child that waits is checked again.
  perform tuskline_core.add_timers(array(
      select c.id
        from (select unnest(v_children) as id except select unnest(p_ids)) c
             cross join lateral (select from tuskline_core.all_tasks t
                                  where t.id = c.id and t.status = 'new' offset 0) t),
    array[p_now], 'parents', p_now);
end $$;
comment on function tuskline_core.restart_dependents(bigint[], timestamptz) is
  'Makes dependents wait again for parents that start again.';
