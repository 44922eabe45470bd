-- Counts the waits of one lambda that end now: one row per bucket of the histogram.
--
-- p_cause: see wait_statistic.cause. p_since: when each wait began. A wait of 0 ms is not counted.
-- The rows go into an unlogged table, and each call inserts rows of its own. So a call writes no
-- WAL and waits for no row lock.
create or replace function tuskline_core.count_waits(
  p_cause text, p_lambda text, p_since timestamptz[], p_now timestamptz)
returns void language plpgsql as $$
begin
  if p_since is null or p_since = '{}' then return; end if;
  insert into tuskline_core.event_count (at, lambda, event, bucket, events, total_ms, max_ms)
  select p_now, p_lambda, p_cause::tuskline_core.counted_event, tuskline_core.bucket_of(w.ms),
         count(*), sum(w.ms), max(w.ms)
    from (select (1000 * extract(epoch from p_now - u.since))::bigint as ms
            from unnest(p_since) as u (since)) w
   where w.ms > 0
   group by tuskline_core.bucket_of(w.ms);
end $$;
comment on function tuskline_core.count_waits(text, text, timestamptz[], timestamptz) is
  'Counts the waits of one lambda that end now, for the statistics.';

-- Counts ends that no worker reports: one row per lambda and priority.
create or replace function tuskline_core.count_ends(
  p_event text, p_ids bigint[], p_now timestamptz)
returns void language plpgsql as $$
declare
  v_first bigint := (select min(id) from unnest(p_ids) as id);
  v_last  bigint := (select max(id) from unnest(p_ids) as id);
begin
  if v_first is null then return; end if;
  insert into tuskline_core.event_count (at, lambda, priority, event, events, total_ms)
  select p_now, t.lambda, t.priority, p_event::tuskline_core.counted_event, count(*), 0
    from tuskline.task t
   where t.id = any (p_ids) and t.id between v_first and v_last -- prunes the partitions
   group by t.lambda, t.priority;
end $$;
comment on function tuskline_core.count_ends(text, bigint[], timestamptz) is
  'Counts ends of tasks or attempts that no worker reports, for the statistics.';
