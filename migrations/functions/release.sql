-- release: work that was claimed and will not be finished here goes back at once: drain, gate,
-- a worker that claimed more than it can start. It costs the task neither an attempt nor a crash. A row
-- that somebody else has locked for more than 200 ms is held back with its lease: a drain cannot wait.
create or replace function tuskline.release(
  p_executor bigint, p_tasks bigint[], p_fences bigint[], p_done_leases bigint[] default null,
  out released bigint[], out held bigint[])
language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off set lock_timeout = '200ms'
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_now    timestamptz := tuskline.clock();
  v_first  bigint := (select min(id) from unnest(p_tasks) as id);
  v_last   bigint := (select max(id) from unnest(p_tasks) as id);
  v_queues integer[];
  v_ended  bigint[];
begin
  held := '{}';
  begin
    perform from tuskline.task t where t.id = any (p_tasks) and t.id between v_first and v_last order by t.id for no key update;
  exception when lock_not_available then
    held := tuskline.hold_back(p_tasks, p_fences);
  end;
  with u as (
    update tuskline.task t
       set status = case when c.task_id is null then 'enqueued' else 'cancelled' end::tuskline.status,
           attempt = t.attempt - 1,
           next_trigger_at = case when c.task_id is null then v_now + interval '10 minutes' end,
           finished_at = case when c.task_id is not null then v_now end
      from (select r.id, r.fence from unnest(p_tasks, p_fences) as r (id, fence)
             where r.id <> all (held) order by r.id) d
           left join tuskline.cancellation c on c.task_id = d.id and c.fence = d.fence
     where t.id = d.id and t.fence = d.fence and t.status in ('claimed', 'processing')
    returning t.id, t.lambda, t.priority, t.status, tuskline.payload_bytes(t.payload) as bytes
  ), i as (
    insert into tuskline.queued (queue_id, bytes, task_id)
    select q.queue_id, u.bytes, u.id from u join tuskline.queue q on q.lambda = u.lambda and q.priority = u.priority
     where u.status = 'enqueued' order by u.id
    returning queue_id
  ), c as (delete from tuskline.cancellation c using u where c.task_id = u.id)
  select array(select u.id from u), array(select distinct queue_id from i), array(select u.id from u where u.status = 'cancelled' order by u.id)
    into released, v_queues, v_ended;
  if cardinality(released) + cardinality(held) < cardinality(p_tasks) then perform tuskline.witness(); end if;
  perform tuskline.hand_on(v_ended, v_now, false); -- who was asked to stop meanwhile
  perform tuskline.drop_leases(p_executor, array(
    select d.lease_id from unnest(p_done_leases) as d (lease_id) where d.lease_id <> all (array(
      select r.fence from unnest(p_tasks, p_fences) as r (id, fence) where r.id = any (held)))));
  perform tuskline.wake(v_queues);
end $$;
comment on function tuskline.release(bigint, bigint[], bigint[], bigint[]) is
  'claimed or processing -> enqueued, at once and free of charge; names the tasks it moved, and those that others have locked.';

-- release_lease: gives back a whole lease whose claim the worker never got an answer to.
create or replace function tuskline.release_lease(p_executor bigint, p_lease bigint) returns bigint[]
language sql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  select r.released
    from tuskline.lease l, tuskline.release(p_executor, l.task_ids, array_fill(p_lease, array[cardinality(l.task_ids)]), array[p_lease]) r
   where l.executor_id = p_executor and l.lease_id = p_lease
$$;
comment on function tuskline.release_lease(bigint, bigint) is 'Releases every task of one lease of the caller''s.';
