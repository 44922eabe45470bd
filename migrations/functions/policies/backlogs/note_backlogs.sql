-- Records which lambdas have a full backlog, so that further tasks of them are refused.
--
-- The count stops at the limit. Refusals begin and end within a second of the truth. A count kept
-- by each insert would be exact, but a hot row.
-- p_lambda: only this lambda (alter_lambda passes the one that it changes); null: all.
--
-- Locks: the lambda's row, SKIP LOCKED. A locked lambda is left to the next call.
--
-- Race: a transaction may change max_backlog after the loop has read it. Therefore it is read and
-- counted again under the lock.
create or replace function tuskline_core.note_backlogs(p_lambda text default null) returns void
language plpgsql as $$
declare
  l      record;
  v_most integer;
  v_full boolean;
begin
  for l in
    select b.name, b.max_backlog, bool_or(q.is_full) as was_full
      from tuskline.lambda b join tuskline.queue q on q.lambda = b.name
     where p_lambda is null or b.name = p_lambda
     group by b.name
    having b.max_backlog > 0 or bool_or(q.is_full)
     order by b.name
  loop
    continue when tuskline_core.is_backlog(l.name, l.max_backlog) = l.was_full;
    select b.max_backlog into v_most from tuskline.lambda b
     where b.name = l.name for update skip locked;
    continue when not found;
    v_full := tuskline_core.is_backlog(l.name, v_most);
    update tuskline.queue q set is_full = v_full
     where q.lambda = l.name and q.is_full <> v_full;
    perform tuskline_core.update_policy_flags(l.name);
  end loop;
end $$;
comment on function tuskline_core.note_backlogs(text) is
  'Records whether the backlog of a lambda (null: of each lambda) is full.';

-- False: note_backlogs has nothing to do.
create or replace function tuskline_core.backlogs_in_use() returns boolean
language plpgsql stable as $$
begin
  return exists (select from tuskline.lambda where max_backlog > 0)
    or exists (select from tuskline.queue where is_full);
end $$;
comment on function tuskline_core.backlogs_in_use() is
  'Tells whether a lambda has a limit of its backlog, or had one that a queue is still full by.';

create or replace function tuskline_core.is_backlog(p_lambda text, p_max integer) returns boolean
language sql as $$
  select p_max > 0 and p_max <= (select count(*) from (
    select from tuskline.queued d
     where d.queue_id in (select q.queue_id from tuskline.queue q where q.lambda = p_lambda)
    union all
    select from tuskline.wait_list s
     where s.limit_id in (
             select r.limit_id from tuskline.task_limit r where r.lambda = p_lambda)
    union all
    select from tuskline.parked p
     where p.gate_id in (select g.gate_id from tuskline.gate g where g.lambda = p_lambda)
    limit p_max) w)
$$;
comment on function tuskline_core.is_backlog(text, integer) is
  'Tells whether p_max tasks of a lambda wait in queues, in wait lists or behind gates. Tasks that '
  'are due later do not count. p_max 0: no limit.';
