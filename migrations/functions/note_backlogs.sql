-- note_backlogs: which lambdas have as many tasks waiting as they may. Counts no further than it must.
-- Refusals begin and end within a second of the truth: a count for each insert would be a hot row.
create or replace function tuskline.note_backlogs() returns void
language plpgsql as $$
declare
  l      record;
  v_full boolean;
begin
  for l in select b.name, b.max_backlog, bool_or(q.is_full) as was_full from tuskline.lambda b join tuskline.queue q on q.lambda = b.name
            group by b.name having b.max_backlog > 0 or bool_or(q.is_full) order by b.name loop
    v_full := l.max_backlog > 0 and l.max_backlog <= (select count(*) from (
      select from tuskline.queued d where d.queue_id in (select q.queue_id from tuskline.queue q where q.lambda = l.name)
      union all select from tuskline.line s where s.rule_id in (select r.rule_id from tuskline.rule r where r.lambda = l.name)
      union all select from tuskline.parked p where p.gate_id in (select g.gate_id from tuskline.gate g where g.lambda = l.name)
      limit l.max_backlog) w);
    if v_full <> l.was_full then
      update tuskline.queue q set is_full = v_full where q.lambda = l.name and q.is_full <> v_full;
      perform tuskline.guard_queues(l.name);
    end if;
  end loop;
end $$;
comment on function tuskline.note_backlogs() is 'Notes which lambdas have a full backlog, by a count that ends at its limit.';
