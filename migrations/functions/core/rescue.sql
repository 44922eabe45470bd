-- Ends dead executors and returns the tasks of every ended executor.
--
-- A returned task is enqueued again under the fence, and one crash is counted. After max_crashes in
-- a row (3 by default) the task is dead. A suspect (crashes > 0) is charged only if its body had
-- started.
--
-- The database clock does not decide which executor is dead. After a forward step of that clock
-- every live worker looks expired, and its tasks would run twice at a time. After a backward step
-- no worker does. Therefore the store consumer passes what it saw on its own monotonic clock:
--
--   p_silent     executors without a new heartbeat for a whole lease
--   p_beats      the heartbeat count of each
--   p_booted_at  the life of the server in which it saw them (a failover may lose heartbeats)
--
-- An executor ends here if its count and the life of the server are still these. Without p_silent
-- the database clock decides: for manual calls.
--
-- Returns the counts of leases, rescued and dead tasks. With p_silent it also returns the live
-- executors, for the store consumer's next observation.
--
-- Guarantees: all leases of an ended executor end, also one that a running claim commits later.
-- That worker has stopped itself, at T < L after it sent its last acknowledged heartbeat.
--
-- Locks: executors, leases and tasks, all with SKIP LOCKED. A transaction that holds one row delays
-- that row only.
--
-- Race: a heartbeat updates the executor's row. If it comes first, its count differs here, or its
-- locked row is skipped. If it comes later, it finds that the executor has ended.
--
-- Cost: leases are looked up for the executors that ended in the last 10 minutes, and in one call
-- of 30 for all that ended.
--
-- Planner: the settings pin nested loops. A hash join would read every segment of the task store.
create or replace function tuskline.rescue(
  p_limit integer default 100,
  p_silent bigint[] default null, p_beats bigint[] default null,
  p_booted_at timestamptz default null,
  p_installation text default 'default',
  out leases integer, out rescued integer, out buried integer,
  out booted_at timestamptz, out executors bigint[], out beats bigint[], out lease_ms bigint[],
  out silent_ms bigint[])
language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off set lock_timeout = '100ms'
set enable_hashjoin = off set enable_mergejoin = off
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_now    timestamptz := tuskline.clock();
  v_since  timestamptz := case when p_silent is null or random() < 1.0 / 30 then '-infinity'
                               else v_now - interval '10 minutes' end;
  v_dead   bigint[];
  v_held   bigint[]; -- tasks of v_tasks that this transaction has locked
  v_owner  bigint[]; -- executors of v_lease
  v_lease  bigint[];
  v_tasks  bigint[];
  v_fences bigint[]; -- fences of v_tasks
begin
  perform tuskline.check_installation(p_installation);
  if p_silent is null then
    v_dead := array(
      select e.executor_id from tuskline.executor e
       where e.ended_at is null and e.expires_at <= v_now
       order by e.executor_id for update skip locked);
  else
    booted_at := (select c.verified_at from tuskline_core.verified_incarnation c);
    v_dead := array(
      select e.executor_id
        from unnest(p_silent, p_beats) as s (executor_id, beats)
             join tuskline.executor e on e.executor_id = s.executor_id
       where booted_at = p_booted_at and e.ended_at is null and e.beats = s.beats
       order by e.executor_id for update of e skip locked);
  end if;
  update tuskline.executor e set ended_at = v_now, end_reason = 'expired'
   where e.executor_id = any (v_dead);
  delete from tuskline_core.live_executor a where a.executor_id = any (v_dead);
  if p_silent is not null then
    select array_agg(e.executor_id), array_agg(e.beats),
           array_agg(ceil(1000 * extract(epoch from e.lease))::bigint),
           array_agg(e.silent_ms::bigint)
      into executors, beats, lease_ms, silent_ms
      from tuskline.executor e where e.ended_at is null;
  end if;
  leases := 0; rescued := 0; buried := 0;
  -- Ends with the first batch that frees something: other transactions may hold all rows before it.
  for v_batch in 1 .. 100 loop
    select d.owners, d.leases into v_owner, v_lease
      from tuskline_core.leases_of_ended(
             v_since, v_owner[cardinality(v_owner)], v_lease[cardinality(v_lease)], p_limit) d;
    exit when v_lease is null;
    leases := leases + cardinality(v_lease);
    -- Tasks whose attempt still belongs to these leases.
    select array_agg(t.id order by t.id), array_agg(t.fence order by t.id) into v_tasks, v_fences
      from (select l.lease_id, unnest(l.task_ids) as id
              from unnest(v_owner, v_lease) as o (executor_id, lease_id)
                   join tuskline.lease l on l.executor_id = o.executor_id
                                        and l.lease_id = o.lease_id) s
           join tuskline.task t on t.id = s.id and t.fence = s.lease_id
                               and t.status in ('claimed', 'processing');
    -- The fence is checked again under the lock. Since the first read a late result may have ended
    -- the attempt, and another worker may have claimed the task.
    v_held := array(
      select t.id from tuskline.task t where t.id = any (v_tasks) and t.fence = any (v_lease)
       order by t.id for update skip locked);
    select count(*) filter (where r.status = 'enqueued'), count(*) filter (where r.status = 'dead')
      into rescued, buried from tuskline_core.return_crashed(v_held, v_owner, v_lease, v_now) r;
    -- A lease stays while one of its tasks is locked by another transaction.
    delete from tuskline.lease l using unnest(v_owner, v_lease) as o (executor_id, lease_id)
     where l.executor_id = o.executor_id and l.lease_id = o.lease_id
       and not exists (select from unnest(v_tasks, v_fences) as s (id, fence)
                        where s.fence = l.lease_id and s.id <> all (v_held));
    exit when found or cardinality(v_held) > 0 or cardinality(v_lease) < p_limit;
  end loop;
end $$;
comment on function tuskline.rescue(integer, bigint[], bigint[], timestamptz, text) is
  'Ends dead workers (p_silent) and returns the tasks of ended workers. Without p_silent the '
  'database clock decides: after a forward step of that clock tasks may run twice at a time.';

-- Locks the next leases of executors that ended after p_since, in the order of both numbers.
--
-- Planner: a look-up for each executor. While an old snapshot exists, a scan of all leases would
-- read every lease since then: 98,000 after 13 minutes at 1,000 tasks/s.
create or replace function tuskline_core.leases_of_ended(
  p_since timestamptz, p_executor bigint, p_lease bigint, p_limit integer,
  out owners bigint[], out leases bigint[])
language sql as $$
  select array_agg(d.executor_id), array_agg(d.lease_id)
    from (select e.executor_id, l.lease_id
            from (select x.executor_id from tuskline.executor x where x.ended_at > p_since
                   order by x.executor_id) e
                 cross join lateral (
                   select l.lease_id from tuskline.lease l
                    where l.executor_id = e.executor_id
                      and (l.executor_id, l.lease_id)
                          > (coalesce(p_executor, 0), coalesce(p_lease, 0))
                    order by l.lease_id for update skip locked) l
           limit p_limit) d
$$;
comment on function tuskline_core.leases_of_ended(timestamptz, bigint, bigint, integer) is
  'Locks the next leases of executors that ended after p_since.';

-- Saves how long executors have been silent, for the next store consumer.
--
-- Otherwise each of a series of short-lived store consumers would watch a dead executor for a whole
-- lease from the start. The times of two store consumers add up: the second continues from the
-- saved time. A row is written only if the heartbeat count and the life of the server are
-- unchanged, as in rescue.
create or replace function tuskline.note_silence(
  p_silent bigint[], p_beats bigint[], p_silent_ms bigint[], p_booted_at timestamptz)
returns void language sql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  update tuskline.executor e
     set silent_ms = greatest(e.silent_ms, least(s.silent_ms, 2147483647))
    from (select x.executor_id, u.silent_ms
            from unnest(p_silent, p_beats, p_silent_ms) as u (executor_id, beats, silent_ms)
                 join tuskline.executor x on x.executor_id = u.executor_id
           where x.ended_at is null and x.beats = u.beats
             and exists (select from tuskline_core.verified_incarnation c
                          where c.verified_at = p_booted_at)
           order by x.executor_id for update of x skip locked) s
   where e.executor_id = s.executor_id
$$;
comment on function tuskline.note_silence(bigint[], bigint[], bigint[], timestamptz) is
  'Saves how long executors have been silent at least, unless a heartbeat has come since.';

-- Returns tasks whose worker has ended: claimed or processing -> enqueued, dead or cancelled.
--
-- An attempt counts as crashed only if the worker has reported its start (status processing). A
-- worker that dies with tasks in its buffers has not attempted these tasks.
--
-- p_owners and p_leases are parallel: the executor of each lease. The index of leases begins with
-- the executor, so a search by lease number alone would scan all of it. The caller has locked the
-- tasks.
--
-- p_reported, p_classes and p_messages are parallel, in id order: the crashes that a worker reports
-- (report_crashes). It has seen that each of these attempts had begun, so each is charged.
create or replace function tuskline_core.return_crashed(
  p_ids bigint[], p_owners bigint[], p_leases bigint[], p_now timestamptz,
  p_reported bigint[] default null, p_classes text[] default null, p_messages text[] default null)
returns table (id bigint, status tuskline.status) language plpgsql as $$
#variable_conflict use_column
declare
  v_fences  bigint[];
  v_charge  smallint[];
  v_outcome tuskline.status[];
  v_done    tuskline_core.ended;
  v_begun   bigint[];
begin
  select array_agg(s.id order by s.id),
         array_agg(s.id) filter (where s.status = 'processing' or p_reported is not null),
         array_agg(s.fence order by s.id),
         array_agg(s.charge order by s.id),
         array_agg(case when s.crashes + s.charge >= l.max_crashes then 'dead' else 'enqueued' end
                     ::tuskline.status order by s.id)
    into p_ids, v_begun, v_fences, v_charge, v_outcome
    from (select a.id, a.fence, a.lambda, a.crashes, a.status,
                 (a.status = 'processing' or a.crashes = 0
                  or p_reported is not null)::integer::smallint as charge
            from tuskline.task a where a.id = any (p_ids)) s
         join tuskline.lambda l on l.name = s.lambda;
  v_done := tuskline_core.end_attempts(p_ids, v_fences, v_outcome,
    array(select case o when 'enqueued' then tuskline_core.stalled_after() end
            from unnest(v_outcome) with ordinality as u (o, nth) order by nth), v_charge, p_now);
  insert into tuskline.task_failure (task_id, fence, attempt, executor_id, error_class, message,
                                     fingerprint, failed_at, started_at)
  select u.id, v_fences[u.at], u.attempt + 1, e.executor_id, u.class,
         coalesce(u.message, format('worker %s on %s (pid %s) ended while it held the task',
                                    e.executor_id, e.host, e.pid)),
         tuskline_core.fingerprint(u.class, t.lambda), p_now, u.started_at
    from (select d.*, width_bucket(d.id, p_ids) as at,
                 coalesce(left(p_classes[width_bucket(d.id, p_reported)], 80), 'crash') as class,
                 left(p_messages[width_bucket(d.id, p_reported)], 8192) as message
            from unnest(v_done.task_id, v_done.attempt, v_done.started_at)
                   as d (id, attempt, started_at)) u
         join tuskline.task t on t.id = u.id
         join unnest(p_owners, p_leases) as s (executor_id, lease_id) on s.lease_id = v_fences[u.at]
         join tuskline.executor e on e.executor_id = s.executor_id
   where v_charge[u.at] = 1;
  perform tuskline_core.count_ends('crashed', v_begun, p_now);
  perform tuskline_core.failures_noted(v_done.task_id, v_done.status, p_now);
  -- Effects first: a task that then waits for a rate limit keeps its other permits.
  perform tuskline_core.run_effects(v_done.flagged, '{}', p_now);
  perform tuskline_core.queue_returned(array(select u.id
    from unnest(v_done.task_id, v_done.status) as u (id, outcome)
   where u.outcome = 'enqueued'), p_now);
  return query select u.id, u.outcome from unnest(v_done.task_id, v_done.status) as u (id, outcome);
end $$;
comment on function tuskline_core.return_crashed(
  bigint[], bigint[], bigint[], timestamptz, bigint[], text[], text[]) is
  'claimed or processing -> enqueued, dead or cancelled, for tasks whose worker or whose process '
  'died.';
