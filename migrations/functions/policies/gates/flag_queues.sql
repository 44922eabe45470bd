-- Computes and records the flags of queues, which follow from the gates and limits of a lambda:
--
--   queue.has_policies      tasks that come due in this queue pass its gates and limits
--   queue.direct            scheduled tasks go straight into the queue
--   flagged_queue.paused    the whole queue is paused: claims skip it, nothing is parked
--   flagged_queue.unsorted  the queue holds rows that passed no policy: claims apply gates and
--                           limits until a store consumer has sorted the queue (sort_queue)

-- Computes the flags that a lambda's queues must have, by its gates and limits.
--
-- paused is the time for which the whole queue is paused:
--
--   gate on the priority     gate on the lambda    paused
--   pause                    pause                 until the later of both ends
--   pause                    another or none       until the priority's gate ends
--   none                     pause                 until the lambda's gate ends
--   another, ends earlier    pause                 from then until the lambda's gate ends
--   other cases                                    never
create or replace function tuskline_core.wanted_flags(p_lambda text)
returns table (queue_id integer, priority tuskline.priority, gated boolean, has_policies boolean,
               counted boolean, paused tstzrange)
language sql stable as $$
  select q.queue_id, q.priority, g.gated, g.gated or r.ruled, r.counted,
         case when n.action = 'pause' and w.action = 'pause'
                then tstzrange(null, case when num_nulls(n.until, w.until) = 0
                                          then greatest(n.until, w.until) end)
              when n.action = 'pause' then tstzrange(null, n.until)
              when w.action = 'pause' and n.gate_id is null then tstzrange(null, w.until)
              when w.action = 'pause' and n.until < coalesce(w.until, 'infinity')
                then tstzrange(n.until, w.until) end
    from tuskline.queue q
         left join tuskline.gate n on n.lambda = q.lambda and n.priority = q.priority
           and n.collection is null and n.opened_at is null
         left join tuskline.gate w on w.lambda = q.lambda and w.priority is null
           and w.collection is null and w.opened_at is null
         cross join lateral (
           select exists (
             select from tuskline.gate g
              where g.lambda = p_lambda and g.opened_at is null
                and (g.priority is null or g.priority = q.priority)
                and not (g.action = 'pause' and g.collection is null)) as gated) g
         cross join lateral (
           select count(*) > 0 as ruled, coalesce(bool_or(not r.by_key), false) as counted
             from tuskline.task_limit r
            where r.lambda = p_lambda and r.dropped_at is null
              and (r.priority is null or r.priority = q.priority)) r
   where q.lambda = p_lambda
$$;
comment on function tuskline_core.wanted_flags(text) is
  'Flags that a lambda''s queues must have, by its gates and limits.';

-- Updates the flags of a lambda's queues to its settings, gates and limits.
--
-- Tasks of a lambda with gates or limits go through the store consumer, which applies these. Limits
-- by key require that only of tasks with a key, which never go straight into a queue.
-- p_sorts: the priorities for which a gate or limit is new.
-- Locks: the lambda, then its queues in the order of their ids.
create or replace function tuskline_core.update_policy_flags(
  p_lambda text, p_sorts tuskline.priority[] default '{}')
returns void language plpgsql as $$
begin
  -- Lock first: later statements see the gates and limits that other transactions have set.
  perform from tuskline.lambda l where l.name = p_lambda for update;
  with c as (
    select w.queue_id, w.has_policies,
           l.direct and not (w.gated or w.counted or q.is_full) as direct
      from tuskline_core.wanted_flags(p_lambda) w
           join tuskline.queue q on q.queue_id = w.queue_id
           join tuskline.lambda l on l.name = q.lambda
     order by q.queue_id for no key update of q)
  update tuskline.queue q set has_policies = c.has_policies, direct = c.direct
    from c where q.queue_id = c.queue_id
     and (q.has_policies, q.direct) is distinct from (c.has_policies, c.direct);
  if not exists (select from tuskline.queue q where q.lambda = p_lambda and q.has_policies) then
    delete from tuskline_core.policy_flag where lambda = p_lambda;
  elsif not exists (select from tuskline_core.policy_flag where lambda = p_lambda) then
    insert into tuskline_core.policy_flag values (p_lambda);
  end if;
  perform tuskline_core.flag_queues(p_lambda, p_sorts);
end $$;
comment on function tuskline_core.update_policy_flags(text, tuskline.priority[]) is
  'Updates the flags of a lambda''s queues to its settings, gates and limits.';

-- Records which queues of a lambda are paused or must be sorted. Wakes the workers of queues whose
-- pause has ended.
--
-- A queue must be sorted when a gate or limit is new, and when its pause begins, changes or ends:
-- tasks enter a paused queue without permits. The caller has locked the lambda.
create or replace function tuskline_core.flag_queues(p_lambda text, p_sorts tuskline.priority[])
returns void language plpgsql as $$
declare
  c        record;
  f        tuskline_core.flagged_queue;
  v_sorts  boolean;
  v_opened integer[] := '{}';
begin
  for c in select * from tuskline_core.wanted_flags(p_lambda) w order by w.queue_id loop
    select * into f from tuskline_core.flagged_queue s where s.queue_id = c.queue_id for update;
    v_sorts := c.has_policies
      and (c.priority = any (p_sorts) or c.paused is distinct from f.paused);
    continue when c.paused is not distinct from f.paused and not v_sorts;
    delete from tuskline_core.flagged_queue s where s.queue_id = c.queue_id;
    v_sorts := v_sorts or f.unsorted is true;
    if c.paused is not null or v_sorts then
      insert into tuskline_core.flagged_queue (queue_id, paused, unsorted)
      values (c.queue_id, c.paused, v_sorts);
    end if;
    if c.paused is null and f.paused is not null then v_opened := v_opened || c.queue_id; end if;
  end loop;
  perform tuskline_core.wake(v_opened);
end $$;
comment on function tuskline_core.flag_queues(text, tuskline.priority[]) is
  'Records which queues of a lambda are paused or must be sorted. Wakes workers when a pause ends.';

create or replace function tuskline_core.paused_queues(p_now timestamptz)
returns table (queue_id integer, lambda text, priority tuskline.priority)
language sql stable as $$
  select q.queue_id, q.lambda, q.priority
    from tuskline_core.flagged_queue f join tuskline.queue q on q.queue_id = f.queue_id
   where f.paused @> p_now
$$;
comment on function tuskline_core.paused_queues(timestamptz) is
  'Returns the queues that are paused.';

create or replace function tuskline_core.in_paused_queues(p_ids bigint[], p_now timestamptz)
returns bigint[] language plpgsql as $$
declare
  v_first bigint;
  v_last  bigint;
begin
  if not exists (select from tuskline_core.flagged_queue) then return '{}'; end if;
  select min(id), max(id) into v_first, v_last from unnest(p_ids) as id;
  return array(
    select t.id from tuskline.task t
           join tuskline_core.paused_queues(p_now) q
             on q.lambda = t.lambda and q.priority = t.priority
     where t.id = any (p_ids) and t.id between v_first and v_last order by t.id);
end $$;
comment on function tuskline_core.in_paused_queues(bigint[], timestamptz) is
  'Returns the tasks whose queue is paused, in id order.';
