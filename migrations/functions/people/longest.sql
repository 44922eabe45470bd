-- Bounds of the durations in the statistics of the last p_span: no quantile exceeds them.
--
-- A bound is the longest duration, or the upper bound of a bucket if a worker of an older SDK did
-- not tell it. Null: it is not known, or nothing was counted. They cover the same rows as
-- statistics() and wait_times(). A total cannot tell them: a difference of totals has no maximum.
-- Planner: the rows of the span of each queue or cause, by the primary key.

create or replace function tuskline.longest_attempts(p_span interval default '5 minutes')
returns table (lambda text, priority text, start_ms double precision, run_ms double precision)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
declare
  u record := tuskline_core.unfolded(p_span, false);
begin
  return query
    select q.lambda, q.priority::text,
           case when bool_and(e.start_max_us is not null) then max(e.start_max_us) end
             / 1000::double precision,
           case when bool_and(e.run_max_us is not null) then max(e.run_max_us) end
             / 1000::double precision
      from tuskline.queue q
           left join tuskline_core.max_of_attempts(u.attempts) w on w.queue_id = q.queue_id
           cross join lateral (
             select case when u.since is not null then greatest(u.since, min(s.at)) end as at,
                    min(s.at) is not null as has_rows
               from tuskline.queue_statistic s where s.queue_id = q.queue_id) f
           cross join lateral (
             select s.start_max_us, s.run_max_us from tuskline.queue_statistic s
              where f.has_rows and s.queue_id = q.queue_id and s.at > coalesce(
                (select max(b.at) from tuskline.queue_statistic b
                  where b.queue_id = q.queue_id and b.at <= f.at), '-infinity')
             union all
             select case when w.has_starts then w.start_max_us else 0 end,
                    case when w.has_runs then w.run_max_us else 0 end
              where w.queue_id is not null) e
     group by q.queue_id;
end $$;
comment on function tuskline.longest_attempts(interval) is
  'Longest delay from due to the first start and longest run time of each queue in the last '
  'p_span, in ms: a bound of the quantiles. Null: not known.';

create or replace function tuskline.longest_waits(p_span interval default '5 minutes')
returns table (lambda text, cause text, max_ms bigint)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
declare
  u record := tuskline_core.unfolded(p_span, false);
begin
  return query
    select l.name, c.cause, case when bool_and(e.max_ms is not null) then max(e.max_ms) end
      from tuskline.lambda l
           cross join unnest('{due,gate,limit,order,dependency}'::text[]) as c (cause)
           left join tuskline_core.max_of_waits(u.events) w
             on w.lambda = l.name and w.cause = c.cause
           cross join lateral (
             select case when u.since is not null then greatest(u.since, min(s.at)) end as at,
                    min(s.at) is not null as has_rows
               from tuskline.wait_statistic s where s.lambda = l.name and s.cause = c.cause) f
           cross join lateral (
             select s.max_ms from tuskline.wait_statistic s
              where f.has_rows and s.lambda = l.name and s.cause = c.cause and s.at > coalesce(
                (select max(b.at) from tuskline.wait_statistic b
                  where b.lambda = l.name and b.cause = c.cause and b.at <= f.at), '-infinity')
             union all
             select w.max_ms where w.cause is not null) e
     group by l.name, c.cause;
end $$;
comment on function tuskline.longest_waits(interval) is
  'Longest wait of each lambda by cause that ended in the last p_span, in ms: a bound of the '
  'quantiles. Null: not known.';
