-- Returns the key under which a limit counts a task.
--
-- Null: the limit does not apply to the task. Empty text: the limit counts all its tasks together.
create or replace function tuskline_core.counting_key(r tuskline.task_limit, t tuskline.task)
returns text language sql immutable as $$
  select case
    when t.lambda <> r.lambda
      or t.collection is distinct from coalesce(r.collection, t.collection)
      or t.priority <> coalesce(r.priority, t.priority) then null
    when r.kind = 'order' then t.ordering_key
    when r.by_key then t.limit_key
    else ''
  end
$$;
comment on function tuskline_core.counting_key(tuskline.task_limit, tuskline.task) is
  'Key under which a limit counts a task. Empty: all tasks together. Null: it does not apply.';

-- Returns the position of a task that joins a wait list now.
--
-- Tasks of an ordering policy all have position 0: their ids decide. Other tasks are served by
-- arrival time in seconds. Each priority below critical adds 20: a task that has waited 20 s longer
-- overtakes one of the next higher priority. Fair limits use fair_positions instead.
create or replace function tuskline_core.arrival_position(
  p_kind text, p_priority tuskline.priority, p_now timestamptz)
returns double precision language sql stable as $$
  select case
    when p_kind = 'order' then 0
    else extract(epoch from p_now)
         + 20 * (array_position('{critical,high,normal,low}'::tuskline.priority[], p_priority) - 1)
  end
$$;
comment on function tuskline_core.arrival_position(text, tuskline.priority, timestamptz) is
  'Position of a task that joins a wait list now. See the column tuskline.wait_list.position.';

-- Puts new tasks that are due straight into the wait list of their first limit.
--
-- One row replaces a timer, so a flood of tasks behind a limit costs the store consumer nothing
-- until the permits are granted. Only the first new task of each wait list needs a timer: its
-- recheck serves the whole list.
-- Returns the tasks that need no timer.
--
-- Tasks of a fair limit do not join here. Their positions need the row lock of the limit, so they
-- go through the store consumer.
--
-- Locks: none. A dropped limit is deleted only when the transactions that had written to wait lists
-- at the time have ended (release_wait_list).
--
-- Race: among open transactions with one ordering key, the first to commit is served first, also
-- if its task has a higher id.
create or replace function tuskline_core.join_wait_lists(p_ids bigint[], p_now timestamptz)
returns bigint[] language plpgsql as $$
declare
  v_first bigint := (select min(id) from unnest(p_ids) as id);
  v_last  bigint := (select max(id) from unnest(p_ids) as id);
  v_rest  bigint[];
begin
  if not exists (select from tuskline_core.policy_flag) then return '{}'; end if;
  with j as (
    insert into tuskline.wait_list (limit_id, key, position, task_id, joined_at)
    select f.limit_id, f.key, f.position, f.id, p_now
      from (select distinct on (t.id) r.limit_id, tuskline_core.counting_key(r, t) as key,
                   tuskline_core.arrival_position(r.kind, t.priority, p_now) as position,
                   t.id, r.fair
              from tuskline.task t
                   join tuskline.task_limit r on r.lambda = t.lambda and r.dropped_at is null
             where t.id = any (p_ids) and t.id between v_first and v_last -- prunes the partitions
               and t.status = 'new' and t.next_trigger_at <= p_now
               and tuskline_core.counting_key(r, t) is not null
             order by t.id, r.rank, r.limit_id) f
     where not f.fair
    returning limit_id, key, position, task_id)
  select array_agg(o.task_id) filter (where o.nth > 1) into v_rest
    from (select j.task_id,
                 row_number() over (
                   partition by j.limit_id, j.key order by j.position, j.task_id) as nth
            from j) o;
  return coalesce(v_rest, '{}');
end $$;
comment on function tuskline_core.join_wait_lists(bigint[], timestamptz) is
  'Puts new tasks into the wait list of their first limit. Returns the tasks that need no timer.';

-- Removes tasks that no longer wait from their wait lists, for example when they are cancelled.
--
-- A task that has not ended, as one that a gate holds, keeps its position in an ordering policy:
-- its successors wait for it.
--
-- The first p_first waiters of each wait list recheck, because the removed task may have been the
-- one to do so. p_first is higher where these may be removed as well.
create or replace function tuskline_core.leave_wait_lists(
  p_ids bigint[], p_now timestamptz, p_first integer default 1)
returns void language plpgsql as $$
declare
  v_limits bigint[];
  v_keys   text[];
begin
  with l as (
    delete from tuskline.wait_list l
     where l.task_id = any (p_ids)
       and not exists ( -- the scalar subquery looks up one task; a join might read them all
         select from tuskline.task_limit r
          where r.limit_id = l.limit_id and r.kind = 'order'
            and (select t.finished_at is null
                   from tuskline_core.all_tasks t where t.id = l.task_id))
    returning l.limit_id, l.key)
  select array_agg(d.limit_id), array_agg(d.key) into v_limits, v_keys
    from (select distinct l.limit_id, l.key from l) d;
  perform tuskline_core.recheck_head(u.limit_id, u.key, p_now, p_first)
     from unnest(v_limits, v_keys) as u (limit_id, key);
end $$;
comment on function tuskline_core.leave_wait_lists(bigint[], timestamptz, integer) is
  'Removes tasks that no longer wait from their wait lists. The first waiters recheck.';
