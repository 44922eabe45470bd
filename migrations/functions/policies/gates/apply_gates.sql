-- Applies gates to tasks that are about to be enqueued or claimed. The caller has locked the tasks.
--
-- The narrowest gate of a task decides. A pause of a whole queue stops no
-- task here: its tasks wait in the queue, and claims skip it (flagged_queue).
--
-- Returns (verdicts):
--   go       tasks that no gate holds
--   stopped  tasks that are parked until their gate opens (pause)
--   doomed   tasks that end as dropped (drop) or as dead (divert)
--
-- Locks: the gates of the tasks' lambdas, FOR KEY SHARE. The store consumer cannot delete an opened
-- gate (release_parked) until this transaction has committed the tasks that it parks.
create or replace function tuskline_core.apply_gates(p_ids bigint[], p_now timestamptz)
returns tuskline_core.verdicts language plpgsql as $$
declare
  v       tuskline_core.verdicts;
  v_first bigint := (select min(id) from unnest(p_ids) as id);
  v_last  bigint := (select max(id) from unnest(p_ids) as id);
begin
  v.go := p_ids;
  perform from tuskline.gate g
    where g.lambda in (select t.lambda from tuskline.task t
                        where t.id = any (p_ids) and t.id between v_first and v_last)
    order by g.gate_id for key share;
  if not found then return v; end if;
  with h as materialized (
    select t.id, g.gate_id, g.action, g.reason
      from tuskline.task t
           cross join lateral
             tuskline_core.gate_of(t.lambda, t.collection, t.priority, p_now) g
     where t.id = any (p_ids) and t.id between v_first and v_last -- prunes the partitions
       and not (g.action = 'pause' and g.collection is null)
     order by t.id
  ), p as (
    insert into tuskline.parked (gate_id, task_id, parked_at)
    select h.gate_id, h.id, p_now from h where h.action = 'pause'
    on conflict do nothing)
  select array_agg(h.id) filter (where h.action = 'pause'),
         array_agg(h.id) filter (where h.action <> 'pause'),
         array_agg(case h.action when 'drop' then 'dropped' else 'dead' end::tuskline.status)
           filter (where h.action <> 'pause'),
         array_agg(case h.action when 'divert' then 'diverted' end)
           filter (where h.action <> 'pause'),
         array_agg(case h.action when 'divert' then format('gate %s: %s', h.gate_id, h.reason) end)
           filter (where h.action <> 'pause')
    into v.stopped, v.doomed, v.outcome, v.error_class, v.message
    from h;
  v.go := array(
    select id from unnest(p_ids) as id
     where id <> all (coalesce(v.stopped, '{}')) and id <> all (coalesce(v.doomed, '{}'))
     order by id);
  return v;
end $$;
comment on function tuskline_core.apply_gates(bigint[], timestamptz) is
  'Applies gates to tasks that come due or are popped: they go, are parked, or end.';

create or replace function tuskline_core.gate_of(
  p_lambda text, p_collection text, p_priority tuskline.priority, p_now timestamptz)
returns setof tuskline.gate language sql stable as $$
  select g.* from tuskline.gate g
   where g.lambda = p_lambda and g.opened_at is null
     and (g.collection is null or g.collection = p_collection)
     and (g.priority is null or g.priority = p_priority)
     and (g.until is null or g.until > p_now)
   order by num_nonnulls(g.collection, g.priority) desc limit 1
$$;
comment on function tuskline_core.gate_of(text, text, tuskline.priority, timestamptz) is
  'The narrowest gate that applies to such a task, if any.';
