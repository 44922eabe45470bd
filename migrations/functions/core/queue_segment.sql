-- Queues the enqueued tasks of one segment: the only way back into the queues for a whole segment.
--
-- p_missing: only tasks that have no queue row.
-- p_before: only tasks whose next trigger time is before it.
-- p_queues: only tasks of these queues.
-- Returns the number of tasks queued.
create or replace function tuskline_core.queue_segment(
  p_segment bigint, p_missing boolean, p_before timestamptz default null,
  p_queues integer[] default null)
returns bigint language plpgsql as $$
declare
  v_rows bigint;
begin
  if to_regclass('tuskline_core.task_' || p_segment) is null then return 0; end if;
  execute format('insert into tuskline.queued (queue_id, bytes, task_id)'
    ' select q.queue_id, tuskline_core.payload_bytes(t.payload), t.id from tuskline_core.task_%s t'
    ' join tuskline.queue q on q.lambda = t.lambda and q.priority = t.priority'
    ' where t.status = ''enqueued''', p_segment)
    || case when p_before is not null then ' and t.next_trigger_at < $1' else '' end
    || case when p_missing
            then ' and not exists (select from tuskline.queued d where d.task_id = t.id)'
            else '' end
    || case when p_queues is not null then ' and q.queue_id = any ($2)' else '' end
    || ' order by t.id' using p_before, p_queues;
  get diagnostics v_rows = row_count;
  return v_rows;
end $$;
comment on function tuskline_core.queue_segment(bigint, boolean, timestamptz, integer[]) is
  'Queues the enqueued tasks of one segment, or only those that are in no queue. Returns their '
  'number.';
