-- note_backlogs: which lambdas have as many tasks waiting as they may. Counts no further than it must.
-- Refusals begin and end within a second of the truth: a count for each insert would be a hot row.
-- Whoever changes a lambda looks himself, at that one; what he has just set counts, not what we saw before.
create or replace function tuskline_core.note_backlogs(p_lambda text default null) returns void
language plpgsql as $$
declare
  l      record;
  v_most integer;
  v_full boolean;
begin
  for l in select b.name, b.max_backlog, bool_or(q.is_full) as was_full from tuskline.lambda b join tuskline.queue q on q.lambda = b.name
            where p_lambda is null or b.name = p_lambda group by b.name having b.max_backlog > 0 or bool_or(q.is_full) order by b.name loop
    continue when tuskline_core.is_backlog(l.name, l.max_backlog) = l.was_full;
    select b.max_backlog into v_most from tuskline.lambda b where b.name = l.name for update skip locked;
    continue when not found;
    v_full := tuskline_core.is_backlog(l.name, v_most);
    update tuskline.queue q set is_full = v_full where q.lambda = l.name and q.is_full <> v_full;
    perform tuskline_core.update_policy_flags(l.name);
  end loop;
end $$;
comment on function tuskline_core.note_backlogs(text) is 'Notes whether a lambda has, or which lambdas have, a full backlog, by a count that ends at its limit.';

create or replace function tuskline_core.is_backlog(p_lambda text, p_max integer) returns boolean
language sql as $$
  select p_max > 0 and p_max <= (select count(*) from (
      select from tuskline.queued d where d.queue_id in (select q.queue_id from tuskline.queue q where q.lambda = p_lambda)
      union all select from tuskline.wait_list s where s.limit_id in (select r.limit_id from tuskline.task_limit r where r.lambda = p_lambda)
      union all select from tuskline.parked p where p.gate_id in (select g.gate_id from tuskline.gate g where g.lambda = p_lambda)
      limit p_max) w)
$$;
comment on function tuskline_core.is_backlog(text, integer) is 'Whether as many tasks of a lambda wait as may: in queues, in line or behind gates, not those that are due later; 0: any number may.';
