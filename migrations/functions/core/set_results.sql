-- Records results: claimed or processing -> the outcome that the worker reports.
--
-- p_tasks and p_fences: plain successes, parallel.
-- p_notes: results with more to say, a JSON array of {task, fence, status, error_class, message,
--   after_ms, output}. The status is success, retriable_failure, snoozed, fatal_failure or
--   cancelled. A retriable failure backs off: the base doubles each attempt, capped, with 25 %
--   jitter both ways. After max_attempts the task is dead. A snoozed task is new again and due in
--   after_ms, as if the attempt had not been.
-- p_done_leases: leases whose last tasks this call reports.
-- Returns the refused tasks: the fence is not the current one, or the task ended with another
-- outcome. A refused result changes nothing.
--
-- Guarantees: to send the same result twice is harmless. A refusal also waits for the synchronous
-- standby (wait_for_standby).
--
-- Locks: set_results waits for task rows that other transactions hold, up to the caller's
-- lock_timeout. exchange skips such rows. Both call record_results, and their settings pin its
-- plans.
create or replace function tuskline_core.record_results(
  p_executor bigint, p_tasks bigint[], p_fences bigint[], p_notes json, p_done_leases bigint[])
returns bigint[] language plpgsql as $$
declare
  v_now     timestamptz := tuskline.clock();
  v_refused bigint[] := '{}';
  v_done    tuskline_core.ended;
begin
  p_executor := tuskline_core.own_executor(p_executor);
  if p_notes is not null then
    v_refused := tuskline_core.record_notes(p_executor, p_tasks, p_fences, p_notes, v_now);
  elsif cardinality(p_tasks) > 0 then
    if cardinality(p_tasks) > 1 then
      select array_agg(r.id), array_agg(r.fence) into p_tasks, p_fences
        from (select u.id, u.fence from unnest(p_tasks, p_fences) as u (id, fence)
               where u.id is not null order by u.id, u.fence) r;
    end if;
    p_fences := tuskline_core.own_fences(p_executor, p_fences);
    v_done := tuskline_core.end_attempts(p_tasks, p_fences, null, null, null, v_now);
    if v_done.applied < cardinality(p_tasks) then
      perform tuskline_core.wait_for_standby();
      v_refused := array(select r.id from unnest(p_tasks, p_fences) as r (id, fence)
        where not exists (select from tuskline.task t
                           where t.id = r.id and t.fence = abs(r.fence) and t.status = 'success'));
    end if;
    perform tuskline_core.run_effects(v_done.flagged, '{}', v_now);
  end if;
  if p_done_leases is not null then
    perform tuskline_core.drop_leases(p_executor, p_done_leases);
  end if;
  return v_refused;
end $$;
comment on function tuskline_core.record_results(bigint, bigint[], bigint[], json, bigint[]) is
  'Records results, for set_results and exchange. Returns the tasks whose result was refused.';

-- Records results of which some have notes.
--
-- A batch without retries, failures or outputs pays nothing for them.
create or replace function tuskline_core.record_notes(
  p_executor bigint, p_tasks bigint[], p_fences bigint[], p_notes json, p_now timestamptz)
returns bigint[] language plpgsql as $$
declare
  v_ids     bigint[]; -- the results in the order (task, fence); the next seven arrays are parallel
  v_fences  bigint[];
  v_status  text[]; v_class text[]; v_message text[];
  v_after   bigint[];
  v_output  json[];
  v_outcome tuskline.status[]; v_delay interval[];
  v_done    tuskline_core.ended;
begin
  p_notes := tuskline_core.storable(p_notes);
  perform tuskline_core.check_notes(p_notes);
  select array_agg(r.id), array_agg(r.fence), array_agg(r.status),
         array_agg(r.error_class), array_agg(r.message), array_agg(r.after_ms), array_agg(r.output)
    into v_ids, v_fences, v_status, v_class, v_message, v_after, v_output
    from (select u.id, u.fence, 'success' as status, null as error_class, null as message,
                 null::bigint as after_ms, null::json as output
            from unnest(p_tasks, p_fences) as u (id, fence)
          union all
          select n.task, n.fence, n.status, n.error_class, n.message, n.after_ms, n.output
            from json_to_recordset(p_notes) as n (task bigint, fence bigint, status text,
                   error_class text, message text, after_ms bigint, output json)
          order by 1, 2) r;
  v_fences := tuskline_core.own_fences(p_executor, v_fences);
  if v_status && '{retriable_failure,snoozed}' then
    select o.outcome, o.delay into v_outcome, v_delay
      from tuskline_core.outcomes(v_ids, v_status, v_after) o;
  else
    v_outcome := v_status::tuskline.status[];
  end if;
  v_done := tuskline_core.end_attempts(v_ids, v_fences, v_outcome, v_delay, null, p_now);
  if v_done.status && '{retriable_failure,new}' then
    perform tuskline_core.add_timers(array_agg(u.id),
        array_agg(p_now + v_delay[width_bucket(u.id, v_ids)]), 'due', p_now)
      from unnest(v_done.task_id, v_done.status) as u (id, status)
     where u.status in ('retriable_failure', 'new');
  end if;
  if v_done.status && '{retriable_failure,fatal_failure,dead}' then
    insert into tuskline.task_failure (task_id, fence, attempt, executor_id, error_class,
                             message, fingerprint, failed_at, outcome, started_at, retry_at)
    select d.id, v_fences[d.at], d.attempt, p_executor, coalesce(left(v_class[d.at], 80), 'error'),
           coalesce(left(v_message[d.at], 8192), ''),
           tuskline_core.fingerprint(coalesce(v_class[d.at], 'error'),
                                     coalesce(v_message[d.at], '')),
           p_now, d.status, d.started_at, p_now + v_delay[d.at]
      from (select u.*, width_bucket(u.id, v_ids) as at
              from unnest(v_done.task_id, v_done.status, v_done.attempt, v_done.started_at)
                     as u (id, status, attempt, started_at)
             where u.status in ('retriable_failure', 'fatal_failure', 'dead')) d;
    perform tuskline_core.failures_noted(v_done.task_id, v_done.status, p_now);
  end if;
  insert into tuskline.task_output (task_id, output, finished_at)
  select d.id, v_output[d.at], p_now
    from (select u.id, width_bucket(u.id, v_ids) as at
            from unnest(v_done.task_id, v_done.status) as u (id, status)
           where u.status = 'success') d
   where v_output[d.at] is not null;
  perform tuskline_core.run_effects(v_done.flagged, '{}', p_now);
  if v_done.applied = cardinality(v_ids) then return '{}'; end if;
  perform tuskline_core.wait_for_standby();
  -- Refused: the result changed nothing now, and the task does not already have its outcome.
  return array(
    select r.id from unnest(v_ids, v_fences, v_status) as r (id, fence, status)
     where r.id <> all (coalesce(v_done.task_id, '{}'))
       and not exists (
         select from tuskline.task t
          where t.id = r.id and t.fence = abs(r.fence)
            and (t.status::text = r.status
                 or r.status = 'retriable_failure' and t.status = 'dead'
                 or r.status = 'snoozed' and t.status = 'new' and t.fence > 0)));
end $$;
comment on function tuskline_core.record_notes(bigint, bigint[], bigint[], json, timestamptz) is
  'Records results of which some have notes. Returns the tasks whose result was refused.';

create or replace function tuskline.set_results(
  p_executor bigint, p_tasks bigint[], p_fences bigint[], p_notes json default null,
  p_done_leases bigint[] default null)
returns bigint[] language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan
set enable_hashjoin = off set enable_mergejoin = off
set enable_seqscan = off set enable_bitmapscan = off as $$
begin
  return tuskline_core.record_results(p_executor, p_tasks, p_fences, p_notes, p_done_leases);
end $$;
comment on function tuskline.set_results(bigint, bigint[], bigint[], json, bigint[]) is
  'Records results under their fences. Returns the tasks whose result was refused: the attempt is '
  'no longer the current one.';

-- Deletes leases, each by both columns of the key.
--
-- Planner: a join or = any may become a scan of all leases that the executor ever had, once an
-- analyze saw a small table. While an old snapshot exists, these are thousands of dead rows for
-- each exchange.
create or replace function tuskline_core.drop_leases(p_executor bigint, p_leases bigint[])
returns void language plpgsql as $$
declare
  v_lease bigint;
begin
  foreach v_lease in array p_leases loop
    delete from tuskline.lease l where l.executor_id = p_executor and l.lease_id = v_lease;
  end loop;
end $$;
comment on function tuskline_core.drop_leases(bigint, bigint[]) is
  'Deletes leases whose tasks have all been reported or released.';
