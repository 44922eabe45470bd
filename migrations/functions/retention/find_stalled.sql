-- find_stalled: the net under every other. A task whose next trigger passed long ago and that nothing
-- points to any more (no queue row, no timer, no lease) is put back where it will be found. No verb
-- leaves such a task behind; a caller that drops a lease too early would, and somebody's DELETE in
-- the wrong table. Reads one segment from end to end: for the janitor, now and then. A claimed task
-- is touched only when its lambda's attempt_timeout is over as well, so that no body can still run; it is
-- given back as `release` does, cancelled if somebody asked for that.
create or replace function tuskline.find_stalled(
  p_no bigint, p_grace interval default '10 minutes', out untimed integer, out unqueued integer, out unleased integer)
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now    timestamptz := tuskline.clock();
  v_ids    bigint[];
  v_fences bigint[];
  v_due    timestamptz[];
begin
  untimed := 0; unqueued := 0; unleased := 0;
  if to_regclass('tuskline_core.task_' || p_no) is null then return; end if;
  execute format('select array_agg(t.id), array_agg(t.next_trigger_at) from tuskline_core.task_%s t'
    ' where t.status in (''new'', ''retriable_failure'') and t.next_trigger_at < $1'
    ' and not exists (select from tuskline.timer m where m.due = t.next_trigger_at and m.task_id = t.id and m.kind = ''due'')'
    ' and not exists (select from tuskline.parked k join tuskline.gate g using (gate_id) where k.task_id = t.id)'
    ' and not exists (select from tuskline.wait_list l join tuskline.task_limit r using (limit_id) where l.task_id = t.id)'
    , p_no) into v_ids, v_due using v_now - p_grace;
  perform tuskline_core.add_timers(v_ids, v_due, 'due', v_now);
  untimed := coalesce(cardinality(v_ids), 0);
  unqueued := tuskline_core.queue_segment(p_no, true, v_now - p_grace);
  if unqueued > 0 then -- no policy was asked about these
    perform tuskline_core.update_policy_flags(g.lambda, enum_range(null::tuskline.priority))
       from tuskline_core.policy_flag g;
  end if;
  execute format('select array_agg(s.id), array_agg(s.fence) from ('
    'select t.id, t.fence from tuskline_core.task_%s t join tuskline.lambda l on l.name = t.lambda'
    ' where t.status in (''claimed'', ''processing'') and t.next_trigger_at < $1 and t.started_at + l.attempt_timeout < $1'
    ' and not exists (select from tuskline.lease s where s.lease_id = t.fence) order by t.id for update of t skip locked) s', p_no)
    into v_ids, v_fences using v_now - p_grace;
  unleased := cardinality((tuskline.release(null, v_ids, v_fences)).released);
  execute format('delete from tuskline.wait_list l using tuskline_core.task_%s t where t.id = l.task_id and t.finished_at < $1', p_no) using v_now - p_grace;
  execute format('select array_agg(distinct s.task_id) from tuskline.permit s join tuskline_core.task_%s t on t.id = s.task_id where t.finished_at < $1', p_no)
    into v_ids using v_now - p_grace;
  perform tuskline_core.run_effects(v_ids, '{}', v_now, 1000);
  -- Lines of which nobody holds a place ask once for every look at the oldest segment.
  perform tuskline_core.add_timers(array(
      select distinct on (l.limit_id, l.key) l.task_id from tuskline.wait_list l
       where p_no = (select min(s.segment_no) from tuskline.segment s where s.sealed_at is null)
         and not exists (select from tuskline.permit s where s.limit_id = l.limit_id and s.key = l.key)
       order by l.limit_id, l.key, l.position, l.task_id),
    array[v_now], 'recheck', v_now);
  if unqueued + unleased > 0 then perform tuskline_core.notify('tuskline_queue'); end if;
end $$;
comment on function tuskline.find_stalled(bigint, interval) is
  'Puts tasks of one segment that nothing points to any more back into a timer or their queue; says how many.';

create or replace function tuskline.segments_in_use() returns setof bigint
language sql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  select segment_no from tuskline.segment where sealed_at is null order by segment_no
$$;
comment on function tuskline.segments_in_use() is 'Segments that may hold tasks which are not terminal.';
