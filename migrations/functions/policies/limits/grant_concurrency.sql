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
