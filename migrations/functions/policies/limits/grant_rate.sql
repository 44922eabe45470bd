-- A rate limit bounds starts: in any span of w seconds at most per_second * w + burst tasks start.
--
-- A start is a claim. A permit is granted before the task is enqueued, and may wait for its claim
-- as long as no worker is free. Therefore the token bucket (rate_state) runs by the claims:
--
--   grant   the task gets a permit with its fence; the bucket does not move
--   claim   gives the task a new fence, and so spends the permit. It asks no limit
--   settle  the next look at the bucket finds the spent permits, deletes them, and moves the bucket
--           by the time of each claim (task.started_at)
--
-- Unspent permits count against the bucket as if they were all claimed now, so at most burst
-- tokens are there at any time. A bucket that moved by grants would fill again while the queue
-- still holds granted tasks, and both would start when workers return.
--
-- Each claim needs a permit of its own: a task that comes back from a worker, for whatever reason,
-- acquires a new one.

-- Returns how many permits of a rate limit may be granted now.
create or replace function tuskline_core.free_tokens(
  p tuskline_core.rate_state, r tuskline.task_limit, p_now timestamptz)
returns integer language sql immutable as $$
  select greatest(0, 1 + floor( -- 1e-6: a token that is due now is not lost to rounding
    1e-6 + r.per_second * extract(epoch from p_now - greatest(
      p.next_at, p_now - (r.burst - 1) / r.per_second * interval '1 second'))) - p.unspent)::integer
$$;
comment on function tuskline_core.free_tokens(
  tuskline_core.rate_state, tuskline.task_limit, timestamptz) is
  'How many permits of a rate limit may be granted now.';

-- Tells whether it is time to count the spent permits of one key of a rate limit.
--
-- It is at the time that the last look has set (looks_at), and when the first waiter after the
-- start of the scan rechecks. A look that lies further ahead than any can was set before the clock
-- stepped back: it is due, too.
create or replace function tuskline_core.is_look_due(
  p tuskline_core.rate_state, r tuskline.task_limit, p_ids bigint[],
  p_from double precision, p_above bigint, p_now timestamptz)
returns boolean language sql stable as $$
  select p.looks_at <= p_now
      or p.looks_at > p_now + greatest(20, 1 + 1 / r.per_second) * interval '1 second'
      or (select l.task_id = any (p_ids) and l.joined_at < p_now from tuskline.wait_list l
           where l.limit_id = r.limit_id and l.key = p.key
             and (l.position, l.task_id) > (p_from, p_above)
           order by l.position, l.task_id limit 1)
$$;
comment on function tuskline_core.is_look_due(
  tuskline_core.rate_state, tuskline.task_limit, bigint[], double precision, bigint, timestamptz) is
  'Whether it is time to count the spent permits of one key of a rate limit.';

-- Returns when the first waiter of a rate limit looks again, at least 50 ms from now.
--
-- While less than burst permits are unspent: at the next token. Otherwise only a claim makes room.
-- Then it looks at the time of one token, at most after 10 s. A look reads all unspent permits, so
-- it waits 0.2 ms for each. They last for unspent / per_second seconds at least: a look after half
-- of that time comes before the rate falls behind.
create or replace function tuskline_core.next_rate_look(
  p tuskline_core.rate_state, r tuskline.task_limit, p_now timestamptz)
returns timestamptz language sql immutable as $$
  select greatest(p_now + interval '50 milliseconds', case
    when p.unspent < r.burst
    then p.next_at + p.unspent / r.per_second * interval '1 second'
    else p_now + greatest(least(1 / r.per_second, 10),
                          p.unspent * least(0.5 / r.per_second, 0.0002)) * interval '1 second' end)
$$;
comment on function tuskline_core.next_rate_look(
  tuskline_core.rate_state, tuskline.task_limit, timestamptz) is
  'When the first waiter of a rate limit looks again: at the next token, or for new claims.';

-- Grants as many permits of some keys of a rate limit as their token buckets allow by now.
--
-- The caller has locked the row of the limit.
-- Returns the waiters that got a permit.
create or replace function tuskline_core.grant_rate(
  r tuskline.task_limit, p_keys text[], p_ids bigint[], p_now timestamptz)
returns bigint[] language plpgsql as $$
declare
  v_given bigint[] := '{}';
  v_key   text;
begin
  for v_key in select distinct k from unnest(p_keys) as k order by 1 loop
    v_given := v_given || tuskline_core.grant_rate_of_key(r, v_key, p_ids, p_now);
  end loop;
  return v_given;
end $$;
comment on function tuskline_core.grant_rate(
  tuskline.task_limit, text[], bigint[], timestamptz) is
  'Grants as many permits of some keys as the rate allows by now. Needs the row lock of the limit.';

-- Grants permits of one key of a rate limit to its first waiters.
--
-- If waiters remain, the first of them looks again (next_rate_look).
--
-- Cost: spent permits are counted (settle_rate) only if the tokens do not suffice without, and only
-- when a look is due: otherwise each batch of tasks that join would read all of them.
--
-- Planner: granted waiters leave dead index entries at the head of the wait list. While an old
-- snapshot exists, vacuum keeps these, and each scan from the head would read all of them.
-- Therefore a scan starts just before the first waiter that the last scan left (scan_position,
-- scan_task_id). It starts at the first task of p_ids if that is earlier.
-- No waiter is missed for long. Each task that joins the list rechecks, or a task before it does.
-- Every 10 s a scan starts at the head. A fair wait list restarts its positions, so each scan does.
create or replace function tuskline_core.grant_rate_of_key(
  r tuskline.task_limit, p_key text, p_ids bigint[], p_now timestamptz)
returns bigint[] language plpgsql as $$
declare
  p       tuskline_core.rate_state;
  v_from  double precision; -- where the scan starts: position, and task in v_above
  v_above bigint;
  v_look  boolean;          -- spent permits are counted
  v_next  bigint[];         -- waiters that get a permit
  v_last  double precision; -- position of the last of them
  v_left  bigint;           -- first waiter that gets none
begin
  insert into tuskline_core.rate_state (limit_id, key, next_at)
  values (r.limit_id, p_key, '-infinity') on conflict do nothing;
  select * into p from tuskline_core.rate_state s where s.limit_id = r.limit_id and s.key = p_key;
  select f.position, f.id into v_from, v_above
    from (select '-infinity'::double precision as position, 0 as id
           where r.fair or p.swept_at <= p_now - interval '10 seconds'
          union all
          select p.scan_position, p.scan_task_id
          union all
          select l.position, l.task_id - 1 from tuskline.wait_list l
           where l.task_id = any (p_ids) and l.limit_id + 0 = r.limit_id and l.key = p_key
           order by 1, 2 limit 1) f;
  v_look := tuskline_core.is_look_due(p, r, p_ids, v_from, v_above, p_now);
  if v_look and exists (
       select from tuskline.wait_list l
        where l.limit_id = r.limit_id and l.key = p_key
          and (l.position, l.task_id) > (v_from, v_above)
        order by l.position, l.task_id offset tuskline_core.free_tokens(p, r, p_now)) then
    p := tuskline_core.settle_rate(p, r, p_now);
  end if;
  v_next := array(
    select l.task_id from tuskline.wait_list l
     where l.limit_id = r.limit_id and l.key = p_key
       and (l.position, l.task_id) > (v_from, v_above)
     order by l.position, l.task_id limit tuskline_core.free_tokens(p, r, p_now)
       for update skip locked);
  v_last := (select l.position from tuskline.wait_list l
              where l.task_id = v_next[cardinality(v_next)] and l.limit_id + 0 = r.limit_id);
  insert into tuskline.permit (limit_id, key, permit_no, task_id, acquired_at, fence)
  select r.limit_id, p_key, p.last_no + n.nth, n.id, p_now, coalesce(t.fence, 0)
    from unnest(v_next) with ordinality as n (id, nth)
         left join tuskline_core.fences_of(v_next) t on t.id = n.id;
  perform tuskline_core.end_waits(r, v_next, p_now);
  p.last_no := p.last_no + cardinality(v_next);
  p.unspent := p.unspent + cardinality(v_next);

  -- The next scan starts just before the first remaining waiter, else after the last granted one.
  select coalesce(l.position, v_last, p.scan_position),
         coalesce(l.task_id - 1, v_next[cardinality(v_next)], p.scan_task_id), l.task_id
    into p.scan_position, p.scan_task_id, v_left
    from (select) one
         left join lateral (
           select s.position, s.task_id from tuskline.wait_list s
            where s.limit_id = r.limit_id and s.key = p_key
              and (s.position, s.task_id) > (v_from, v_above)
            order by s.position, s.task_id limit 1) l on true;
  p.looks_at := case when v_left is null then '-infinity'
                     when v_look then tuskline_core.next_rate_look(p, r, p_now)
                     else p.looks_at end;
  update tuskline_core.rate_state s
     set next_at = p.next_at, last_no = p.last_no, unspent = p.unspent, settled_no = p.settled_no,
         looks_at = p.looks_at, scan_position = p.scan_position, scan_task_id = p.scan_task_id,
         swept_at = case when v_from = '-infinity' then p_now else s.swept_at end
   where s.limit_id = r.limit_id and s.key = p_key
     and (s is distinct from p or v_from = '-infinity');
  if v_left is not null then
    perform tuskline_core.add_timers(array[v_left], array[p.looks_at], 'recheck', p_now);
  end if;
  return v_next;
end $$;
comment on function tuskline_core.grant_rate_of_key(
  tuskline.task_limit, text, bigint[], timestamptz) is
  'Grants permits of one key of a rate limit to its first waiters. The next waiter looks again.';

create or replace function tuskline_core.fences_of(p_ids bigint[])
returns table (id bigint, fence bigint) language sql stable as $$
  select t.id, t.fence from tuskline.task t
   where t.id = any (p_ids)
     and t.id between (select min(id) from unnest(p_ids) as id) -- prunes the partitions
                  and (select max(id) from unnest(p_ids) as id)
$$;
comment on function tuskline_core.fences_of(bigint[]) is 'The fences of these tasks.';
