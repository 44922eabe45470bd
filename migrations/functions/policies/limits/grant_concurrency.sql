-- Grants the free permits of some keys of a concurrency limit, or of an ordering policy.
--
-- An ordering policy is a concurrency limit of 1 per ordering key. The caller has locked the row of
-- the limit.
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
-- Therefore this function locks the permits that it counts as held, of each key that still has
-- waiters. A release that starts later waits for the commit and then sees task 7. A permit that is
-- locked or gone is being released now: the head rechecks in 20 ms. No other transaction sees the
-- permits that this one grants, so a key that had none needs no lock.
--
-- Cost: one scan of each wait list, and two statements for all keys.
create or replace function tuskline_core.grant_concurrency(
  r tuskline.task_limit, p_keys text[], p_now timestamptz)
returns bigint[] language plpgsql as $$
declare
  v_most  integer := case when r.kind = 'order' then 1 else r.max_concurrency end;
  v_given bigint[];
  v_since timestamptz[];
  v_keys  text[];    -- keys that may have waiters left, and whether they had permits before
  v_had   boolean[];
begin
  with t as materialized (
    select k.key, array(select s.permit_no from tuskline.permit s
                         where s.limit_id = r.limit_id and s.key = k.key) as taken,
           case r.kind when 'order' then ( -- the head
             select l.task_id from tuskline.wait_list l
              where l.limit_id = r.limit_id and l.key = k.key
              order by l.position, l.task_id limit 1) else 0 end as last,
           case r.kind when 'order' then 0 else 'infinity'::double precision end as most
      from (select distinct k from unnest(p_keys) as k) k (key)
  ), w as materialized (
    select t.key, t.taken, n.*
      from t cross join lateral (
             select array_agg(l.row) as rows, array_agg(l.task_id) as ids,
                    array_agg(l.joined_at) as since
               from (select l.ctid as row, l.task_id, l.joined_at from tuskline.wait_list l
                      where l.limit_id = r.limit_id and l.key = t.key
                        and (l.position, l.task_id) <= (t.most, t.last)
                      order by l.position, l.task_id
                      limit greatest(0, v_most - cardinality(t.taken))
                        for update skip locked) l) n
  ), d as (
    delete from tuskline.wait_list l
     where l.ctid = any (array(select unnest(w.rows) from w))
  ), i as (
    insert into tuskline.permit (limit_id, key, permit_no, task_id, acquired_at)
    select r.limit_id, w.key, u.no, u.id, p_now
      from w cross join lateral unnest(w.ids, case -- the free numbers
             when w.taken = '{}' then array(select generate_series(1, cardinality(w.ids)))
             else array(
               select n from generate_series(1, cardinality(w.taken) + cardinality(w.ids)) as n
               except select unnest(w.taken)
                order by 1 limit cardinality(w.ids)) end) as u (id, no)
  ), k as (
    select array_agg(w.key order by w.key) as keys,
           array_agg(w.taken <> '{}' order by w.key) as had
      from w where w.taken <> '{}' or coalesce(cardinality(w.ids), 0) < v_most)
  select array_agg(u.id), array_agg(u.since) filter (where u.since < p_now),
         (select k.keys from k), (select k.had from k)
    into v_given, v_since, v_keys, v_had
    from w cross join lateral unnest(w.ids, w.since) as u (id, since);
  perform tuskline_core.count_waits(
    case r.kind when 'order' then 'order' else 'limit' end, r.lambda, v_since, p_now);

  perform tuskline_core.recheck_head(r.limit_id, k.key, p_now)
     from unnest(v_keys, v_had) as k (key, had)
    where exists (select from tuskline.wait_list l
                   where l.limit_id = r.limit_id and l.key = k.key)
      and (not k.had or v_most > (
        select count(*) from (select from tuskline.permit s
                               where s.limit_id = r.limit_id and s.key = k.key
                               order by s.permit_no for update skip locked) s));
  return coalesce(v_given, '{}');
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
