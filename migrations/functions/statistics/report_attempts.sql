-- Stores what a worker has counted since its last report: attempts by queue, outcome and duration.
--
-- p_queues, p_counters and p_amounts are parallel; attempt_count.counters lists the counters.
-- A worker reports every few seconds, on its control connection, and only if it has counted
-- something. The report is not a part of the heartbeat: a stranger's lock on this table would then
-- end the lease.
--
-- A report that got no answer is not repeated, so nothing is counted twice.
-- Locks: none but the table's. It waits 100 ms for that.
create or replace function tuskline.report_attempts(
  p_executor bigint, p_queues integer[], p_counters smallint[], p_amounts bigint[])
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off set lock_timeout = '100ms' as $$
declare
  v_size integer := cardinality(p_queues);
begin
  if coalesce(v_size <> cardinality(p_counters) or v_size <> cardinality(p_amounts)
              or v_size > 20000 or array_position(p_amounts, null) is not null, true) then
    perform tuskline_core.refuse('TK055',
      format('invalid_report: three arrays of one length up to 20000, got %s, %s, %s',
        coalesce(v_size::text, 'null'), coalesce(cardinality(p_counters)::text, 'null'),
        coalesce(cardinality(p_amounts)::text, 'null')));
  end if;
  insert into tuskline_core.attempt_count (at, executor_id, queue_ids, counters, amounts)
  select tuskline.clock(), e.executor_id, p_queues, p_counters, p_amounts
    from tuskline.executor e where e.executor_id = p_executor and v_size > 0;
end $$;
comment on function tuskline.report_attempts(bigint, integer[], smallint[], bigint[]) is
  'Stores what a worker has counted of its attempts, for the statistics.';
