-- Grants the free permits of some keys of a concurrency limit, or of an ordering policy.
--
-- An ordering policy is a concurrency limit of 1 per ordering key. Keys are handled in sorted
-- order. The caller has locked the row of the limit.
-- Returns the waiters that got a permit.
--
-- Locked waiters: under a concurrency limit, a free waiter is served before a locked one. Under an
-- ordering policy, all wait for the head. In both cases the head rechecks in 20 ms.
--
-- Race: permits are released without a lock of the limit (release_permits). Without a remedy:
--   release_permits                      the transaction that runs this function
--   deletes the permit
--   reads the wait list: it is empty
--                                        has added task 7 to the wait list
--                                        counts the permit as held, so grants nothing
--   commits: the permit is free          commits: task 7 waits forever
-- Therefore this function locks the permits that it counted as held. A release that starts later
-- waits for the commit and then sees task 7. A permit that is locked or gone is being released
-- now: the head rechecks in 20 ms.
create or replace function tuskline_core.grant_concurrency(
  r tuskline.task_limit, p_keys text[], p_now timestamptz)
returns bigint[] language plpgsql as $$
declare
  v_most  integer := case when r.kind = 'order' then 1 else r.max_concurrency end;
  v_given bigint[] := '{}';
  v_key   text;
  v_taken bigint[]; -- numbers of the permits that are counted as held
  v_still bigint[]; -- numbers of the held permits that no other transaction has locked
  v_first bigint[]; -- first waiters, as many as there are free permits
  v_next  bigint[]; -- waiters that get a permit
begin
  for v_key in select distinct k from unnest(p_keys) as k order by 1 loop
    v_taken := array(select s.permit_no from tuskline.permit s
                      where s.limit_id = r.limit_id and s.key = v_key);
    v_first := array(select l.task_id from tuskline.wait_list l
                      where l.limit_id = r.limit_id and l.key = v_key
                      order by l.position, l.task_id
                      limit greatest(0, v_most - cardinality(v_taken)));
    if r.kind = 'order' then
      v_next := array(select l.task_id from tuskline.wait_list l
                       where l.task_id = any (v_first)
                         and l.limit_id + 0 = r.limit_id -- + 0: use wait_list_task
                       order by l.position, l.task_id for update skip locked);
    else
      v_next := array(select l.task_id from tuskline.wait_list l
                       where l.limit_id = r.limit_id and l.key = v_key
                       order by l.position, l.task_id
                       limit cardinality(v_first) for update skip locked);
    end if;
    if v_next <> '{}' then
      insert into tuskline.permit (limit_id, key, permit_no, task_id, acquired_at)
      select r.limit_id, v_key, f.permit_no, n.id, p_now
        from unnest(v_next) with ordinality as n (id, nth)
             join (select i as permit_no, row_number() over (order by i) as nth
                     from generate_series(1, v_most) as i where i <> all (v_taken)) f using (nth);
      perform tuskline_core.end_waits(r, v_next, p_now);
      v_given := v_given || v_next;
    end if;
    continue when not exists (
      select from tuskline.wait_list l where l.limit_id = r.limit_id and l.key = v_key);
    v_still := array(select s.permit_no from tuskline.permit s
                      where s.limit_id = r.limit_id and s.key = v_key
                        and s.permit_no = any (v_taken)
                      order by s.permit_no for update skip locked);
    if cardinality(v_still) < cardinality(v_taken)
       or cardinality(v_next) < cardinality(v_first) then
      perform tuskline_core.recheck_head(r.limit_id, v_key, p_now);
    end if;
  end loop;
  return v_given;
end $$;
comment on function tuskline_core.grant_concurrency(tuskline.task_limit, text[], timestamptz) is
  'Grants the free permits of some keys to their first waiters. Needs the row lock of the limit.';

-- Removes waiters that got a permit from the wait lists of its limit, and counts their waits.
create or replace function tuskline_core.end_waits(
  r tuskline.task_limit, p_ids bigint[], p_now timestamptz)
returns void language plpgsql as $$
declare
  v_since timestamptz[];
begin
  with d as (
    delete from tuskline.wait_list l
     where l.task_id = any (p_ids) and l.limit_id + 0 = r.limit_id -- + 0: use wait_list_task
    returning l.joined_at)
  select array_agg(d.joined_at) filter (where d.joined_at < p_now) into v_since from d;
  perform tuskline_core.count_waits(
    case r.kind when 'order' then 'order' else 'limit' end, r.lambda, v_since, p_now);
end $$;
comment on function tuskline_core.end_waits(tuskline.task_limit, bigint[], timestamptz) is
  'Removes waiters that got a permit from the wait lists of its limit, and counts their waits.';

-- Lets the first waiters of a wait list recheck in 20 ms.
--
-- The head is enough after a single change: if more permits are free, its recheck grants them to
-- the waiters behind it. p_first is higher where the head may leave as well.
create or replace function tuskline_core.recheck_head(
  p_limit_id bigint, p_key text, p_now timestamptz, p_first integer default 1)
returns void language plpgsql as $$
begin
  perform tuskline_core.add_timers(array(
      select l.task_id from tuskline.wait_list l
       where l.limit_id = p_limit_id and l.key = p_key
       order by l.position, l.task_id limit p_first),
    array[p_now + tuskline_core.recheck_after()], 'recheck', p_now);
end $$;
comment on function tuskline_core.recheck_head(bigint, text, timestamptz, integer) is
  'Lets the first waiters of a wait list recheck in 20 ms.';

-- Grants as many permits of some keys of a rate limit as their token buckets allow by now.
--
-- rate_state.next_at is the time of the next token. It counts as at most burst - 1 tokens in the
-- past: a longer pause earns no more. The caller has locked the row of the limit.
-- Returns the waiters that got a permit.
--
-- If waiters remain, the first of them rechecks at the next token, at least 50 ms from now.
--
-- Planner: granted waiters leave dead index entries at the head of the wait list. While an old
-- snapshot exists, vacuum keeps these, and each scan from the head would read all of them.
-- Therefore a scan starts just before the first waiter that the last scan left (scan_position,
-- scan_task_id). It starts at the first task of p_ids if that is earlier.
-- No waiter is missed for long. Each task that joins the list rechecks, or a task before it does.
-- Every 10 s a scan starts at the head. A fair wait list restarts its positions, so each scan does.
create or replace function tuskline_core.grant_rate(
  r tuskline.task_limit, p_keys text[], p_ids bigint[], p_now timestamptz)
returns bigint[] language plpgsql as $$
declare
  v_given    bigint[] := '{}';
  v_key      text;
  v_at       timestamptz;      -- when the next token comes
  v_from     double precision; -- where the scan starts: position, and task in v_above
  v_above    bigint;
  v_next     bigint[];         -- waiters that get a permit
  v_position double precision; -- where the next scan starts, with v_above
  v_left     bigint;           -- first waiter that gets none
begin
  for v_key in select distinct k from unnest(p_keys) as k order by 1 loop
    insert into tuskline_core.rate_state (limit_id, key, next_at)
    values (r.limit_id, v_key, '-infinity') on conflict do nothing;
    select greatest(p.next_at, p_now - (r.burst - 1) / r.per_second * interval '1 second'),
           f.position, f.id
      into v_at, v_from, v_above
      from tuskline_core.rate_state p
           cross join lateral (
             select '-infinity'::double precision as position, 0 as id
              where r.fair or p.swept_at <= p_now - interval '10 seconds'
             union all
             select p.scan_position, p.scan_task_id
             union all
             select l.position, l.task_id - 1 from tuskline.wait_list l
              where l.task_id = any (p_ids) and l.limit_id + 0 = r.limit_id and l.key = v_key
              order by 1, 2 limit 1) f
     where p.limit_id = r.limit_id and p.key = v_key;

    v_next := array(
      select l.task_id from tuskline.wait_list l
       where l.limit_id = r.limit_id and l.key = v_key
         and (l.position, l.task_id) > (v_from, v_above)
       order by l.position, l.task_id
       limit case when v_at > p_now then 0 -- 1e-6: a token that is due now is not lost to rounding
                  else 1 + floor(extract(epoch from p_now - v_at) * r.per_second + 1e-6) end
         for update skip locked);
    v_at := v_at + cardinality(v_next) / r.per_second * interval '1 second';
    v_position := (select l.position from tuskline.wait_list l
                    where l.task_id = v_next[cardinality(v_next)] and l.limit_id + 0 = r.limit_id);
    insert into tuskline.permit (limit_id, key, permit_no, task_id, acquired_at)
    select r.limit_id, v_key, id, id, p_now from unnest(v_next) as id;
    perform tuskline_core.end_waits(r, v_next, p_now);

    -- The next scan starts just before the first remaining waiter, else after the last granted one.
    select coalesce(l.position, v_position),
           coalesce(l.task_id - 1, v_next[cardinality(v_next)]), l.task_id
      into v_position, v_above, v_left
      from (select) one
           left join lateral (
             select s.position, s.task_id from tuskline.wait_list s
              where s.limit_id = r.limit_id and s.key = v_key
                and (s.position, s.task_id) > (v_from, v_above)
              order by s.position, s.task_id limit 1) l on true;
    update tuskline_core.rate_state p
       set next_at = v_at,
           scan_position = coalesce(v_position, p.scan_position),
           scan_task_id = coalesce(v_above, p.scan_task_id),
           swept_at = case when v_from = '-infinity' then p_now else p.swept_at end
     where p.limit_id = r.limit_id and p.key = v_key
       and (v_next <> '{}' or v_from = '-infinity'
            or (v_position, v_above) < (p.scan_position, p.scan_task_id));
    if v_left is not null then
      perform tuskline_core.add_timers(array[v_left],
        array[greatest(v_at, p_now + interval '50 milliseconds')], 'recheck', p_now);
    end if;
    v_given := v_given || v_next;
  end loop;
  return v_given;
end $$;
comment on function tuskline_core.grant_rate(
  tuskline.task_limit, text[], bigint[], timestamptz) is
  'Grants as many permits of some keys as the rate allows by now. Needs the row lock of the limit.';
