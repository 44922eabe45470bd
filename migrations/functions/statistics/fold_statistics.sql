-- Folds the waiting counts into the tables of totals, which are append-only.
--
-- Each janitor calls it every few seconds, and one of them folds, once in p_every. A queue gets a
-- row only if it has new counts. A queue that was idle also gets a row with its old totals at the
-- time of the previous fold. So a difference of two rows never mixes idle time with active time.
-- A call folds at most 20,000 rows of each kind. The janitor then calls again immediately.
-- Returns folded: the number of folded rows. Null: p_every is not over yet, or another janitor
-- folds.
--
-- Each scan starts above the last row of the previous scan. So it skips the dead rows that vacuum
-- keeps while an old snapshot exists. A scan from the first row, every 10 minutes, finds rows that
-- were committed late.
-- Locks: statistics_mark, SKIP LOCKED. Nothing is folded while another session has locked a table
-- of the statistics.
-- Planner: it uses the primary keys of attempt_count and event_count.
create or replace function tuskline.fold_statistics(
  p_every interval default '1 minute', p_installation text default 'default', out folded integer)
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off
set lock_timeout = '100ms' as $$
declare
  v_now      timestamptz := tuskline.clock();
  v_attempts bigint[];
  v_events   bigint[];
  v_from     timestamptz;
  m          tuskline_core.statistics_mark;
begin
  perform tuskline.check_installation(p_installation);
  select s.* into m from tuskline_core.statistics_mark s
   where s.folded_at <= v_now - p_every for update skip locked;
  if not found then return; end if;
  if m.swept_at <= v_now - interval '10 minutes' then
    m.attempt_seq := 0;
    m.event_seq := 0;
    m.swept_at := v_now;
  end if;
  v_attempts := array(select a.seq from tuskline_core.attempt_count a
                       where a.seq > m.attempt_seq order by a.seq limit 20000);
  v_events := array(select e.seq from tuskline_core.event_count e
                     where e.seq > m.event_seq order by e.seq limit 20000);
  if isfinite(m.folded_at) then
    v_from := least(m.folded_at, v_now - interval '1 second');
  else
    v_from := least(v_now - greatest(p_every, interval '1 second'),
      (select min(a.at) from tuskline_core.attempt_count a where a.seq = any (v_attempts)),
      (select min(e.at) from tuskline_core.event_count e where e.seq = any (v_events)));
  end if;
  perform tuskline_core.add_totals(v_attempts, v_events, v_from, v_now);
  delete from tuskline_core.attempt_count a where a.seq = any (v_attempts);
  delete from tuskline_core.event_count e where e.seq = any (v_events);
  folded := cardinality(v_attempts) + cardinality(v_events);
  update tuskline_core.statistics_mark s
     set attempt_seq = coalesce(v_attempts[cardinality(v_attempts)], m.attempt_seq),
         event_seq = coalesce(v_events[cardinality(v_events)], m.event_seq),
         swept_at = m.swept_at,
         folded_at = case when cardinality(v_attempts) < 20000 and cardinality(v_events) < 20000
                          then v_now else s.folded_at end;
exception when lock_not_available then folded := null;
end $$;
comment on function tuskline.fold_statistics(interval, text) is
  'Folds the waiting counts into the totals, once in p_every. Returns the number of folded rows. '
  'Null: p_every is not over yet, or another janitor folds.';

-- Adds a row of totals for each queue, lambda and worker with new counts: a row that is not there.
--
-- p_from: the begin of the time in which they were counted. A queue, lambda or worker whose last
-- row is older also gets a row with its old totals at p_from, because the views show differences.
create or replace function tuskline_core.add_totals(
  p_attempts bigint[], p_events bigint[], p_from timestamptz, p_now timestamptz)
returns void language plpgsql as $$
begin
  with n as materialized (
    select t.* from tuskline_core.queue_totals(p_attempts, p_events, p_now) t
     where t.at >= p_now and not exists (
       select from tuskline.queue_statistic s where s.queue_id = t.queue_id and s.at = t.at)
  ), z as (
    insert into tuskline.queue_statistic
    select n.queue_id, p_from, s.success, s.retriable_failure, s.fatal_failure, s.snoozed,
           s.cancelled, s.refused, s.dead, s.crashed, s.dropped, s.start_ms, s.starts, s.run_ms,
           s.runs, 0, 0
      from n cross join lateral tuskline_core.last_queue_total(n.queue_id) s
     where s.at < p_from)
  insert into tuskline.queue_statistic select n.* from n order by n.queue_id;
  with n as materialized (
    select t.* from tuskline_core.wait_totals(p_events, p_now) t
     where t.at >= p_now and not exists (
       select from tuskline.wait_statistic s
        where s.lambda = t.lambda and s.cause = t.cause and s.at = t.at)
  ), z as (
    insert into tuskline.wait_statistic
    select n.lambda, n.cause, p_from, coalesce(s.total_ms, 0),
           coalesce(s.waits, tuskline_core.histogram_sum(null, null, 1)), 0
      from n left join lateral (
             select w.* from tuskline.wait_statistic w
              where w.lambda = n.lambda and w.cause = n.cause order by w.at desc limit 1) s on true
     where coalesce(s.at, '-infinity') < p_from)
  insert into tuskline.wait_statistic select n.* from n order by n.lambda, n.cause;
  with n as materialized (
    select t.* from tuskline_core.executor_totals(p_attempts, p_now) t
     where t.at >= p_now and not exists (
       select from tuskline.executor_statistic s
        where s.executor_id = t.executor_id and s.at = t.at)
  ), z as (
    insert into tuskline.executor_statistic
    select n.executor_id, p_from, coalesce(s.success, 0), coalesce(s.failed, 0),
           coalesce(s.refused, 0), coalesce(s.run_ms, 0)
      from n left join lateral (
             select x.* from tuskline.executor_statistic x
              where x.executor_id = n.executor_id order by x.at desc limit 1) s on true
     where coalesce(s.at, '-infinity') < p_from)
  insert into tuskline.executor_statistic select n.* from n order by n.executor_id;
end $$;
comment on function tuskline_core.add_totals(bigint[], bigint[], timestamptz, timestamptz) is
  'Adds a row of totals for each queue, lambda and worker with new counts.';

-- Returns the last row of totals of a queue. A queue without a row gets zeros at -infinity.
create or replace function tuskline_core.last_queue_total(p_queue integer)
returns tuskline.queue_statistic language sql stable as $$
  (select s.* from tuskline.queue_statistic s
    where s.queue_id = p_queue order by s.at desc limit 1)
  union all
  select p_queue, '-infinity', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, h.none, 0, h.none, 0, 0
    from (select tuskline_core.histogram_sum(null, null, 1) as none) h
  order by at desc limit 1
$$;
comment on function tuskline_core.last_queue_total(integer) is
  'Last row of totals of a queue; zeros at -infinity if there is none.';

-- Resets the marks, so that the next fold begins with the first row. rebuild_queues calls it.
--
-- The counts are unlogged: after a crash or a promotion their tables are empty, and their numbers
-- begin at 1. An old mark would hide new rows until the next scan from the first row.
-- Locks: statistics_mark, SKIP LOCKED. So recovery does not wait for another session. Then only the
-- next scan from the first row finds the new rows.
create or replace function tuskline_core.restart_marks() returns void language plpgsql as $$
begin
  update tuskline_core.statistics_mark set attempt_seq = 0, event_seq = 0 where is_only = (
    select s.is_only from tuskline_core.statistics_mark s for update skip locked);
end $$;
comment on function tuskline_core.restart_marks() is
  'Lets the next fold begin with the first row: after a crash the numbers of the rows begin at 1.';

-- Deletes statistics that are past their retention. The last row before that time stays, because it
-- is the base of the next difference.
--
-- It works once an hour, and deletes at most p_limit rows of each kind. If there are more, the
-- janitor calls again immediately. Returns the number of deleted rows. Null: the hour is not over
-- yet, or another janitor deletes.
--
-- Locks: statistics_mark, SKIP LOCKED.
-- Planner: two look-ups in the primary key for each queue. The rows are deleted by their ctid,
-- which no transaction changes.
create or replace function tuskline.purge_statistics(
  p_retention interval default '3 days', p_limit integer default 5000)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off set lock_timeout = '100ms' as $$
declare
  v_now     timestamptz := tuskline.clock();
  v_to      timestamptz := v_now - p_retention;
  v_queues  bigint;
  v_waits   bigint;
  v_workers bigint;
begin
  perform from tuskline_core.statistics_mark s
    where s.purged_at <= v_now - interval '1 hour' for update skip locked;
  if not found then return null; end if;
  delete from tuskline.queue_statistic s where s.ctid = any (array(
    select d.ctid from tuskline.queue q
      cross join lateral (
        select max(k.at) as at from tuskline.queue_statistic k
         where k.queue_id = q.queue_id and k.at <= v_to) b
      cross join lateral (
        select r.ctid from tuskline.queue_statistic r
         where r.queue_id = q.queue_id and r.at < b.at order by r.at limit p_limit) d
     limit p_limit));
  get diagnostics v_queues = row_count;
  delete from tuskline.wait_statistic s where s.ctid = any (array(
    select d.ctid from tuskline.lambda l
      cross join unnest('{due,gate,limit,order,dependency}'::text[]) as c (cause)
      cross join lateral (
        select max(k.at) as at from tuskline.wait_statistic k
         where k.lambda = l.name and k.cause = c.cause and k.at <= v_to) b
      cross join lateral (
        select r.ctid from tuskline.wait_statistic r
         where r.lambda = l.name and r.cause = c.cause and r.at < b.at
         order by r.at limit p_limit) d
     limit p_limit));
  get diagnostics v_waits = row_count;
  delete from tuskline.executor_statistic s where s.ctid = any (array(
    select d.ctid from tuskline.executor e
      cross join lateral (
        select max(k.at) as at from tuskline.executor_statistic k
         where k.executor_id = e.executor_id and k.at <= v_to) b
      cross join lateral (
        select r.ctid from tuskline.executor_statistic r
         where r.executor_id = e.executor_id and r.at < b.at order by r.at limit p_limit) d
     limit p_limit));
  get diagnostics v_workers = row_count;
  if greatest(v_queues, v_waits, v_workers) < p_limit then
    update tuskline_core.statistics_mark set purged_at = v_now;
  end if;
  return v_queues + v_waits + v_workers;
exception when lock_not_available then return null;
end $$;
comment on function tuskline.purge_statistics(interval, integer) is
  'Deletes a batch of statistics past their retention, once an hour. Returns the number of deleted '
  'rows. Null: nothing is left to do in this hour, or another janitor deletes.';
