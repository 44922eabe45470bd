-- Adds timers of one kind: the work of a store consumer on tasks, and when it is due.
--
-- p_due has one due time for each task, or a single one for all tasks. An existing timer stays as
-- it is. A sleeping store consumer wakes if the first of them is due within a second.
-- Guarantees: this function is the only writer of new timers.
create or replace function tuskline_core.add_timers(
  p_ids bigint[], p_due timestamptz[], p_kind tuskline_core.timer_kind, p_now timestamptz)
returns void language plpgsql as $$
begin
  if coalesce(cardinality(p_ids), 0) = 0 then return; end if;
  insert into tuskline.timer (due, task_id, kind)
  select coalesce(u.due, p_due[1]), u.id, p_kind from unnest(p_ids, p_due) as u (id, due)
   order by 1, 2 on conflict do nothing;
  perform tuskline_core.wake_timer((select min(due) from unnest(p_due) as due), p_now);
end $$;
comment on function tuskline_core.add_timers(
  bigint[], timestamptz[], tuskline_core.timer_kind, timestamptz) is
  'Adds timers of one kind for these tasks. Wakes a store consumer if one is due within a second.';
