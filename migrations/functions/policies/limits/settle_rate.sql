-- Counts the spent permits of a rate limit. See grant_rate.

-- Lists the permits of one key of a rate limit above a number, and when a claim spent each.
--
-- Null: it is unspent. A task that is gone, or that was restarted since, counts as claimed now.
--
-- Planner: limit 1 makes it look up one task at a time. A join of 2,000 permits, planned for 10,
-- compared each task with each permit, 100 ms.
create or replace function tuskline_core.rate_permits(
  p_limit_id bigint, p_key text, p_above bigint, p_now timestamptz)
returns table (row_at tid, permit_no bigint, claimed_at timestamptz)
language sql stable as $$
  select s.ctid, s.permit_no,
         case when t.fence is distinct from s.fence
              then least(coalesce(t.started_at, p_now), p_now) end
    from tuskline.permit s
         left join lateral (select t.fence, t.started_at from tuskline.task t
                             where t.id = s.task_id limit 1) t on true
   where s.limit_id = p_limit_id and s.key = p_key and s.permit_no > p_above
$$;
comment on function tuskline_core.rate_permits(bigint, text, bigint, timestamptz) is
  'Permits of one key of a rate limit above a number, and when a claim spent each. Null: unspent.';

-- Moves the bucket of a rate limit by claims, in the order of their times.
--
-- next_at counts as at most burst - 1 tokens in the past; each claim moves it by one token.
-- Clock: after a backward step claims lie in the future. next_at is at most one token from now:
-- otherwise no task would start until the clock has caught up.
create or replace function tuskline_core.moved_by_claims(
  p_next_at timestamptz, r tuskline.task_limit, p_claims timestamptz[], p_now timestamptz)
returns timestamptz language sql immutable as $$
  select least(
    p_now + interval '1 second' / r.per_second,
    greatest(p_next_at, max(c.at - (c.nth + r.burst - 2) / r.per_second * interval '1 second'))
      + count(*) / r.per_second * interval '1 second')
    from unnest(p_claims) with ordinality as c (at, nth)
$$;
comment on function tuskline_core.moved_by_claims(
  timestamptz, tuskline.task_limit, timestamptz[], timestamptz) is
  'The time of the next token of a rate limit after these claims, which are in the order of time.';

-- Counts the spent permits of one key of a rate limit: deletes them and moves the bucket.
--
-- The caller has locked the row of the limit, and saves the bucket.
--
-- Race: a claim that has not committed is counted as unspent, as if it came now or later. So no
-- claim is counted as too early.
create or replace function tuskline_core.settle_rate(
  p tuskline_core.rate_state, r tuskline.task_limit, p_now timestamptz)
returns tuskline_core.rate_state language plpgsql as $$
declare
  v_unspent bigint[];
  v_spent   bigint[]; -- with the times of the claims
  v_claims  timestamptz[];
  v_deleted bigint[];
begin
  with o as materialized (
    select * from tuskline_core.rate_permits(r.limit_id, p.key, p.settled_no, p_now)
     order by permit_no
  ), d as (
    delete from tuskline.permit d
     where d.ctid = any (array(
       select s.ctid from tuskline.permit s
        where s.ctid = any (array(select o.row_at from o where o.claimed_at is not null))
          for update skip locked))
    returning d.permit_no)
  select array_agg(o.permit_no) filter (where o.claimed_at is null),
         array_agg(o.permit_no) filter (where o.claimed_at is not null),
         array_agg(o.claimed_at) filter (where o.claimed_at is not null),
         (select array_agg(d.permit_no order by d.permit_no) from d)
    into v_unspent, v_spent, v_claims, v_deleted from o;
  if v_deleted is distinct from v_spent then -- other transactions hold the rest
    v_unspent := v_unspent || array(select unnest(v_spent) except select unnest(v_deleted));
    v_claims := array(select o.at from unnest(v_spent, v_claims) as o (no, at)
                       where o.no = any (v_deleted));
  end if;
  p.unspent := coalesce(cardinality(v_unspent), 0);
  p.settled_no := coalesce((select min(no) from unnest(v_unspent) as no) - 1, p.last_no);
  p.next_at := tuskline_core.moved_by_claims(
    p.next_at, r, array(select at from unnest(v_claims) as at order by at), p_now);
  return p;
end $$;
comment on function tuskline_core.settle_rate(
  tuskline_core.rate_state, tuskline.task_limit, timestamptz) is
  'Counts the spent permits of one key of a rate limit: deletes them, returns the moved bucket.';

-- Counts the spent permits of ended tasks of one segment, for find_stalled.
--
-- A limit counts them itself when a task asks for a permit. It does not where no task comes any
-- more, as that of a key that is used once.
-- Locks: limits, with SKIP LOCKED.
create or replace function tuskline_core.settle_rates(p_segment bigint, p_now timestamptz)
returns void language plpgsql as $$
declare
  o record;
  p tuskline_core.rate_state;
begin
  for o in
    select u as of_limit, s as bucket
      from tuskline_core.rate_state s join tuskline.task_limit u on u.limit_id = s.limit_id
     where exists (select from tuskline.permit h
                    where h.limit_id = s.limit_id and h.key = s.key and h.permit_no > s.settled_no
                      and tuskline_core.segment_of(h.task_id) = p_segment)
     order by s.limit_id, s.key for no key update of u skip locked
  loop
    p := tuskline_core.settle_rate(o.bucket, o.of_limit, p_now);
    update tuskline_core.rate_state s
       set next_at = p.next_at, unspent = p.unspent, settled_no = p.settled_no
     where s.limit_id = p.limit_id and s.key = p.key;
  end loop;
end $$;
comment on function tuskline_core.settle_rates(bigint, timestamptz) is
  'Counts the spent permits of the rate limits whose permits tasks of one segment hold.';
