-- Acquires the permits that tasks need before they may be enqueued or claimed.
--
-- Each task meets the limits of its lambda one after the other, in the order (rank, limit_id). With
-- a permit it continues with the next limit. Without one it stays in that limit's wait list and
-- keeps its permits of earlier limits. The caller has locked the task rows.
--
-- Returns (verdicts):
--   go       tasks of p_ids that wait for no permit
--   permits  tasks of go that hold permits which the end of their attempts releases
--   due      other tasks, earlier in a wait list, that got a permit
--
-- Guarantees:
--   At most max_concurrency permits are granted per limit and key (row lock, primary key).
--   A rate permit serves one claim (grant_rate): a task that was claimed since acquires a new one.
--   Waiters are served in the order (position, task_id). Only a locked waiter may be overtaken.
--   Tasks do not deadlock. All acquire in the same order, and a task that waits for one limit
--   holds no permit of a later limit (release_later_permits).
--
-- Locks: the row of each limit, one limit after the other. The lock is only tried. If another
-- transaction holds it, the tasks join no wait list and come due again in 20 ms.
--
-- Race: a permit may be released while it is counted as held. See grant_concurrency.
--
-- Planner: limit_id + 0 keeps it on the index by task_id, whatever the statistics say. The scalar
-- subqueries look up one task each. A join to the wait list, planned while that was empty, read all
-- of it for each task. The sets of ids are told apart by except: <> all compares each pair.
create or replace function tuskline_core.acquire_permits(p_ids bigint[], p_now timestamptz)
returns tuskline_core.verdicts language plpgsql as $$
declare
  v           tuskline_core.verdicts;
  r           tuskline.task_limit;
  v_limit     tuskline.task_limit;
  v_first     bigint := (select min(id) from unnest(p_ids) as id);
  v_last      bigint := (select max(id) from unnest(p_ids) as id);
  v_out       bigint[] := '{}'; -- tasks of p_ids that wait for a permit
  v_ids       bigint[];         -- tasks that still need a permit of r, with keys and positions
  v_keys      text[];
  v_fences    bigint[];
  v_positions double precision[];
  v_given     bigint[];         -- tasks that got a permit of r, also earlier waiters
  v_behind    bigint[];         -- tasks of v_ids that got none
begin
  v.due := '{}';
  for r in
    select u.*
      from (select distinct t.lambda from tuskline.task t
             where t.id = any (p_ids) and t.id between v_first and v_last) d
           join tuskline.task_limit u on u.lambda = d.lambda and u.dropped_at is null
     order by u.lambda, u.rank, u.limit_id
  loop
    select array_agg(c.id), array_agg(c.key), array_agg(c.fence), array_agg(c.position)
      into v_ids, v_keys, v_fences, v_positions
      from (select t.id, tuskline_core.counting_key(r, t) as key, t.fence,
                   tuskline_core.arrival_position(r.kind, t.priority,
                     case when t.status = 'enqueued' and t.fence > 0 -- it keeps its turn
                          then coalesce(t.scheduled_at, t.created_at) else p_now end) as position
              from tuskline.task t
             where t.id = any (case v_out when '{}' then p_ids else array(
                     select unnest(p_ids) except select unnest(v_out)) end)
               and t.id between v_first and v_last -- prunes the partitions
               and not exists (select from tuskline.permit s
                                where s.task_id = t.id and s.limit_id + 0 = r.limit_id
                                  and coalesce(s.fence = t.fence, true))) c
     where c.key is not null;
    continue when v_ids is null;

    select u.* into v_limit from tuskline.task_limit u
     where u.limit_id = r.limit_id for no key update skip locked;
    if not found then
      perform tuskline_core.add_timers(
        v_ids, array[p_now + tuskline_core.recheck_after()], 'due', p_now);
      v_out := v_out || v_ids;
      continue;
    end if;
    continue when v_limit.dropped_at is not null;
    r := v_limit; -- the locked row: settings may have changed since the loop's query

    if r.fair then v_positions := tuskline_core.fair_positions(r.limit_id, v_ids); end if;
    perform tuskline_core.join_wait_list(
      r.limit_id, v_ids, v_keys, v_fences, v_positions, p_now);
    if r.kind = 'rate' then
      v_given := tuskline_core.grant_rate(r, v_keys, v_ids, p_now);
    else
      v_given := tuskline_core.grant_concurrency(r, v_keys, p_now);
    end if;
    v_behind := array(select unnest(v_ids) except select unnest(v_given));
    v_out := v_out || v_behind;
    perform tuskline_core.release_later_permits(r, v_behind, p_now);
    v.due := v.due || array(select unnest(v_given) except select unnest(p_ids));
  end loop;
  v.go := array(select unnest(p_ids) except select unnest(v_out) order by 1);
  v.permits := array(select distinct s.task_id from tuskline.permit s
                      where s.task_id = any (v.go) and s.fence is null order by 1);
  return v;
end $$;
comment on function tuskline_core.acquire_permits(bigint[], timestamptz) is
  'Acquires permits for tasks that come due or are popped. Returns the tasks that wait for none, '
  'and the earlier waiters that got one.';

-- Adds tasks to the wait lists of a limit, unless they are there or have got a permit: a release
-- may have granted it since the caller looked.
create or replace function tuskline_core.join_wait_list(
  p_limit_id bigint, p_ids bigint[], p_keys text[], p_fences bigint[],
  p_positions double precision[], p_now timestamptz)
returns void language sql as $$
  insert into tuskline.wait_list (limit_id, key, position, task_id, joined_at)
  select p_limit_id, c.key, c.position, c.id, p_now
    from unnest(p_ids, p_keys, p_fences, p_positions) as c (id, key, fence, position)
   where (select l.task_id from tuskline.wait_list l
           where l.task_id = c.id and l.limit_id + 0 = p_limit_id limit 1) is null
     and (select s.task_id from tuskline.permit s
           where s.task_id = c.id and s.limit_id + 0 = p_limit_id
             and coalesce(s.fence = c.fence, true) limit 1) is null
$$;
comment on function tuskline_core.join_wait_list(
  bigint, bigint[], text[], bigint[], double precision[], timestamptz) is
  'Adds tasks that hold no permit to the wait lists of a limit.';

-- Takes tasks that wait for a limit off all later limits: their permits and their wait lists.
--
-- Tasks hold such permits only if the limit was set after they had acquired them.
--
-- Guarantees: a task that waits for one limit holds nothing of a later one. Otherwise two tasks
-- could wait for each other's permit.
create or replace function tuskline_core.release_later_permits(
  r tuskline.task_limit, p_ids bigint[], p_now timestamptz)
returns void language plpgsql as $$
declare
  v_later bigint[] := array(
    select u.limit_id from tuskline.task_limit u
     where u.lambda = r.lambda and (u.rank, u.limit_id) > (r.rank, r.limit_id));
begin
  if p_ids = '{}' or v_later = '{}' then return; end if;
  perform tuskline_core.withdraw(p_ids, v_later, p_now);
end $$;
comment on function tuskline_core.release_later_permits(
  tuskline.task_limit, bigint[], timestamptz) is
  'Takes tasks that wait for a limit off all later limits.';

-- Takes tasks off limits: releases their permits and removes them from the wait lists.
--
-- p_limits names the limits; null means all. In each wait list concerned the first 100 waiters
-- recheck in 20 ms. The head alone is not enough, because it may have to withdraw as well.
-- Spent rate permits stay: their limit still has to count them (settle_rate).
--
-- Permits are not granted to the next waiter here. The caller's transaction may stay open for long,
-- and a waiter that it enqueued would stay locked until then.
--
-- Locks: rows are locked first (SKIP LOCKED) and deleted by key, so the delete never waits. Another
-- transaction grants or releases a locked row now. If a permit was locked, its task rechecks in
-- 20 ms.
create or replace function tuskline_core.withdraw(
  p_ids bigint[], p_limits bigint[], p_now timestamptz)
returns void language plpgsql as $$
declare
  v_limits bigint[]; -- wait lists concerned: limit and key
  v_keys   text[];
begin
  with s as (
    delete from tuskline.permit d
     using (select o.limit_id, o.key, o.permit_no from tuskline.permit o
             where o.task_id = any (p_ids)
               and (p_limits is null or o.limit_id + 0 = any (p_limits)) -- + 0: use permit_task
               and tuskline_core.is_unspent(o)
               for update skip locked) f
     where d.limit_id = f.limit_id and d.key = f.key and d.permit_no = f.permit_no
    returning d.limit_id, d.key
  ), l as (
    delete from tuskline.wait_list d
     using (select o.limit_id, o.key, o.position, o.task_id from tuskline.wait_list o
             where o.task_id = any (p_ids)
               and (p_limits is null or o.limit_id + 0 = any (p_limits)) -- + 0: use wait_list_task
               for update skip locked) f
     where d.limit_id = f.limit_id and d.key = f.key and d.position = f.position
       and d.task_id = f.task_id
    returning d.limit_id, d.key)
  select array_agg(u.limit_id), array_agg(u.key) into v_limits, v_keys
    from (select s.limit_id, s.key from s union select l.limit_id, l.key from l) u;
  -- Permits that were locked above are still there.
  perform tuskline_core.add_timers(array(
      select distinct o.task_id from tuskline.permit o
       where o.task_id = any (p_ids)
         and tuskline_core.is_unspent(o)
         and (p_limits is null or o.limit_id + 0 = any (p_limits))),
    array[p_now + tuskline_core.recheck_after()], 'recheck', p_now);
  perform tuskline_core.recheck_head(u.limit_id, u.key, p_now, 100)
     from unnest(v_limits, v_keys) as u (limit_id, key);
end $$;
comment on function tuskline_core.withdraw(bigint[], bigint[], timestamptz) is
  'Takes tasks off these limits (null: all): permits and wait lists. The next waiters recheck.';
