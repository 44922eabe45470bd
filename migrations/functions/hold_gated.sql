-- hold_gated: asks the gates about tasks that are about to enter a queue, or to leave one for a worker,
-- and does what they say. Returns those that no gate holds, in id order. The caller has locked the rows.
-- pause, slow -> new, parked until the gate opens or lets one pass. drop -> dropped. divert -> dead.
-- The share lock keeps the row of a gate that is just being opened until what we park behind it is seen.
-- A task that keeps an order keeps its place in that: its successors wait for it, as for one that runs.
create or replace function tuskline.hold_gated(
  p_ids bigint[], p_now timestamptz, p_from tuskline.status[] default '{new,retriable_failure}') returns bigint[]
language plpgsql as $$
declare
  v_first bigint := (select min(id) from unnest(p_ids) as id);
  v_last  bigint := (select max(id) from unnest(p_ids) as id);
  v_held  bigint[];
  v_dead  bigint[];
begin
  perform from tuskline.gate g
    where g.lambda in (select t.lambda from tuskline.task t where t.id = any (p_ids) and t.id between v_first and v_last)
    order by g.gate_id for key share;
  if not found then return p_ids; end if;
  with h as materialized (
    select t.id, t.status, t.attempt, t.lambda, g.gate_id, g.action, g.reason
      from tuskline.task t cross join lateral tuskline.gate_of(t.lambda, t.collection, t.priority, p_now) g
     where t.id = any (p_ids) and t.id between v_first and v_last and t.status = any (p_from)
       and not exists (select from tuskline.gate_pass s where s.task_id = t.id and s.gate_id = g.gate_id)
     order by t.id
  ), u as (
    update tuskline.task t
       set status = case when h.action = 'drop' then 'dropped' when h.action = 'divert' then 'dead'
                         when h.status = 'enqueued' then 'new' else h.status end::tuskline.status,
           finished_at = case when h.action in ('drop', 'divert') then p_now end,
           next_trigger_at = case when h.action in ('pause', 'slow') then p_now + interval '10 minutes' end
      from h where t.id = h.id returning t.id, t.status
  ), p as (
    insert into tuskline.parked (gate_id, task_id, parked_at)
    select h.gate_id, h.id, p_now from h where h.action in ('pause', 'slow') on conflict do nothing
  ), f as (
    insert into tuskline.task_failure (task_id, fence, attempt, executor_id, error_class, message, fingerprint, failed_at)
    select h.id, nextval('tuskline.fence_seq'), h.attempt, 0, 'diverted', format('gate %s: %s', h.gate_id, h.reason), tuskline.fingerprint('diverted', h.lambda), p_now
      from h where h.action = 'divert')
  select array_agg(u.id), array_agg(u.id) filter (where u.status = 'dead') into v_held, v_dead from u;
  if v_held is null then return p_ids; end if;
  if v_dead is not null then perform tuskline.bury(v_dead); end if;
  if exists (select from tuskline.guarded) then
    perform tuskline.quit_lines(v_held, p_now, 100);
    perform tuskline.leave(v_held, p_now);
  end if;
  if exists (select from tuskline.in_use) then perform tuskline.follow(v_held, p_now, false); end if;
  return array(select i.id from unnest(p_ids) as i (id) where i.id <> all (v_held) order by i.id);
end $$;
comment on function tuskline.hold_gated(bigint[], timestamptz, tuskline.status[]) is 'Parks, drops or diverts tasks of these statuses that a gate holds; returns the others.';

create or replace function tuskline.gate_of(
  p_lambda text, p_collection text, p_priority tuskline.priority, p_now timestamptz) returns setof tuskline.gate
language sql stable as $$
  select g.* from tuskline.gate g
   where g.lambda = p_lambda and g.opened_at is null and (g.collection is null or g.collection = p_collection)
     and (g.priority is null or g.priority = p_priority) and (g.until is null or g.until > p_now)
   order by num_nonnulls(g.collection, g.priority) desc limit 1
$$;
comment on function tuskline.gate_of(text, text, tuskline.priority, timestamptz) is 'The narrowest gate that a task would meet, if any.';
