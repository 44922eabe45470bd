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
  v        tuskline_core.verdicts;
  s        record;
  v_low    bigint := (select min(id) from unnest(p_ids) as id);
  v_high   bigint := (select max(id) from unnest(p_ids) as id);
  v_ids    bigint[]; -- tasks that hold permits; their status, whether they have ended, their fence
  v_is     tuskline.status[]; v_ended boolean[]; v_fences bigint[];
  v_paused bigint[];
  v_next   bigint; v_doomed bigint[];
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
      into v_ids, v_is, v_ended, v_fences from tuskline.tasks t where t.id = any (v_ids);
  end if;

  for s in
    delete from tuskline.permit d
     using tuskline.task_limit r,
           unnest(v_ids, v_is, v_ended, v_fences) as t (id, status, ended, fence)
     where d.task_id = t.id and r.limit_id = d.limit_id and coalesce(d.fence = t.fence, true)
       and case
             when t.ended then not (r.kind = 'order' and r.on_failure = 'block'
                                    and t.status in ('fatal_failure', 'dead'))
             else t.status in ('new', 'retriable_failure') and r.kind <> 'order'
           end
    returning d.limit_id, d.key, d.permit_no, d.task_id, t.status,
              r.kind, r.max_concurrency, r.on_failure
  loop
    if s.kind = 'order' and s.on_failure = 'dead' and s.status in ('fatal_failure', 'dead') then
      v_doomed := tuskline_core.leave_wait_list(s.limit_id, s.key, p_max);
      v.doomed := v.doomed || v_doomed;
      v.message := v.message || array_fill(
        format('task %s before it, of the same ordering key, has failed', s.task_id),
        array[cardinality(v_doomed)]);
    end if;
    if s.kind = 'rate' or s.kind = 'concurrency' and s.permit_no > s.max_concurrency then
      -- The token is free again, or the limit was lowered. The head looks for a permit.
      perform tuskline_core.recheck_head(s.limit_id, s.key, p_now);
      continue;
    end if;
    continue when not exists (
      select from tuskline.wait_list l where l.limit_id = s.limit_id and l.key = s.key);
    if coalesce(cardinality(v.due), 0) + coalesce(cardinality(v.doomed), 0) >= p_max then
      insert into tuskline.permit (limit_id, key, permit_no, task_id, acquired_at)
      values (s.limit_id, s.key, s.permit_no, s.task_id, p_now);
      v.again := v.again || s.task_id;
    else
      v_next := tuskline_core.grant_to_next_waiter(s.limit_id, s.key, s.permit_no, s.kind, p_now);
      if v_next is not null then v.due := v.due || v_next; end if;
    end if;
  end loop;
  if v.doomed is not null then
    v.outcome := array_fill('dead'::tuskline.status, array[cardinality(v.doomed)]);
    v.error_class := array_fill('order'::text, array[cardinality(v.doomed)]);
  end if;
  return v;
end $$;
comment on function tuskline_core.release_permits(bigint[], integer, timestamptz) is
  'Releases the permits that tasks no longer need and grants each to the next waiter. Returns the '
  'new holders.';

-- Grants one permit that was just released to the next waiter of its wait list.
--
-- Under a concurrency limit a free waiter is served before a locked one. Under an ordering policy
-- only the head may be served.
-- Returns the waiter. Null: no task waits, or the next waiter is locked and rechecks in 20 ms.
create or replace function tuskline_core.grant_to_next_waiter(
  p_limit_id bigint, p_key text, p_permit_no bigint, p_kind text, p_now timestamptz)
returns bigint language plpgsql as $$
declare
  v_first bigint := (
    select l.task_id from tuskline.wait_list l
     where l.limit_id = p_limit_id and l.key = p_key
     order by l.position, l.task_id limit 1);
begin
  if p_kind = 'concurrency' then -- the first waiter that is not locked; if there is none, the head
    v_first := coalesce((select l.task_id from tuskline.wait_list l
                          where l.limit_id = p_limit_id and l.key = p_key
                          order by l.position, l.task_id limit 1 for update skip locked), v_first);
  end if;
  with d as (
    delete from tuskline.wait_list l
     where l.task_id = (
             select m.task_id from tuskline.wait_list m
              where m.task_id = v_first
                and m.limit_id + 0 = p_limit_id -- + 0: use wait_list_task
                for update skip locked)
       and l.limit_id + 0 = p_limit_id
    returning l.task_id, (1000 * extract(epoch from p_now - l.joined_at))::bigint as ms
  ), c as (
    insert into tuskline_core.event_count (at, lambda, event, bucket, events, total_ms)
    select p_now, r.lambda,
           case p_kind when 'order' then 'order' else 'limit' end::tuskline_core.counted_event,
           tuskline_core.bucket_of(d.ms), 1, d.ms
      from d join tuskline.task_limit r on r.limit_id = p_limit_id
     where d.ms > 0) -- below 0: the task joined after this transaction had read the clock
  insert into tuskline.permit (limit_id, key, permit_no, task_id, acquired_at)
  select p_limit_id, p_key, p_permit_no, d.task_id, p_now from d
  returning task_id into v_first;
  if found then return v_first; end if;
  perform tuskline_core.recheck_head(p_limit_id, p_key, p_now);
  return null;
end $$;
comment on function tuskline_core.grant_to_next_waiter(bigint, text, bigint, text, timestamptz) is
  'Grants a permit that was just released to the next waiter. Null: none waits, or it is locked.';

-- Tells whether a permit still counts for its task. A claim spends a rate permit.
create or replace function tuskline_core.is_unspent(s tuskline.permit) returns boolean
language plpgsql stable as $$
begin
  return s.fence is null
      or s.fence = (select t.fence from tuskline.tasks t where t.id = s.task_id);
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
