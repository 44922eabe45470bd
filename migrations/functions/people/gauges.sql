-- State of the installation now, for metrics and for people who watch it.

-- Returns depth and head of each queue. A scan starts above a mark of the caller. So it skips the
-- dead rows that vacuum keeps while an old snapshot exists.
--
-- p_queues and p_marks are parallel. A mark is the head_seq of an earlier call, minus 1. A queue
-- that is not in p_queues is read from its first row.
-- depth is exact below p_rows, the most rows that are read of a queue. From p_rows on it is the
-- estimate of PostgreSQL's statistics.
-- p_probes: most queues with tasks that are read, for a caller with thousands of queues. It reads
-- queues that have tasks by estimate, other ones in each call, and one in 64 of the remaining
-- ones, because the estimate may miss a task. A queue that is not read has the depth of the
-- estimate and no head. Null: every queue is read.
-- enqueued: all rows that were ever inserted. A retry inserts another row, and rows of transactions
-- that rolled back count, too. A crash of the server sets it to 0.
-- oldest_ms: the time since the head was due. If the head was claimed before: the time since it
-- came back to the queue. Null: the queue is empty, or not read.
-- Locks: a read of a leaf takes two locks, and the server has room for 64 per connection. So each
-- leaf is read in a block that ends with the error TK000. PostgreSQL releases the locks of a failed
-- block.
-- Planner: each statement names its leaf and uses the leaf's primary key (seq).
create or replace function tuskline.queue_gauges(
  p_queues integer[] default '{}', p_marks bigint[] default '{}', p_lambda text default null,
  p_rows integer default 1000, p_probes integer default null)
returns table (queue_id integer, lambda text, priority text, depth bigint, oldest_ms bigint,
               head_seq bigint, paused boolean, enqueued bigint)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
declare
  v_now    timestamptz := tuskline.clock();
  v_turn   integer := floor(extract(epoch from v_now) / 5)::bigint % 65536;
  v_paused integer[] := array(select q.queue_id from tuskline_core.paused_queues(v_now) q);
  v_mark   bigint;
  v_leaf   oid;
  v_task   bigint;
  v_reads  boolean;
begin
  for queue_id, lambda, priority, v_mark, v_leaf, depth, v_reads in
    select q.queue_id, q.lambda, q.priority::text, coalesce(m.mark, 0), c.oid, l.live,
           p_probes is null or (q.queue_id + v_turn) % 64 = 0
             or l.live > 0 and p_probes >= row_number() over (
               order by l.live = 0, hashint4(q.queue_id + v_turn), q.queue_id)
      from tuskline.queue q
           left join pg_class c on c.relname = 'queue_' || q.queue_id
                               and c.relnamespace = 'tuskline_core'::regnamespace
           left join unnest(p_queues, p_marks) as m (queue_id, mark) on m.queue_id = q.queue_id
           cross join lateral (select coalesce(pg_stat_get_live_tuples(c.oid), 0) as live) l
     where p_lambda is null or q.lambda = p_lambda order by q.lambda, q.priority
  loop
    paused := queue_id = any (v_paused);
    oldest_ms := null;
    head_seq := null;
    enqueued := pg_stat_get_tuples_inserted(v_leaf);
    if v_reads then
      depth := 0;
    end if;
    if v_reads and v_leaf is not null and pg_relation_size(v_leaf) > 0 then
      begin
        execute format('select min(q.seq), count(*), (array_agg(q.task_id order by q.seq))[1] '
                       'from (select seq, task_id from tuskline_core.queue_%s where seq > $1 '
                       'order by seq limit $2) q', queue_id)
           into head_seq, depth, v_task
          using v_mark, p_rows;
        raise sqlstate 'TK000';
      exception when sqlstate 'TK000' then null;
      end;
    end if;
    if head_seq is not null then
      if depth = p_rows then
        depth := greatest(depth, pg_stat_get_live_tuples(v_leaf));
      end if;
      oldest_ms := (
        select greatest(1000 * extract(epoch from v_now - case
                 when t.fence = 0 then t.due_at
                 when t.status = 'enqueued' then t.next_trigger_at - tuskline_core.stalled_after()
                 else v_now end), 0)::bigint
          from tuskline_core.all_tasks t where t.id = v_task);
    end if;
    return next;
  end loop;
end $$;
comment on function tuskline.queue_gauges(integer[], bigint[], text, integer, integer) is
  'Depth of each queue (above p_rows an estimate), how long its head has been due (ms), and '
  'whether a gate pauses it. p_probes: most queues that are read; null reads all.';

-- Counts the running tasks of each lambda: those that a heartbeat has reported as begun.
--
-- It looks up at most 10,000 ids of leases. There are more only if workers hold more tasks, or
-- ended tasks of the same batches.
create or replace function tuskline_core.running_tasks()
returns table (lambda text, tasks bigint) language sql stable as $$
  select t.lambda, count(*)
    from (select l.lease_id, i.task_id from tuskline.lease l
            cross join lateral unnest(l.task_ids) as i (task_id) limit 10000) h
         cross join lateral (
           select k.lambda from tuskline.task k
            where k.id = h.task_id and k.fence = h.lease_id and k.status = 'processing' limit 1) t
   group by t.lambda
$$;
comment on function tuskline_core.running_tasks() is
  'Running tasks of each lambda. It looks up at most 10,000 ids of leases.';

-- Calculates how many executors (slots of workers) lambdas need now.
--
-- p_lambda: null means every lambda. p_queues and p_marks: see queue_gauges.
-- It needs an executor for each task that runs: on average over the attempts that ended in the last
-- 5 minutes, or now, if these are more. Attempts of an hour end too rarely for the average.
-- The backlog needs backlog * run time / objective more, so that it starts within the objective,
-- but never more than an executor for each task. If no attempt of a lambda ended in these 5
-- minutes, its run time counts as 100 ms; as 5 s, if tasks run.
-- Tasks of a paused queue do not count. A concurrency limit of the whole lambda (max_concurrency)
-- bounds wanted. The column because names the figures that decided. wanted is at most 2147483647,
-- which a false report of run times would exceed.
create or replace function tuskline_core.scale_figures(
  p_lambda text, p_objective interval, p_queues integer[], p_marks bigint[])
returns table (lambda text, wanted integer, running double precision, workers integer,
               waiting bigint, per_second double precision, run_ms double precision, because text,
               paused bigint, max_concurrency integer)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
declare
  v_now       timestamptz := tuskline.clock();
  v_objective double precision := extract(epoch from p_objective);
begin
  if p_lambda is not null
     and not exists (select from tuskline.lambda l where l.name = p_lambda) then
    perform tuskline_core.refuse_lambda(p_lambda);
  end if;
  if coalesce(v_objective <= 0, true) then
    perform tuskline_core.refuse('TK009',
      format('invalid_setting: the objective must be above 0, got %s',
             coalesce(p_objective::text, 'null')));
  end if;
  return query
    with g as (
      select g.lambda, sum(g.depth * (not g.paused)::integer)::bigint as waiting,
             sum(g.depth * g.paused::integer)::bigint as paused
        from tuskline.queue_gauges(p_queues, p_marks, p_lambda) g group by g.lambda
    ), s as (
      select s.lambda, sum(s.run_ms) / nullif(sum(h.runs), 0) as run_ms,
             sum(h.starts / extract(epoch from s.span)) as per_second,
             sum(s.run_ms / (1000 * extract(epoch from s.span))) as running
        from tuskline.statistics('5 minutes') s
             cross join lateral (select (select sum(n) from unnest(s.runs) as n) as runs,
                                        (select sum(n) from unnest(s.starts) as n) as starts) h
       group by s.lambda
    ), n as (
      select g.lambda, g.waiting, g.paused,
             coalesce(s.run_ms, case when r.tasks > 0 then 5000 else 100 end)::double precision
               as run_ms,
             coalesce(s.per_second, 0)::double precision as per_second,
             greatest(s.running, r.tasks, 0)::double precision as running,
             (select min(b.max_concurrency) from tuskline.task_limit b
               where b.lambda = g.lambda and b.kind = 'concurrency' and b.dropped_at is null
                 and not b.by_key and b.collection is null and b.priority is null) as most
        from g left join s using (lambda) left join tuskline_core.running_tasks() r using (lambda)
    ), w as (
      select n.*, least(ceil(round((n.running + n.waiting * least(n.run_ms / 1000 / v_objective, 1)
                                   )::numeric, 3)), 2147483647)::integer as wanted
        from n)
    select w.lambda, least(w.wanted, w.most), w.running,
           (select count(*)::integer from tuskline_core.live_executor v
                   join tuskline.executor e using (executor_id)
             where w.lambda = any (e.lambdas) and e.expires_at > v_now and not e.draining),
           w.waiting, w.per_second, w.run_ms,
           format('%s running and %s waiting, %s ms each, to start within %s s%s%s',
             round(w.running::numeric, 1), w.waiting, round(w.run_ms::numeric, 1),
             round(v_objective::numeric, 1),
             case when w.most < w.wanted then format('; a limit allows %s', w.most) end,
             case when w.paused > 0 then format('; a gate pauses %s more', w.paused) end),
           w.paused, w.most
      from w order by w.lambda;
end $$;
comment on function tuskline_core.scale_figures(text, interval, integer[], bigint[]) is
  'The figures of scale(), plus the paused tasks and the limit. A server calculates the answer for '
  'another objective from them.';

-- Returns the figures for people and autoscalers. Its columns must not change: a change would make
-- migrate drop the function, and a view of an owner may depend on it.
create or replace function tuskline.scale(
  p_lambda text default null, p_objective interval default '5 seconds')
returns table (lambda text, wanted integer, running double precision, workers integer,
               waiting bigint, per_second double precision, run_ms double precision, because text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  return query
    select f.lambda, f.wanted, f.running, f.workers, f.waiting, f.per_second, f.run_ms, f.because
      from tuskline_core.scale_figures(p_lambda, p_objective, '{}', '{}') f;
end $$;
comment on function tuskline.scale(text, interval) is
  'How many executors a lambda (null: each) needs so that its tasks start within the objective, '
  'and why.';

-- Returns counts of the whole installation. Each of them reads few pages.
--
-- For tables that may hold millions of rows, the count is the estimate of PostgreSQL's statistics.
-- The holders of the horizon are those that the doctor names: sessions, prepared transactions,
-- slots and standbys. A vacuum holds no horizon, and a snapshot of another database keeps no row of
-- this one. A slot and a standby have no age in seconds, so only horizon_transactions includes
-- them.
-- If the owner may not see the sessions of other roles, the rows of connections and horizon are
-- missing: a 0 would be wrong.
create or replace function tuskline.gauges()
returns table (name text, lambda text, value double precision)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now      timestamptz := tuskline.clock();
  v_sees_all boolean := pg_has_role(current_user, 'pg_read_all_stats', 'usage');
begin
  return query
    select 'workers', l.name, coalesce(w.live, 0)::double precision
      from tuskline.lambda l
           left join (
             select u.lambda, count(*) as live
               from tuskline_core.live_executor v join tuskline.executor e using (executor_id)
                    cross join unnest(e.lambdas) as u (lambda)
              where e.expires_at > v_now and not e.draining group by u.lambda) w
             on w.lambda = l.name
    union all
    select 'gates', l.name, count(g.gate_id)::double precision
      from tuskline.lambda l left join tuskline.gate g on g.lambda = l.name and g.opened_at is null
     group by l.name
    union all
    select 'breakers_tripped', b.lambda, (b.gate_id is not null)::integer from tuskline.breaker b
    union all
    select u.name, null, pg_stat_get_live_tuples(u.name_of)::double precision
      from (values ('timers', 'tuskline.timer'::regclass), ('parked', 'tuskline.parked'),
                   ('wait_list', 'tuskline.wait_list'), ('permits', 'tuskline.permit'),
                   ('dead_letters', 'tuskline.dead_letter')) as u (name, name_of)
    union all
    select 'segments_ahead', null, tuskline.segments_ahead();
  if v_sees_all then
    return query
      select 'connections', null::text, count(*)::double precision from pg_stat_activity a
       where a.datname = current_database() and a.application_name like 'tuskline%';
    return query
      with h as (
        select age(coalesce(a.backend_xmin, a.backend_xid)) as transactions,
               coalesce(a.xact_start, a.backend_start) as since
          from pg_stat_activity a
         where coalesce(a.backend_xmin, a.backend_xid) is not null and a.pid <> pg_backend_pid()
           and (a.datname = current_database() or a.datname is null)
           and a.backend_type <> 'walsender'
           and a.pid not in (select p.pid from pg_stat_progress_vacuum p)
        union all
        select age(x.transaction), x.prepared from pg_prepared_xacts x
         where x.database = current_database()
        union all
        select greatest(age(s.xmin), age(s.catalog_xmin)), null from pg_replication_slots s
        union all
        select age(r.backend_xmin), null from pg_stat_replication r)
      select u.name, null::text, u.value::double precision
        from (select greatest(extract(epoch from v_now - min(h.since)), 0) as seconds,
                     max(h.transactions) as transactions from h) m
             cross join lateral (
               values ('horizon_seconds', coalesce(m.seconds, 0)),
                      ('horizon_transactions', coalesce(m.transactions, 0))) as u (name, value);
  end if;
end $$;
comment on function tuskline.gauges() is
  'Counts of the whole installation: live workers, gates and tripped breakers of each lambda, '
  'waiting tasks, dead letters, segments ahead, connections, age of the oldest snapshot (the last '
  'two only if the owner of the function sees the sessions of all roles).';
