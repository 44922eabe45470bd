-- Rules and their lines: what a rule counts a task by, and who stands where. A task meets its rules by rank.
create or replace function tuskline_core.counting_key(r tuskline.task_limit, t tuskline.task) returns text
language sql immutable as $$
  select case when t.lambda <> r.lambda or t.collection is distinct from coalesce(r.collection, t.collection)
                or t.priority <> coalesce(r.priority, t.priority) then null
              when r.kind = 'order' then t.ordering_key when r.by_key then t.limit_key else '' end
$$;
comment on function tuskline_core.counting_key(tuskline.task_limit, tuskline.task) is 'What a rule counts a task by; empty: all together; null: not at all.';

create or replace function tuskline_core.arrival_position(p_kind text, p_priority tuskline.priority, p_now timestamptz) returns double precision
language sql stable as $$
  select case when p_kind = 'order' then 0
              else extract(epoch from p_now) + 20 * (array_position('{critical,high,normal,low}'::tuskline.priority[], p_priority) - 1) end
$$;
comment on function tuskline_core.arrival_position(text, tuskline.priority, timestamptz) is 'Place of a task that joins a line which is not fair: see tuskline.wait_list.turn.';

-- join_wait_lists: new tasks that are due and meet a rule stand in its line from the start: one row in place of a
-- timer, so that a flood behind a limit costs nobody a thing until its turn. The first of each line among
-- them gets a timer all the same, and asks for all; returned are the others. Of one ordering key, whoever
-- commits first is first. A fair line gives turns one at a time, so its tasks go by way of the store consumer.
-- No lock is asked for: a dropped rule is deleted only when the transactions that had written to wait
-- lists at the time have ended (release_wait_list).
create or replace function tuskline_core.join_wait_lists(p_ids bigint[], p_now timestamptz) returns bigint[]
language plpgsql as $$
declare
  v_first bigint := (select min(id) from unnest(p_ids) as id);
  v_last  bigint := (select max(id) from unnest(p_ids) as id);
  v_rest  bigint[];
begin
  if not exists (select from tuskline_core.policy_flag) then return '{}'; end if;
  with j as (
    insert into tuskline.wait_list (limit_id, key, position, task_id)
    select f.limit_id, f.key, f.position, f.id
      from (select distinct on (t.id) r.limit_id, tuskline_core.counting_key(r, t) as key, tuskline_core.arrival_position(r.kind, t.priority, p_now) as position, t.id, r.fair
              from tuskline.task t join tuskline.task_limit r on r.lambda = t.lambda and r.dropped_at is null
             where t.id = any (p_ids) and t.id between v_first and v_last
               and t.status = 'new' and t.next_trigger_at <= p_now and tuskline_core.counting_key(r, t) is not null
             order by t.id, r.rank, r.limit_id) f
     where not f.fair
    returning limit_id, key, position, task_id)
  select array_agg(o.task_id) filter (where o.nth > 1) into v_rest
    from (select j.task_id, row_number() over (partition by j.limit_id, j.key order by j.position, j.task_id) as nth from j) o;
  return coalesce(v_rest, '{}');
end $$;
comment on function tuskline_core.join_wait_lists(bigint[], timestamptz) is 'Lets new tasks stand in the lines of their rules; returns those that need no timer.';

-- leave_wait_lists: tasks that wait no longer leave their lines, but a gated one keeps its place in an order.
-- Whoever is first now asks in their place, or nobody might.
create or replace function tuskline_core.leave_wait_lists(p_ids bigint[], p_now timestamptz, p_first integer default 1) returns void
language plpgsql as $$
declare
  v_limits bigint[];
  v_keys  text[];
begin
  with l as (
    delete from tuskline.wait_list l where l.task_id = any (p_ids)
       and not exists (select from tuskline.task_limit r
                        where r.limit_id = l.limit_id and r.kind = 'order' and (select t.finished_at is null from tuskline.tasks t where t.id = l.task_id))
    returning l.limit_id, l.key)
  select array_agg(d.limit_id), array_agg(d.key) into v_limits, v_keys from (select distinct l.limit_id, l.key from l) d;
  perform tuskline_core.recheck_head(u.limit_id, u.key, p_now, p_first) from unnest(v_limits, v_keys) as u (limit_id, key);
end $$;
comment on function tuskline_core.leave_wait_lists(bigint[], timestamptz, integer) is 'Takes tasks out of their lines; the first so many of each ask for a place.';
