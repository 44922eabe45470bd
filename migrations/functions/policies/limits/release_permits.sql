-- Releases the permits that tasks no longer need, and grants each one to the next waiter.
--
-- Called after the tasks' rows have changed. Their status decides what is released:
--
--   task                            concurrency, rate   order
--   ended, not failed               released            released
--   ended, failed                   released            kept under block, until unblock()
--   waits (retry, snooze)           released            kept: its successors wait for it
--   enqueued in a paused queue      released            kept
--   enqueued elsewhere, or running  kept                kept
--
-- A rate permit that a claim has spent is not touched: it is no permit any more, and its limit
-- still has to count it (settle_rate). A task of a paused queue acquires the released permits again
-- when it is claimed.
--
-- Returns (verdicts):
--   due     waiters that got a permit
--   doomed  waiters behind a failed task of their ordering key, if on_failure is dead
--   again   tasks that keep a permit for now, because due and doomed have reached p_max
--
-- Guarantees: a permit passes from one task to the next in one transaction. It is free only if no
-- task waits, or if the waiters are locked.
--
-- Race: this function takes no lock of the limit. A transaction that grants permits locks the
-- permits that it counts as held. Either the release waits for it and sees its waiters, or it
-- notices the release. See grant_concurrency.
create or replace function tuskline_core.release_permits(
  p_ids bigint[], p_max integer, p_now timestamptz)
returns tuskline_core.verdicts language plpgsql as $$
declare
  v          tuskline_core.verdicts;
  n          tuskline_core.verdicts;
  s          record;
  v_low      bigint := (select min(id) from unnest(p_ids) as id);
  v_high     bigint := (select max(id) from unnest(p_ids) as id);
  v_ids      bigint[]; -- tasks that hold permits; their status, whether they ended, their fence
  v_is       tuskline.status[];
  v_ended    boolean[];
  v_fences   bigint[];
  v_paused   bigint[];
  v_released tuskline.permit[];
  v_doomed   bigint[];
begin
  if not exists (select from tuskline_core.policy_flag) then return v; end if;
  v_ids := tuskline_core.permit_holders(p_ids);
  if v_ids = '{}' then return v; end if;
  v_paused := tuskline_core.in_paused_queues(v_ids, p_now);
  select array_agg(case when t.status = 'enqueued' and t.id = any (v_paused) then 'new'
                        else t.status end order by t.id),
         array_agg(t.finished_at is not null order by t.id), array_agg(t.fence order by t.id)
    into v_is, v_ended, v_fences
    from tuskline.task t
   where t.id = any (v_ids) and t.id between v_low and v_high; -- prunes the partitions
  if cardinality(v_is) is distinct from cardinality(v_ids) then
    -- Some segments are gone. The view has their kept tasks. Pauses of queues do not count here.
    select array_agg(t.id order by t.id), array_agg(t.status order by t.id),
           array_agg(t.finished_at is not null order by t.id), array_agg(t.fence order by t.id)
      into v_ids, v_is, v_ended, v_fences from tuskline_core.all_tasks t where t.id = any (v_ids);
  end if;

  with d as (
    delete from tuskline.permit d
     using tuskline.task_limit r,
           unnest(v_ids, v_is, v_ended, v_fences) as t (id, status, ended, fence)
     where d.task_id = t.id and r.limit_id = d.limit_id and coalesce(d.fence = t.fence, true)
       and case
             when t.ended then not (r.kind = 'order' and r.on_failure = 'block'
                                    and t.status in ('fatal_failure', 'dead'))
             else t.status in ('new', 'retriable_failure') and r.kind <> 'order'
           end
    returning d as permit)
  select array_agg(d.permit) into v_released from d;
  if v_released is null then return v; end if;
  if v_is && '{fatal_failure,dead}' then
    for s in
      select e.limit_id, e.key, e.task_id
        from unnest(v_released) e
             join tuskline.task_limit r
               on r.limit_id = e.limit_id and r.kind = 'order' and r.on_failure = 'dead'
             join unnest(v_ids, v_is) as t (id, status)
               on t.id = e.task_id and t.status in ('fatal_failure', 'dead')
    loop
      v_doomed := tuskline_core.leave_wait_list(s.limit_id, s.key, p_max);
      v.doomed := v.doomed || v_doomed;
      v.message := v.message || array_fill(
        format('task %s before it, of the same ordering key, has failed', s.task_id),
        array[cardinality(v_doomed)]);
    end loop;
  end if;
  n := tuskline_core.grant_to_next_waiters(
    v_released, p_max - coalesce(cardinality(v.doomed), 0), p_now);
  v.due := n.due;
  v.again := n.again;
  if v.doomed is not null then
    v.outcome := array_fill('dead'::tuskline.status, array[cardinality(v.doomed)]);
    v.error_class := array_fill('order'::text, array[cardinality(v.doomed)]);
  end if;
  return v;
end $$;
comment on function tuskline_core.release_permits(bigint[], integer, timestamptz) is
  'Releases the permits that tasks no longer need and grants each to the next waiter. Returns the '
  'new holders.';

-- Grants permits that were just released to the next waiters of their wait lists.
--
-- Under a concurrency limit a free waiter is served before a locked one. Under an ordering policy
-- only the head may be served. A token of a rate limit, and a permit above a limit that was
-- lowered, are not granted: the head looks for a permit.
-- Returns (verdicts):
--   due    waiters that got a permit, p_max at most
--   again  tasks that get their permits back, because due would exceed p_max
--
-- A wait list whose waiters are locked rechecks in 20 ms.
--
-- Cost: one scan of each wait list for all permits of a key. The rows that it deletes stay in the
-- index until the transaction ends, and each further scan would read them.
create or replace function tuskline_core.grant_to_next_waiters(
  p_released tuskline.permit[], p_max integer, p_now timestamptz)
returns tuskline_core.verdicts language plpgsql as $$
declare
  v         tuskline_core.verdicts;
  v_since   timestamptz[]; -- waits that end
  v_lambdas text[];
  v_causes text[];
  v_limits  bigint[];      -- wait lists that recheck
  v_keys    text[];
begin
  with e as materialized (
    select s.limit_id, s.key, r.kind, r.lambda,
           array_agg(s.permit_no order by s.permit_no) filter (where n.is_free) as nos,
           array_agg(s order by s.permit_no) filter (where n.is_free) as permits,
           count(*) filter (where n.is_free)::integer as free, bool_or(not n.is_free) as looks
      from unnest(p_released) s join tuskline.task_limit r on r.limit_id = s.limit_id
           cross join lateral (select r.kind = 'order' or r.kind = 'concurrency'
                                      and s.permit_no <= r.max_concurrency as is_free) n
     group by s.limit_id, s.key, r.kind, r.lambda
  ), g as materialized (
    select e.*, h.position, h.task_id,
           greatest(0, least(e.free, p_max - (sum(e.free) over (
             order by e.limit_id, e.key rows unbounded preceding) - e.free)))::integer as most
      from e cross join lateral (
             select l.position, l.task_id from tuskline.wait_list l
              where l.limit_id = e.limit_id and l.key = e.key
              order by l.position, l.task_id limit 1) h
  ), w as materialized (
    select g.*, n.rows, n.ids, n.since
      from g cross join lateral (
             select array_agg(l.row) as rows, array_agg(l.task_id) as ids,
                    array_agg(l.joined_at) as since
               from (select l.ctid as row, l.task_id, l.joined_at from tuskline.wait_list l
                      where l.limit_id = g.limit_id and l.key = g.key
                        and (l.position, l.task_id)
                            <= (case when g.kind = 'order' then g.position else 'infinity' end,
                                g.task_id)
                      order by l.position, l.task_id limit g.most for update skip locked) l) n
  ), d as (
    delete from tuskline.wait_list l
     where l.ctid = any (array(select unnest(w.rows) from w))
  ), i as (
    insert into tuskline.permit (limit_id, key, permit_no, task_id, acquired_at)
    select w.limit_id, w.key, u.no, u.id, p_now
      from w cross join lateral unnest(w.ids, w.nos[:cardinality(w.ids)]) as u (id, no)
    union all
    select b.limit_id, b.key, b.permit_no, b.task_id, p_now
      from w cross join lateral unnest(w.permits[w.most + 1:]) b
  ), o as (
    select w.limit_id, w.key from w where w.looks or coalesce(cardinality(w.ids), 0) < w.most
  )
  select array_agg(u.id), array_agg(u.since), array_agg(w.lambda),
         array_agg(case w.kind when 'order' then 'order' else 'limit' end),
         (select array_agg(b.task_id) from w cross join lateral unnest(w.permits[w.most + 1:]) b),
         (select array_agg(o.limit_id) from o), (select array_agg(o.key) from o)
    into v.due, v_since, v_lambdas, v_causes, v.again, v_limits, v_keys
    from w cross join lateral unnest(w.ids, w.since) as u (id, since);
  perform tuskline_core.count_waits(k.cause, k.lambda, k.since, p_now)
     from (select u.cause, u.lambda, array_agg(u.since) as since
             from unnest(v_causes, v_lambdas, v_since) as u (cause, lambda, since)
            group by 1, 2) k;
  perform tuskline_core.recheck_head(u.limit_id, u.key, p_now)
     from unnest(v_limits, v_keys) as u (limit_id, key);
  return v;
end $$;
comment on function tuskline_core.grant_to_next_waiters(
  tuskline.permit[], integer, timestamptz) is
  'Grants permits that were just released to the next waiters. Returns the new holders, and tasks '
  'that get their permits back.';

-- Tells whether a permit still counts for its task. A claim spends a rate permit.
create or replace function tuskline_core.is_unspent(s tuskline.permit) returns boolean
language plpgsql stable as $$
begin
  return s.fence is null
      or s.fence = (select t.fence from tuskline_core.all_tasks t where t.id = s.task_id);
end $$;
comment on function tuskline_core.is_unspent(tuskline.permit) is
  'Tells whether a permit still counts for its task: a claim spends a rate permit.';

create or replace function tuskline_core.permit_holders(p_ids bigint[]) returns bigint[]
language sql as $$
  select array(select distinct s.task_id from tuskline.permit s
                where s.task_id = any (p_ids) order by 1)
$$;
comment on function tuskline_core.permit_holders(bigint[]) is
  'Returns the tasks that hold permits, in id order: also spent ones of a rate limit.';

-- Removes the first p_max waiters from a wait list.
--
-- Returns them in id order.
-- Locks: it waits for waiters that another transaction has locked.
create or replace function tuskline_core.leave_wait_list(
  p_limit_id bigint, p_key text, p_max integer)
returns bigint[] language plpgsql as $$
declare
  v_ids bigint[];
begin
  with f as materialized ( -- else a plan may read it again for each row, with other waiters
    select o.position, o.task_id from tuskline.wait_list o
     where o.limit_id = p_limit_id and o.key = p_key
     order by o.position, o.task_id limit p_max for update
  ), l as (
    delete from tuskline.wait_list l using f
     where l.limit_id = p_limit_id and l.key = p_key and l.position = f.position
       and l.task_id = f.task_id
    returning l.task_id)
  select coalesce(array_agg(l.task_id order by l.task_id), '{}') into v_ids from l;
  return v_ids;
end $$;
comment on function tuskline_core.leave_wait_list(bigint, text, integer) is
  'Removes the first waiters from a wait list. Returns them.';
