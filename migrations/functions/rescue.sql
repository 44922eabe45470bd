-- rescue: the store consumer's second verb. A lease that has expired together with its executor gives
-- its tasks back: enqueued again, guarded by the fence, one crash counted; the third crash in a row
-- is death. Everything is picked SKIP LOCKED: a hostile transaction delays its own row only.
-- A task known to be a suspect (crashes > 0) is charged only if its body had started.
-- The settings pin the plan: a hash join would read every segment of the task store.
create or replace function tuskline.rescue(
  p_limit integer default 100, out leases integer, out rescued integer, out buried integer)
language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_now    timestamptz := tuskline.clock();
  v_held   bigint[];
  v_lease  bigint[];
  v_tasks  bigint[];
  v_fences bigint[];
begin
  update tuskline.executor set ended_at = v_now, end_reason = 'expired'
   where executor_id = any (array(select executor_id from tuskline.executor
     where ended_at is null and expires_at <= v_now order by executor_id for update skip locked));
  v_lease := array(
    select l.lease_id from tuskline.executor e join tuskline.lease l using (executor_id)
     where e.ended_at is not null and l.expires_at <= v_now
     order by l.executor_id, l.lease_id limit p_limit for update of l skip locked);
  leases := cardinality(v_lease); rescued := 0; buried := 0;
  if leases = 0 then return; end if;
  -- Whose attempt it still is, and of these the rows that nobody else has locked.
  select array_agg(t.id order by t.id), array_agg(t.fence order by t.id) into v_tasks, v_fences
    from (select l.lease_id, unnest(l.task_ids) as id from tuskline.lease l where l.lease_id = any (v_lease)) s
         join tuskline.task t on t.id = s.id and t.fence = s.lease_id and t.status in ('claimed', 'processing');
  v_held := array(select t.id from tuskline.task t where t.id = any (v_tasks) order by t.id for update skip locked);
  select count(*) filter (where r.status = 'enqueued'), count(*) filter (where r.status = 'dead')
    into rescued, buried from tuskline.take_back(v_held, v_now) r;
  delete from tuskline.lease l
   where l.lease_id = any (v_lease) and not exists (
     select from unnest(v_tasks, v_fences) as s (id, fence) where s.fence = l.lease_id and s.id <> all (v_held));
end $$;
comment on function tuskline.rescue(integer) is
  'Puts back the tasks of expired leases whose executor has expired; says how many leases, rescued and dead tasks.';

create or replace function tuskline.take_back(p_ids bigint[], p_now timestamptz)
returns table (id bigint, status tuskline.status) language plpgsql as $$
#variable_conflict use_column
declare
  v_queues integer[];
begin
  return query
  with u as (
    update tuskline.task t
       set status = d.outcome, attempt = t.attempt - 1, crashes = t.crashes + d.charge,
           next_trigger_at = case when d.outcome = 'enqueued' then p_now + interval '10 minutes' end,
           finished_at = case when d.outcome <> 'enqueued' then p_now end
      from (select s.id, s.fence, s.charge, case when c.task_id is not null then 'cancelled'
                     when s.crashes + s.charge >= l.max_crashes then 'dead' else 'enqueued' end::tuskline.status as outcome
              from (select a.id, a.fence, a.lambda, a.crashes, (a.status = 'processing' or a.crashes = 0)::int as charge
                      from tuskline.task a where a.id = any (p_ids)) s
                   join tuskline.lambda l on l.name = s.lambda
                   left join tuskline.cancellation c on c.task_id = s.id and c.fence = s.fence
             order by s.id) d
     where t.id = d.id and t.fence = d.fence and t.status in ('claimed', 'processing')
    returning t.id, t.lambda, t.priority, t.status, t.fence, t.attempt, d.charge
  ), i as (
    insert into tuskline.queued (queue_id, task_id)
    select q.queue_id, u.id from u join tuskline.queue q on q.lambda = u.lambda and q.priority = u.priority
     where u.status = 'enqueued' order by u.id returning task_id
  ), f as (
    insert into tuskline.task_failure (task_id, fence, attempt, executor_id, error_class, message, fingerprint, failed_at)
    select u.id, u.fence, u.attempt + 1, e.executor_id, 'crash', format('worker %s on %s (pid %s) ended while it held the task', e.executor_id, e.host, e.pid),
           tuskline.fingerprint('crash', u.lambda), p_now
      from u join tuskline.lease s on s.lease_id = u.fence join tuskline.executor e on e.executor_id = s.executor_id
     where u.charge = 1
  ), c as (delete from tuskline.cancellation c using u where c.task_id = u.id)
  select u.id, u.status from u;
  select array_agg(distinct q.queue_id) into v_queues from tuskline.task t join tuskline.queue q on q.lambda = t.lambda and q.priority = t.priority
   where t.id = any (p_ids) and t.status = 'enqueued';
  perform tuskline.wake(v_queues);
end $$;
comment on function tuskline.take_back(bigint[], timestamptz) is 'claimed or processing -> enqueued, dead or cancelled, for tasks whose worker died.';
