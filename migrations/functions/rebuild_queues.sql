-- rebuild_queues: the queues are buffers; after a crash or on a promoted standby they are empty, and
-- so is `boot`. Then nothing is claimed until this has filled them from the truth. Whoever notices
-- first does it; the others wait for the lock and find it done. Fences and executor numbers take a
-- large step, so that none of a lost past is ever issued again. Sealed segments are not read.
create or replace function tuskline.rebuild_queues(out rebuilt boolean, out tasks bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now  timestamptz := tuskline.clock();
  v_no   bigint;
  v_rows bigint;
  v_clock_us bigint := 1000000 * extract(epoch from tuskline.clock());
begin
  perform pg_advisory_xact_lock(1953854315, -3);
  rebuilt := not exists (select from tuskline.boot);
  tasks := 0;
  if not rebuilt then return; end if;
  if (select is_called from tuskline.executor_seq) then
    -- Far beyond what the lost past can have issued; and not below the clock, or two failovers of which
    -- the second has not seen the first one's raise would issue the same numbers twice.
    perform setval('tuskline.fence_seq', greatest(nextval('tuskline.fence_seq') + 1000000000, v_clock_us));
    perform setval('tuskline.executor_seq', greatest(nextval('tuskline.executor_seq') + 1000000, v_clock_us));
  end if;
  -- What was seen of a life that may have lost beats counts for nothing.
  update tuskline.executor set silent_ms = 0 where executor_id = any (array(
    select executor_id from tuskline.executor where ended_at is null and silent_ms > 0 order by executor_id for update));
  for v_no in select segment_no from tuskline.segment where sealed_at is null order by segment_no loop
    if to_regclass('tuskline.task_' || v_no) is null then continue; end if;
    execute format('insert into tuskline.queued (queue_id, task_id)'
      ' select q.queue_id, t.id from tuskline.task_%s t'
      ' join tuskline.queue q on q.lambda = t.lambda and q.priority = t.priority'
      ' where t.status = ''enqueued'' order by t.id', v_no);
    get diagnostics v_rows = row_count;
    tasks := tasks + v_rows;
  end loop;
  insert into tuskline.boot values (v_now);
  perform tuskline.notify('tuskline_queue');
end $$;
comment on function tuskline.rebuild_queues() is
  'Fills the queues from the task store if they were lost in a crash or failover; does nothing otherwise.';
