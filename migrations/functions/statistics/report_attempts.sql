-- Stores the counts of a worker since its last report: attempts by queue, outcome and duration.
--
-- p_queues, p_counters and p_amounts are parallel; attempt_count.counters lists the counters.
-- A worker reports every few seconds, on its control connection, and only if it has counted
-- something. The report is not part of the heartbeat. Otherwise a lock of another session on this
-- table could end the worker's leases.
--
-- A report that got no answer is not repeated, so nothing is counted twice.
--
-- An amount is 0 to 10^12, which is 31 years in ms. The executor must serve the lambda of each
-- queue. This finds a mistake of a client.
-- Locks: only that of the table. It waits at most 100 ms for it.
create or replace function tuskline.report_attempts(
  p_executor bigint, p_queues integer[], p_counters smallint[], p_amounts bigint[])
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off set lock_timeout = '100ms' as $$
declare
  v_size    integer := cardinality(p_queues);
  v_lambdas text[];
  v_wrong   text;
begin
  if coalesce(v_size <> cardinality(p_counters) or v_size <> cardinality(p_amounts)
              or v_size > 20000 or array_position(p_amounts, null) is not null, true) then
    perform tuskline_core.refuse('TK055',
      format('invalid_report: three arrays must have one length, at most 20000, got %s, %s, %s',
        coalesce(v_size::text, 'null'), coalesce(cardinality(p_counters)::text, 'null'),
        coalesce(cardinality(p_amounts)::text, 'null')));
  end if;
  select e.lambdas into v_lambdas from tuskline.executor e
   where e.executor_id = tuskline_core.own_executor(p_executor) and v_size > 0;
  if not found then return; end if;
  select format('queue %s, counter %s, amount %s', u.queue_id, u.counter, u.amount) into v_wrong
    from unnest(p_queues, p_counters, p_amounts) as u (queue_id, counter, amount)
         left join tuskline.queue q on q.queue_id = u.queue_id and q.lambda = any (v_lambdas)
   where q.queue_id is null or u.amount not between 0 and 1000000000000
      or not coalesce(u.counter between 1 and 6 or u.counter between 100 and 117
                      or u.counter between 200 and 217, false)
   limit 1;
  if found then
    perform tuskline_core.refuse('TK055', 'invalid_report: an amount must be 0 to 10^12, a '
      'counter known, and the lambda of a queue one that the worker serves; got ' || v_wrong);
  end if;
  insert into tuskline_core.attempt_count (at, executor_id, queue_ids, counters, amounts)
  values (tuskline.clock(), p_executor, p_queues, p_counters, p_amounts);
end $$;
comment on function tuskline.report_attempts(bigint, integer[], smallint[], bigint[]) is
  'Stores the counts of the attempts of a worker, for the statistics.';
