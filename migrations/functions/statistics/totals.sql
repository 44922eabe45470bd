-- Totals of the statistics: the last folded row of each queue, lambda or worker, plus counts that
-- wait in attempt_count and event_count.
--
-- p_attempts and p_events are the numbers (seq) of the rows to add. A returned row with new counts
-- has p_now in the column at. If the clock has stepped back, it has a time just after the last row.

create or replace function tuskline_core.histogram_of(p_counters bigint[], p_amounts bigint[])
returns bigint[] language sql immutable parallel safe as $$
  select array(
    select coalesce(tuskline_core.capped(sum(u.amount)), 0)
      from generate_series(1, 16) as i
           left join unnest(p_counters, p_amounts) as u (bucket, amount) on u.bucket = i
     group by i order by i)
$$;
comment on function tuskline_core.histogram_of(bigint[], bigint[]) is
  'Histogram from parallel arrays of buckets and counts. Buckets other than 1 to 16 are ignored.';

create or replace function tuskline_core.total(p_before bigint, p_counted numeric) returns bigint
language sql immutable parallel safe as $$
  select tuskline_core.capped(coalesce(p_before, 0) + coalesce(p_counted, 0))
$$;
comment on function tuskline_core.total(bigint, numeric) is
  'A total plus what has been counted since. Null counts as 0.';

-- Sums the counts of each queue. The counters are those of attempt_count.counters; also 7 dead, 8
-- crashed, 9 dropped.
--
-- A standby refuses each statement that names an unlogged table. So here, and in the two functions
-- below, such a statement runs only if there are rows to read.
create or replace function tuskline_core.queue_counts(p_attempts bigint[], p_events bigint[])
returns table (queue_id integer, counter integer, amount bigint) language plpgsql stable as $$
#variable_conflict use_column
begin
  if p_attempts <> '{}' then
    return query
      select u.queue_id, u.counter::integer, tuskline_core.capped(sum(u.amount))
        from tuskline_core.attempt_count a
             cross join unnest(a.queue_ids, a.counters, a.amounts) as u (queue_id, counter, amount)
       where a.seq = any (p_attempts)
       group by u.queue_id, u.counter;
  end if;
  if p_events <> '{}' then
    return query
      select q.queue_id,
             case e.event when 'cancelled' then 5 when 'dead' then 7 when 'crashed' then 8 else 9
             end,
             tuskline_core.capped(sum(e.events))
        from tuskline_core.event_count e
             join tuskline.queue q on q.lambda = e.lambda and q.priority = e.priority
       where e.seq = any (p_events)
       group by q.queue_id, e.event;
  end if;
end $$;
comment on function tuskline_core.queue_counts(bigint[], bigint[]) is
  'Sums of the counts of each queue in some rows of attempt_count and event_count.';

-- Finds a bound of the durations of each queue in some rows of attempt_count.
--
-- It is the longest duration that the workers tell. A worker of an older SDK tells none, and 10^12
-- stands for a longer one: then the upper bound of the last bucket with a count counts. Null: that
-- bucket has none.
create or replace function tuskline_core.max_of_attempts(p_attempts bigint[])
returns table (queue_id integer, has_starts boolean, start_max_us bigint, has_runs boolean,
               run_max_us bigint)
language plpgsql stable as $$
#variable_conflict use_column
begin
  if p_attempts = '{}' then return; end if;
  return query
    with r as (
      select a.seq, u.queue_id, u.counter / 100 as kind,
             max(u.counter % 100) filter (where u.counter % 100 between 1 and 16) as bucket,
             max(u.amount) filter (where u.counter % 100 = 17 and u.amount < 1000000000000) as us
        from tuskline_core.attempt_count a
             cross join unnest(a.queue_ids, a.counters, a.amounts) as u (queue_id, counter, amount)
       where a.seq = any (p_attempts) and u.counter > 100
       group by a.seq, u.queue_id, u.counter / 100
    ), m as (
      select r.queue_id, r.kind,
             coalesce(r.us, 1000 * (tuskline.histogram_edges())[r.bucket]) as us
        from r where r.bucket is not null)
    select m.queue_id, bool_or(m.kind = 1),
           case when bool_and(m.us is not null) filter (where m.kind = 1)
                then max(m.us) filter (where m.kind = 1) end,
           bool_or(m.kind = 2),
           case when bool_and(m.us is not null) filter (where m.kind = 2)
                then max(m.us) filter (where m.kind = 2) end
      from m group by m.queue_id;
end $$;
comment on function tuskline_core.max_of_attempts(bigint[]) is
  'Bounds of the delays and run times of each queue in some rows of attempt_count, in '
  'microseconds.';

-- A queue without a row and without counts has totals of 0, and no time.
-- The bounds of durations (start_max_us, run_max_us) are those of p_attempts alone.
-- Planner: one join makes the histograms of all queues. A subquery would cost 1 ms per queue.
create or replace function tuskline_core.queue_totals(
  p_attempts bigint[], p_events bigint[], p_now timestamptz)
returns setof tuskline.queue_statistic language sql stable as $$
  with c as materialized (
    select * from tuskline_core.queue_counts(p_attempts, p_events)
  ), n as (
    select c.queue_id,
           array[sum(c.amount) filter (where c.counter = 1),
                 sum(c.amount) filter (where c.counter = 2),
                 sum(c.amount) filter (where c.counter = 3),
                 sum(c.amount) filter (where c.counter = 4),
                 sum(c.amount) filter (where c.counter = 5),
                 sum(c.amount) filter (where c.counter = 6),
                 sum(c.amount) filter (where c.counter = 7),
                 sum(c.amount) filter (where c.counter = 8),
                 sum(c.amount) filter (where c.counter = 9),
                 sum(c.amount) filter (where c.counter = 100),
                 sum(c.amount) filter (where c.counter = 200)] as n
      from c group by c.queue_id
  ), h as (
    select n.queue_id, array_agg(coalesce(s.amount, 0) order by i) as starts,
           array_agg(coalesce(r.amount, 0) order by i) as runs
      from n cross join generate_series(1, 16) as i
           left join c s on s.queue_id = n.queue_id and s.counter = 100 + i
           left join c r on r.queue_id = n.queue_id and r.counter = 200 + i
     group by n.queue_id)
  select q.queue_id, case when n.n is null then p.at
         else greatest(p_now, p.at + interval '1 microsecond') end,
         tuskline_core.total(p.success, n.n[1]),
         tuskline_core.total(p.retriable_failure, n.n[2]),
         tuskline_core.total(p.fatal_failure, n.n[3]),
         tuskline_core.total(p.snoozed, n.n[4]),
         tuskline_core.total(p.cancelled, n.n[5]),
         tuskline_core.total(p.refused, n.n[6]),
         tuskline_core.total(p.dead, n.n[7]),
         tuskline_core.total(p.crashed, n.n[8]),
         tuskline_core.total(p.dropped, n.n[9]),
         tuskline_core.total(p.start_ms, n.n[10]),
         case when n.n is null then coalesce(p.starts, array_fill(0::bigint, array[16]))
              else tuskline_core.histogram_sum(p.starts, h.starts, 1) end,
         tuskline_core.total(p.run_ms, n.n[11]),
         case when n.n is null then coalesce(p.runs, array_fill(0::bigint, array[16]))
              else tuskline_core.histogram_sum(p.runs, h.runs, 1) end,
         case when m.has_starts then m.start_max_us else 0 end,
         case when m.has_runs then m.run_max_us else 0 end
    from tuskline.queue q
         left join n using (queue_id)
         left join h using (queue_id)
         left join tuskline_core.max_of_attempts(p_attempts) m using (queue_id)
         left join lateral (
           select s.* from tuskline.queue_statistic s
            where s.queue_id = q.queue_id order by s.at desc limit 1) p on true
$$;
comment on function tuskline_core.queue_totals(bigint[], bigint[], timestamptz) is
  'Totals of each queue: its last folded row plus some counts that wait.';

create or replace function tuskline_core.wait_counts(p_events bigint[])
returns table (lambda text, cause text, ms numeric, n bigint[]) language plpgsql stable as $$
#variable_conflict use_column
begin
  if p_events = '{}' then return; end if;
  return query
    select e.lambda, e.event::text, sum(e.total_ms),
           tuskline_core.histogram_of(array_agg(e.bucket::bigint), array_agg(e.events::bigint))
      from tuskline_core.event_count e
     where e.seq = any (p_events) and e.bucket is not null
     group by e.lambda, e.event;
end $$;
comment on function tuskline_core.wait_counts(bigint[]) is
  'Sums of the waits of each lambda by cause in some rows of event_count.';

-- Finds a bound of the waits of each lambda by cause, as max_of_attempts does of durations.
create or replace function tuskline_core.max_of_waits(p_events bigint[])
returns table (lambda text, cause text, max_ms bigint) language plpgsql stable as $$
#variable_conflict use_column
begin
  if p_events = '{}' then return; end if;
  return query
    select e.lambda, e.event::text, case when bool_and(m.ms is not null) then max(m.ms) end
      from tuskline_core.event_count e
           cross join lateral (
             select coalesce(e.max_ms, case when e.events = 1 then e.total_ms end,
                             (tuskline.histogram_edges())[e.bucket]) as ms) m
     where e.seq = any (p_events) and e.bucket is not null
     group by e.lambda, e.event;
end $$;
comment on function tuskline_core.max_of_waits(bigint[]) is
  'Bounds of the waits of each lambda by cause in some rows of event_count, in ms.';

create or replace function tuskline_core.wait_totals(p_events bigint[], p_now timestamptz)
returns setof tuskline.wait_statistic language sql stable as $$
  with d as (select * from tuskline_core.wait_counts(p_events))
  select l.name, c.cause, case when d.cause is null then p.at
         else greatest(p_now, p.at + interval '1 microsecond') end,
         tuskline_core.total(p.total_ms, d.ms), tuskline_core.histogram_sum(p.waits, d.n, 1),
         case when d.cause is null then 0 else m.max_ms end
    from tuskline.lambda l
         cross join unnest('{due,gate,limit,order,dependency}'::text[]) as c (cause)
         left join d on d.lambda = l.name and d.cause = c.cause
         left join tuskline_core.max_of_waits(p_events) m
           on m.lambda = l.name and m.cause = c.cause
         left join lateral (
           select s.* from tuskline.wait_statistic s
            where s.lambda = l.name and s.cause = c.cause order by s.at desc limit 1) p on true
   where d.cause is not null or p.cause is not null
$$;
comment on function tuskline_core.wait_totals(bigint[], timestamptz) is
  'Totals of the waits of each lambda by cause: the last folded row plus some counts that wait.';

create or replace function tuskline_core.executor_counts(p_attempts bigint[])
returns table (executor_id bigint, success numeric, failed numeric, refused numeric, run_ms numeric)
language plpgsql stable as $$
#variable_conflict use_column
begin
  if p_attempts = '{}' then return; end if;
  return query
    select a.executor_id,
           sum(u.amount) filter (where u.counter = 1),
           sum(u.amount) filter (where u.counter in (2, 3)),
           sum(u.amount) filter (where u.counter = 6),
           sum(u.amount) filter (where u.counter = 200)
      from tuskline_core.attempt_count a
           cross join unnest(a.counters, a.amounts) as u (counter, amount)
     where a.seq = any (p_attempts) group by a.executor_id;
end $$;
comment on function tuskline_core.executor_counts(bigint[]) is
  'Sums of the counts of each worker in some rows of attempt_count.';

create or replace function tuskline_core.executor_totals(p_attempts bigint[], p_now timestamptz)
returns setof tuskline.executor_statistic language sql stable as $$
  with d as (select * from tuskline_core.executor_counts(p_attempts))
  select e.executor_id, case when d.executor_id is null then p.at
         else greatest(p_now, p.at + interval '1 microsecond') end,
         tuskline_core.total(p.success, d.success),
         tuskline_core.total(p.failed, d.failed),
         tuskline_core.total(p.refused, d.refused),
         tuskline_core.total(p.run_ms, d.run_ms)
    from tuskline.executor e
         left join d using (executor_id)
         left join lateral (
           select s.* from tuskline.executor_statistic s
            where s.executor_id = e.executor_id order by s.at desc limit 1) p on true
   where d.executor_id is not null or p.executor_id is not null
$$;
comment on function tuskline_core.executor_totals(bigint[], timestamptz) is
  'Totals of each worker: its last folded row plus some counts that wait.';
