-- Finds a task among the first 10,000 rows of its queue.
--
-- ahead: rows before it. Null: it is not among them. rows: how many were read.
-- Planner: the statement names the leaf. By the parent table it would plan, and lock, each queue.
create or replace function tuskline_core.place_in_queue(
  p_queue integer, p_task bigint, out ahead bigint, out rows bigint)
language plpgsql stable as $$
begin
  rows := 0;
  if to_regclass('tuskline_core.queue_' || p_queue) is null then return; end if;
  execute format('select min(n.no) filter (where n.task_id = $1) - 1, count(*) '
                 'from (select q.task_id, row_number() over (order by q.seq) as no '
                 'from tuskline_core.queue_%s q order by q.seq limit 10000) n', p_queue)
     into ahead, rows using p_task;
end $$;
comment on function tuskline_core.place_in_queue(integer, bigint) is
  'How many rows stand before a task in its queue, among the first 10,000.';

-- Lists the reasons why an enqueued task does not run (for explain).
create or replace function tuskline_core.explain_enqueued(
  p_task bigint, p_lambda text, p_collection text, p_priority tuskline.priority,
  p_queue integer, p_now timestamptz)
returns table (reason text, detail text, cause text, remedy text)
language sql stable as $$
  select 'not_recovered',
         'the server was restarted or promoted, or this database is a copy; '
         'no worker and no server has called rebuild_queues yet',
         'tuskline_core.verified_incarnation is empty', 'select tuskline.rebuild_queues()'
   where not exists (select from tuskline_core.verified_incarnation)
  union all
  select 'copied',
         format('this database is a copy of an earlier state; nothing is claimed until %s, '
                'because workers of the original may still run its tasks', c.claims_from),
         'tuskline_core.incarnation',
         'wait; if no worker of the original is left, as the owner: '
         'update tuskline_core.incarnation set claims_from = ''-infinity''; '
         'update tuskline_core.incarnation set written_by = xmin'
    from tuskline_core.verified_incarnation c where c.claims_from > p_now
  union all
  select e.*
    from tuskline_core.gate_of(p_lambda, p_collection, p_priority, p_now) g
         cross join lateral tuskline_core.explain_gate(g) e
  union all
  select 'no_worker',
         format('no live worker serves %s%s', p_lambda,
                case when w.silent + w.draining > 0
                     then format(' (%s silent, %s draining)', w.silent, w.draining)
                     else '' end),
         'tuskline.executors', format('start a worker with lambda %s', p_lambda)
    from (select count(*) filter (where e.expires_at > p_now and not e.draining) as live,
                 count(*) filter (where e.expires_at <= p_now) as silent,
                 count(*) filter (where e.draining and e.expires_at > p_now) as draining
            from tuskline.executor e
           where e.ended_at is null and p_lambda = any (e.lambdas)) w
   where w.live = 0
  union all
  select 'ahead',
         format('%s ahead in its queue, %s of higher priority',
                coalesce(a.ahead::text, '10000 or more'),
                (select case when bool_or(h.rows = 10000) then '10000 or more'
                             else coalesce(sum(h.rows), 0)::text end
                   from tuskline.queue q
                        cross join lateral tuskline_core.place_in_queue(q.queue_id, null) h
                  where q.lambda = p_lambda and q.priority < p_priority)),
         format('tuskline_core.queue_%s', p_queue), null
    from tuskline_core.place_in_queue(p_queue, p_task) a where a.ahead is not null or a.rows = 10000
  union all
  select 'stalled', 'it stands in no queue; the janitor finds such tasks',
         format('tuskline.task %s', p_task),
         format('select tuskline.find_stalled(%s, ''0'')', tuskline_core.segment_of(p_task))
    from tuskline_core.place_in_queue(p_queue, p_task) a
   where a.ahead is null and a.rows < 10000
     and exists (select from tuskline_core.verified_incarnation)
$$;
comment on function tuskline_core.explain_enqueued(
  bigint, text, text, tuskline.priority, integer, timestamptz) is
  'Reasons why an enqueued task does not run, for explain.';

-- Lists what holds a task that is claimed or processing (for explain).
create or replace function tuskline_core.explain_held(
  p_task bigint, p_status tuskline.status, p_fence bigint, p_started_at timestamptz,
  p_now timestamptz)
returns table (reason text, detail text, cause text, remedy text)
language sql stable as $$
  select 'cancel_requested',
         format('by %s at %s%s; the worker is told',
                c.requested_by, c.requested_at, ': ' || c.reason),
         format('tuskline.cancellation %s', p_task), null
    from tuskline.cancellation c where c.task_id = p_task and c.fence = p_fence
  union all
  select case when e.ended_at is not null then 'worker_ended'
              when e.expires_at <= p_now then 'worker_silent'
              else p_status::text end,
         format('held by worker %s (pid %s on %s)%s since %s, lease until %s%s',
                e.executor_id, e.pid, e.host, ' in its process ' || p.pid,
                p_started_at, e.expires_at,
                case when e.ended_at is not null
                     then format('; it %s at %s, a store consumer gives its tasks back',
                                 e.end_reason, e.ended_at)
                     when e.expires_at <= p_now
                     then '; no heartbeat since, a store consumer ends it'
                     else '' end),
         format('tuskline.lease %s', p_fence),
         case when e.ended_at is not null or e.expires_at <= p_now then 'run: tuskline serve'
              else format('select tuskline.cancel(%s)', p_task) end
    from tuskline.lease l join tuskline.executor e using (executor_id)
         left join tuskline.progress p on p.task_id = p_task and p.fence = p_fence
   where l.lease_id = p_fence
  union all
  select 'stalled', 'claimed, but under no lease; the janitor finds such tasks',
         format('tuskline.task %s', p_task),
         format('select tuskline.find_stalled(%s)', tuskline_core.segment_of(p_task))
   where not exists (select from tuskline.lease l where l.lease_id = p_fence)
$$;
comment on function tuskline_core.explain_held(
  bigint, tuskline.status, bigint, timestamptz, timestamptz) is
  'The worker and lease that hold a claimed or processing task, for explain.';
