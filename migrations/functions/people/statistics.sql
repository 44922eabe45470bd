-- Statistics for people and programs: counts of the last minutes, and minute by minute.
--
-- A span of null means since the beginning. The three functions add the counts that are not folded
-- yet. So they are up to 5 s late, which is the time between two reports of a worker. On a standby
-- they show only folded counts, because the waiting counts are in unlogged tables.
--
-- p_folded: only folded counts, for counters that are exported. A crash of the server loses the
-- waiting counts. A counter that included them would decrease. Prometheus would read that as a
-- restart from 0, and its rate would jump by the whole total.
-- Without a span, the folded counts of a lambda are 0 for two minutes after its definition. An
-- increase needs two values, so a scrape must see the 0 before the first death.
--
-- The counts of the last p_span are a difference of totals. Its base is the last row at or before
-- that time, so the counts may cover up to a minute more. The column span is the time that they
-- really cover. Divide by span to get a rate.

-- Returns the rows of attempt_count and event_count of the last p_span that are not folded yet.
--
-- It reads at most the newest 20,000 and 50,000 rows. There are more only if no janitor folds. With
-- p_folded it returns no row.
-- since: from this time on the rows are complete. It is p_span ago, or later. Null: p_span is null.
-- first_at: from this time on they were counted. It is a minute ago, or earlier.
create or replace function tuskline_core.unfolded(
  p_span interval, p_folded boolean, out attempts bigint[], out events bigint[], out at timestamptz,
  out since timestamptz, out first_at timestamptz)
language plpgsql stable as $$
declare
  v_mark        tuskline_core.statistics_mark;
  v_attempts_at timestamptz;
  v_events_at   timestamptz;
begin
  at := tuskline.clock(); since := at - p_span; first_at := at - interval '1 minute';
  attempts := '{}'; events := '{}';
  if p_folded or pg_is_in_recovery() then return; end if;
  select m.* into v_mark from tuskline_core.statistics_mark m;
  select coalesce(array_agg(a.seq), '{}'), min(a.at) into attempts, v_attempts_at
    from (select c.seq, c.at from tuskline_core.attempt_count c where c.seq > v_mark.attempt_seq
           order by c.seq desc limit 20000) a
   where since is null or a.at > since;
  select coalesce(array_agg(e.seq), '{}'), min(e.at) into events, v_events_at
    from (select c.seq, c.at from tuskline_core.event_count c where c.seq > v_mark.event_seq
           order by c.seq desc limit 50000) e
   where since is null or e.at > since;
  first_at := least(first_at, v_attempts_at, v_events_at);
  if cardinality(attempts) = 20000 then since := greatest(since, v_attempts_at); end if;
  if cardinality(events) = 50000 then since := greatest(since, v_events_at); end if;
  if p_span is null then since := null; end if;
end $$;
comment on function tuskline_core.unfolded(interval, boolean) is
  'Rows of attempt_count and event_count that are not folded yet, the time now, and the begin of '
  'the time that they cover.';

-- Tells whether nothing was counted between two rows of totals of a queue.
create or replace function tuskline_core.is_idle(
  p_left tuskline.queue_statistic, p_right tuskline.queue_statistic)
returns boolean language sql immutable as $$
  select (p_left.success, p_left.retriable_failure, p_left.fatal_failure, p_left.snoozed,
          p_left.cancelled, p_left.refused, p_left.dead, p_left.crashed, p_left.dropped,
          p_left.start_ms, p_left.starts, p_left.run_ms, p_left.runs)
       = (p_right.success, p_right.retriable_failure, p_right.fatal_failure, p_right.snoozed,
          p_right.cancelled, p_right.refused, p_right.dead, p_right.crashed, p_right.dropped,
          p_right.start_ms, p_right.starts, p_right.run_ms, p_right.runs)
$$;
comment on function tuskline_core.is_idle(tuskline.queue_statistic, tuskline.queue_statistic) is
  'Whether nothing was counted between two rows of totals of a queue.';

-- Returns the begin of the time that the counts after a base row cover.
--
-- p_since: the requested begin. p_base: the time of the base row. Null: nothing is folded yet.
-- p_idle: nothing was counted between the base row and the next row. Null: there is no next row.
-- Then all counts came after p_since.
-- p_first: the time when counting began.
create or replace function tuskline_core.counted_since(
  p_since timestamptz, p_base timestamptz, p_idle boolean, p_first timestamptz)
returns timestamptz language sql immutable as $$
  select case when p_base is null then greatest(p_since, p_first)
              when p_base > p_since or not p_idle then greatest(p_base, p_first)
              else p_since end
$$;
comment on function tuskline_core.counted_since(timestamptz, timestamptz, boolean, timestamptz) is
  'Begin of the time that the counts after a base row cover.';

-- Returns a span of at least 1 s. After a failover to a machine whose clock is behind, a base row
-- may have a time that has not come yet.
create or replace function tuskline_core.span_to(p_now timestamptz, p_since timestamptz)
returns interval language sql immutable as $$
  select greatest(p_now - p_since, interval '1 second')
$$;
comment on function tuskline_core.span_to(timestamptz, timestamptz) is
  'Span of counts, by which rates are divided: 1 s or more.';

create or replace function tuskline.statistics(
  p_span interval default '5 minutes', p_folded boolean default false)
returns table (
  lambda text, priority text, span interval, success bigint, retriable_failure bigint,
  fatal_failure bigint, snoozed bigint, cancelled bigint, refused bigint, dead bigint,
  crashed bigint, dropped bigint, start_ms bigint, starts bigint[], run_ms bigint, runs bigint[])
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
declare
  u record := tuskline_core.unfolded(p_span, p_folded);
begin
  return query
    select q.lambda, q.priority::text,
           case when u.since is not null then tuskline_core.span_to(u.at,
             tuskline_core.counted_since(u.since, b.at, tuskline_core.is_idle(b, c),
               case when b.at is null then u.first_at end)) end,
           t.success - coalesce(b.success, 0),
           t.retriable_failure - coalesce(b.retriable_failure, 0),
           t.fatal_failure - coalesce(b.fatal_failure, 0), t.snoozed - coalesce(b.snoozed, 0),
           t.cancelled - coalesce(b.cancelled, 0), t.refused - coalesce(b.refused, 0),
           t.dead - coalesce(b.dead, 0), t.crashed - coalesce(b.crashed, 0),
           t.dropped - coalesce(b.dropped, 0), t.start_ms - coalesce(b.start_ms, 0),
           tuskline_core.histogram_sum(t.starts, b.starts, -1), t.run_ms - coalesce(b.run_ms, 0),
           tuskline_core.histogram_sum(t.runs, b.runs, -1)
      from tuskline_core.queue_totals(u.attempts, u.events, u.at) t
           join tuskline.queue q on q.queue_id = t.queue_id
           join tuskline.lambda l on l.name = q.lambda
           left join lateral (
             select x.* from (
               (select s.* from tuskline.queue_statistic s
                 where t.at is not null and s.queue_id = q.queue_id
                   and s.at <= case when u.since is not null then u.since
                                    when p_folded and l.created_at > u.at - interval '2 minutes'
                                    then 'infinity' end
                 order by s.at desc limit 1)
               union all
               (select s.* from tuskline.queue_statistic s
                 where t.at is not null and u.since is not null and s.queue_id = q.queue_id
                 order by s.at limit 1)) x limit 1) b on true
           left join lateral (
             select s.* from tuskline.queue_statistic s
              where s.queue_id = q.queue_id and s.at > b.at order by s.at limit 1) c on true
     where p_folded or t.at is not null -- exported counters begin at 0
     order by q.lambda, q.priority;
end $$;
comment on function tuskline.statistics(interval, boolean) is
  'Attempts and ends of tasks of each queue in the last p_span (null: since the beginning), with '
  'histograms: starts (delay from due to the first start), runs (run time). span: the time that '
  'they cover. p_folded: only counts that no crash can lose.';

create or replace function tuskline.wait_times(
  p_span interval default '5 minutes', p_folded boolean default false)
returns table (lambda text, cause text, total_ms bigint, waits bigint[])
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
declare
  u record := tuskline_core.unfolded(p_span, p_folded);
begin
  return query
    select t.lambda, t.cause, t.total_ms - coalesce(b.total_ms, 0),
           tuskline_core.histogram_sum(t.waits, b.waits, -1)
      from tuskline_core.wait_totals(u.events, u.at) t
           left join lateral (
             select x.* from (
               (select s.* from tuskline.wait_statistic s
                 where s.lambda = t.lambda and s.cause = t.cause and s.at <= u.since
                 order by s.at desc limit 1)
               union all
               (select s.* from tuskline.wait_statistic s
                 where s.lambda = t.lambda and s.cause = t.cause and u.since is not null
                 order by s.at limit 1)) x limit 1) b on true
     order by t.lambda, t.cause;
end $$;
comment on function tuskline.wait_times(interval, boolean) is
  'Waits of each lambda by cause that ended in the last p_span (null: since the beginning), with a '
  'histogram. p_folded: only counts that no crash can lose.';

create or replace function tuskline.executor_loads(p_span interval default '5 minutes')
returns table (
  executor_id bigint, span interval, success bigint, failed bigint, refused bigint, run_ms bigint)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
declare
  u record := tuskline_core.unfolded(p_span, false);
begin
  return query
    select t.executor_id,
           tuskline_core.span_to(u.at, tuskline_core.counted_since(
             coalesce(u.since, '-infinity'), b.at, (b.success, b.failed, b.refused, b.run_ms)
               = (c.success, c.failed, c.refused, c.run_ms), e.started_at)),
           t.success - coalesce(b.success, 0), t.failed - coalesce(b.failed, 0),
           t.refused - coalesce(b.refused, 0), t.run_ms - coalesce(b.run_ms, 0)
      from tuskline_core.executor_totals(u.attempts, u.at) t
           join tuskline.executor e using (executor_id)
           left join lateral (
             select s.at from tuskline.executor_statistic s
              where s.executor_id = t.executor_id order by s.at limit 1) f on true
           left join lateral (
             select s.* from tuskline.executor_statistic s
              where s.executor_id = t.executor_id and u.since is not null
                and s.at <= greatest(u.since, f.at)
              order by s.at desc limit 1) b on true
           left join lateral (
             select s.* from tuskline.executor_statistic s
              where s.executor_id = t.executor_id and s.at > b.at order by s.at limit 1) c on true
     order by t.executor_id;
end $$;
comment on function tuskline.executor_loads(interval) is
  'Attempts that each worker has ended in the last p_span (null: since the beginning), and their '
  'run time. span: the time that they cover.';

create or replace view tuskline.queue_statistics as
select q.lambda, q.priority, (d.p).at as from_at, d.at,
       d.success - (d.p).success as success,
       d.retriable_failure - (d.p).retriable_failure as retriable_failure,
       d.fatal_failure - (d.p).fatal_failure as fatal_failure,
       d.dead - (d.p).dead as dead, d.crashed - (d.p).crashed as crashed,
       d.snoozed - (d.p).snoozed as snoozed, d.cancelled - (d.p).cancelled as cancelled,
       d.dropped - (d.p).dropped as dropped, d.refused - (d.p).refused as refused,
       round(least(tuskline.quantile(n.starts, 0.5), m.start_ms)) as start_p50_ms,
       round(least(tuskline.quantile(n.starts, 0.95), m.start_ms)) as start_p95_ms,
       round(least(tuskline.quantile(n.runs, 0.5), m.run_ms)) as run_p50_ms,
       round(least(tuskline.quantile(n.runs, 0.95), m.run_ms)) as run_p95_ms,
       m.start_ms as start_max_ms, m.run_ms as run_max_ms
  from (select s.*, s as own, lag(s) over (partition by s.queue_id order by s.at) as p
          from tuskline.queue_statistic s) d
       join tuskline.queue q using (queue_id)
       cross join lateral (
         select tuskline_core.histogram_sum(d.starts, (d.p).starts, -1) as starts,
                tuskline_core.histogram_sum(d.runs, (d.p).runs, -1) as runs) n
       cross join lateral (
         select d.start_max_us / 1000::double precision as start_ms,
                d.run_max_us / 1000::double precision as run_ms) m
 where (d.p).at is not null and not tuskline_core.is_idle(d.p, d.own);
comment on view tuskline.queue_statistics is
  'Minute by minute: attempts and ends of tasks of each queue that was active, the delay from due '
  'to the first start, and the run time (ms). A row covers the time from from_at to at.';

create or replace view tuskline.wait_statistics as
select d.lambda, d.cause, (d.p).at as from_at, d.at,
       (select sum(n) from unnest(w.waits) as n) as waits,
       d.total_ms - (d.p).total_ms as total_ms,
       round(least(tuskline.quantile(w.waits, 0.5), d.max_ms)) as p50_ms,
       round(least(tuskline.quantile(w.waits, 0.95), d.max_ms)) as p95_ms, d.max_ms
  from (select s.*, lag(s) over (partition by s.lambda, s.cause order by s.at) as p
          from tuskline.wait_statistic s) d
       cross join lateral (
         select tuskline_core.histogram_sum(d.waits, (d.p).waits, -1) as waits) w
 where (d.p).at is not null
   and (d.total_ms, d.waits) <> ((d.p).total_ms, (d.p).waits);
comment on view tuskline.wait_statistics is
  'Minute by minute: waits that ended, by lambda and cause. A row covers the time from from_at to '
  'at.';

create or replace view tuskline.executor_statistics as
select d.executor_id, e.host, e.pid, (d.p).at as from_at, d.at,
       d.success - (d.p).success as success, d.failed - (d.p).failed as failed,
       d.refused - (d.p).refused as refused,
       round((d.run_ms - (d.p).run_ms) / (1000 * extract(epoch from d.at - (d.p).at)), 2) as busy
  from (select s.*, lag(s) over (partition by s.executor_id order by s.at) as p
          from tuskline.executor_statistic s) d
       join tuskline.executor e using (executor_id)
 where (d.p).at is not null
   and (d.success, d.failed, d.refused, d.run_ms)
     <> ((d.p).success, (d.p).failed, (d.p).refused, (d.p).run_ms);
comment on view tuskline.executor_statistics is
  'Minute by minute: attempts that each worker ended, and how many it ran at the same time on '
  'average (busy; an attempt counts when it ends). A row covers the time from from_at to at.';

-- Shows how slow tasks started in p_parts equal parts of a span of time, for the drawings of pages.
--
-- It probes the totals at each border of a part, of at most three queues that were active: those of
-- the lambdas in their order. So it reads a bounded number of pages, however long the span is. The
-- view queue_statistics reads all totals.
create or replace function tuskline.start_delays(
  p_lambdas text[], p_from timestamptz, p_to timestamptz, p_parts integer default 60)
returns table (lambda text, at timestamptz, p95_ms bigint)
language sql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  with q as materialized (
    select q.queue_id, q.lambda
      from unnest(p_lambdas[:8]) with ordinality as l (name, no)
           join tuskline.queue q on q.lambda = l.name
     where exists (select from tuskline.queue_statistic s
                    where s.queue_id = q.queue_id and s.at > p_from and s.at <= p_to)
     order by l.no, q.priority = 'normal' desc, q.priority limit 3),
  b as (
    select q.queue_id, q.lambda, p_from + n.no * (p_to - p_from) / greatest(p_parts, 1) as at
      from q cross join generate_series(0, least(p_parts, 60)) as n (no)),
  s as (
    select b.*, t.starts, lag(t.starts) over (partition by b.queue_id order by b.at) as before
      from b left join lateral (
             select r.starts from tuskline.queue_statistic r
              where r.queue_id = b.queue_id and r.at <= b.at order by r.at desc limit 1) t on true)
  select s.lambda, s.at,
         max(tuskline.quantile(tuskline_core.histogram_sum(s.starts, s.before, -1), 0.95))::bigint
    from s
   where s.at > p_from and s.before is not null and s.starts <> s.before
   group by s.lambda, s.at order by s.lambda, s.at
$$;
comment on function tuskline.start_delays(text[], timestamptz, timestamptz, integer) is
  '95th percentile of the delay from due to the first start, in each of p_parts (at most 60) parts '
  'of a span; of three queues of these lambdas at most. at: the end of the part.';

-- Shows the last hour of a lambda by minute, for its page.
--
-- It reads the totals of an hour of each of its queues, by the primary key. The view
-- queue_statistics reads all totals. The first row that is read is the base of the second one.
create or replace function tuskline.lambda_hour(p_lambda text)
returns table (at timestamptz, ended bigint, failed bigint, start_p95_ms bigint)
language sql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  select m.at, sum(m.success + m.failed)::bigint, sum(m.failed)::bigint,
         max(round(least(
           tuskline.quantile(tuskline_core.histogram_sum(m.starts, m.before, -1), 0.95),
           m.start_max_us / 1000::double precision)))::bigint
    from tuskline.queue q
         cross join lateral (
           select d.at, d.starts, d.start_max_us, (d.p).starts as before,
                  d.success - (d.p).success as success,
                  d.retriable_failure - (d.p).retriable_failure
                  + d.fatal_failure - (d.p).fatal_failure + d.crashed - (d.p).crashed as failed
             from (select s.*, s as own, lag(s) over (order by s.at) as p
                     from tuskline.queue_statistic s
                    where s.queue_id = q.queue_id
                      and s.at > tuskline.clock() - interval '61 minutes') d
            where (d.p).at is not null and not tuskline_core.is_idle(d.p, d.own)) m
   where q.lambda = p_lambda
   group by m.at order by m.at
$$;
comment on function tuskline.lambda_hour(text) is
  'Minute by minute of the last hour: attempts of a lambda that ended and failed, and the 95th '
  'percentile of the delay from due to the first start, of its slowest queue (ms).';
