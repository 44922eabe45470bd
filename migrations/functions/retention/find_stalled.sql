-- Puts stalled tasks of one segment back to where a store consumer or a worker finds them.
--
-- A task is stalled if its next trigger passed more than p_grace ago and nothing points to it: no
-- queue row, no timer, no lease. No function leaves such a task. A caller that drops a lease too
-- early does, and so does a manual DELETE in the wrong table.
--
--   waits, no timer, not parked, not in a wait list   gets a timer
--   enqueued, no queue row                            gets a queue row
--   claimed or processing, no lease                   is released, or cancelled on request
--   ended, still in a wait list or holding a permit   leaves the wait list, releases the permit
--
-- It also counts the spent permits of rate limits that no task has asked since (settle_rates).
--
-- A task without a lease is released only after its lambda's attempt_timeout, so that no worker can
-- still run it.
-- Returns the counts of the first three cases.
-- The function reads the whole segment, so the janitor calls it only now and then.
create or replace function tuskline.find_stalled(
  p_no bigint, p_grace interval default '10 minutes',
  out untimed integer, out unqueued integer, out unleased integer)
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now    timestamptz := tuskline.clock();
  v_ids    bigint[];
  v_fences bigint[];
  v_due    timestamptz[];
begin
  untimed := 0;
  unqueued := 0;
  unleased := 0;
  if to_regclass('tuskline_core.task_' || p_no) is null then return; end if;
  select array_agg(u.id), array_agg(u.due) into v_ids, v_due
    from tuskline_core.untimed_tasks(p_no, v_now - p_grace) u;
  perform tuskline_core.add_timers(v_ids, v_due, 'due', v_now);
  untimed := coalesce(cardinality(v_ids), 0);
  unqueued := tuskline_core.queue_segment(p_no, true, v_now - p_grace);
  if unqueued > 0 then -- these tasks have passed no policy: the queues are flagged again
    perform tuskline_core.update_policy_flags(g.lambda, enum_range(null::tuskline.priority))
       from tuskline_core.policy_flag g;
  end if;
  execute format(
    'select array_agg(s.id), array_agg(s.fence) from ('
    'select t.id, t.fence from tuskline_core.task_%s t'
    ' join tuskline.lambda l on l.name = t.lambda'
    ' where t.status in (''claimed'', ''processing'') and t.next_trigger_at < $1'
    ' and t.started_at + l.attempt_timeout < $1'
    ' and not exists (select from tuskline.lease s where s.lease_id = t.fence)'
    ' order by t.id for update of t skip locked) s', p_no)
    into v_ids, v_fences using v_now - p_grace;
  unleased := tuskline_core.return_unleased(v_ids, v_fences, v_now);
  execute format(
    'delete from tuskline.wait_list l using tuskline_core.task_%s t'
    ' where t.id = l.task_id and t.finished_at < $1', p_no) using v_now - p_grace;
  execute format(
    'select array_agg(distinct s.task_id) from tuskline.permit s'
    ' join tuskline_core.task_%s t on t.id = s.task_id'
    ' where t.finished_at < $1 and coalesce(s.fence = t.fence, true)', p_no)
    into v_ids using v_now - p_grace;
  perform tuskline_core.run_effects(v_ids, '{}', v_now, 1000);
  perform tuskline_core.settle_rates(p_no, v_now);
  -- With the oldest unsealed segment: the head of each wait list without a held permit rechecks.
  perform tuskline_core.add_timers(array(
      select distinct on (l.limit_id, l.key) l.task_id from tuskline.wait_list l
       where p_no = (select min(s.segment_no) from tuskline.segment s where s.sealed_at is null)
         and not exists (select from tuskline.permit s
                          where s.limit_id = l.limit_id and s.key = l.key)
       order by l.limit_id, l.key, l.position, l.task_id),
    array[v_now], 'recheck', v_now);
  if unqueued + unleased > 0 then perform tuskline_core.notify('tuskline_queue'); end if;
end $$;
comment on function tuskline.find_stalled(bigint, interval) is
  'Gives the tasks of one segment that nothing points to a timer or a queue row again. '
  'Returns how many.';

-- Returns claimed tasks without a lease to their queues. release() would not: it acts only on tasks
-- of its own executor where rights are in use.
create or replace function tuskline_core.return_unleased(
  p_ids bigint[], p_fences bigint[], p_now timestamptz)
returns integer language plpgsql as $$
declare
  v_count integer := coalesce(cardinality(p_ids), 0);
  v_done  tuskline_core.ended;
begin
  if v_count = 0 then return 0; end if;
  v_done := tuskline_core.end_attempts(p_ids, p_fences,
    array_fill('enqueued'::tuskline.status, array[v_count]),
    array_fill(tuskline_core.stalled_after(), array[v_count]),
    array_fill(0::smallint, array[v_count]), p_now);
  perform tuskline_core.run_effects(v_done.flagged, '{}', p_now); -- for requested cancels
  perform tuskline_core.queue_returned(v_done.task_id, p_now);
  return coalesce(cardinality(v_done.task_id), 0);
end $$;
comment on function tuskline_core.return_unleased(bigint[], bigint[], timestamptz) is
  'Returns claimed tasks without a lease to their queues, or cancels them on request. Returns how '
  'many.';

-- Lists the waiting tasks of a segment that were due before p_before and have no timer, gate or
-- limit.
create or replace function tuskline_core.untimed_tasks(p_no bigint, p_before timestamptz)
returns table (id bigint, due timestamptz) language plpgsql stable as $$
begin
  if to_regclass('tuskline_core.task_' || p_no) is null then return; end if;
  return query execute format(
    'select t.id, t.next_trigger_at from tuskline_core.task_%s t'
    ' where t.status in (''new'', ''retriable_failure'') and t.next_trigger_at < $1'
    ' and not exists (select from tuskline.timer m where m.due = t.next_trigger_at'
    ' and m.task_id = t.id and m.kind = ''due'')'
    ' and not exists (select from tuskline.parked k join tuskline.gate g using (gate_id)'
    ' where k.task_id = t.id)'
    ' and not exists (select from tuskline.wait_list l'
    ' join tuskline.task_limit r using (limit_id) where l.task_id = t.id)',
    p_no) using p_before;
end $$;
comment on function tuskline_core.untimed_tasks(bigint, timestamptz) is
  'Waiting tasks of a segment, due before this time, without a timer, a gate or a limit.';

create or replace function tuskline.segments_in_use() returns setof bigint
language sql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  select segment_no from tuskline.segment where sealed_at is null order by segment_no
$$;
comment on function tuskline.segments_in_use() is
  'Segments that may hold tasks which have not ended.';
