-- Records how far an attempt has come.
--
-- A null parameter keeps the last value, also one of an earlier attempt.
-- Returns false, and changes nothing, if the attempt is over or a later one has written.
create or replace function tuskline.set_progress(
  p_task bigint, p_fence bigint, p_percent real default null, p_message text default null,
  p_checkpoint json default null)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  perform tuskline_core.need_on_task(p_task, 'work');
  if p_percent not between 0 and 100 then -- also refuses NaN
    perform tuskline_core.refuse('TK028',
      format('invalid_progress: percent must be 0 to 100, got %s', p_percent));
  elsif octet_length(p_checkpoint::text) > 1048576 then
    perform tuskline_core.refuse('TK028',
      format('invalid_progress: a checkpoint has at most 1048576 bytes, got %s',
             octet_length(p_checkpoint::text)));
  end if;
  insert into tuskline.progress as p (task_id, fence, percent, message, checkpoint, said_at)
  select t.id, t.fence, p_percent, left(p_message, 8192), p_checkpoint, tuskline.clock()
    from tuskline.task t
   where t.id = p_task and t.fence = p_fence and t.status in ('claimed', 'processing')
  on conflict (task_id) do update
     set fence = excluded.fence, percent = coalesce(excluded.percent, p.percent),
         message = coalesce(excluded.message, p.message),
         checkpoint = coalesce(excluded.checkpoint, p.checkpoint), said_at = excluded.said_at
   where p.fence <= excluded.fence;
  return found;
end $$;
comment on function tuskline.set_progress(bigint, bigint, real, text, json) is
  'Records how far an attempt has come. Null keeps the last value. False: the attempt is over, or '
  'a later one has written.';
