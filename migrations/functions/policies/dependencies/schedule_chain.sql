-- Schedules tasks that wait for each other, or for existing tasks, in one call and one transaction.
--
-- p_tasks is a JSON array of objects. Each has a lambda and, as needed, name, payload, priority,
-- collection, ordering_key, limit_key, fairness_key, traceparent, scheduled_at, delay_ms,
-- on_parent_failure (cancel, hold or run) and after. The field after is an array of names, of ids,
-- or of {"task": name or id, "on": "success", "failure" or "always"}.
--
-- Tasks without parents are inserted like any other task. Tasks with parents get the status new,
-- and the ends of their parents enqueue them. A task that waits for an existing task gets a timer
-- as well: that task may have ended already.
--
-- Returns the number of the chain and the ids in the order of p_tasks.
--
-- Guarantees: a child has a higher id than its parents in the call, so a chain is locked in the
-- order in which it runs.
create or replace function tuskline.schedule_chain(
  p_tasks text, out chain_id bigint, out ids bigint[])
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now   timestamptz := tuskline.clock();
  v_tasks tuskline_core.chained[] :=
    tuskline_core.read_chain(tuskline_core.json_of('tasks', p_tasks), v_now);
  v_edges tuskline.dependency[];
  v_old   bigint[]; -- parents that existed before the call
begin
  v_tasks := tuskline_core.place_chain(v_tasks, v_now);
  select array_agg(c.id order by c.no) into ids from unnest(v_tasks) as c;
  v_edges := array(
    select (c.id, coalesce(p.id, e.parent_id), e.condition,
            case when e.parent_id is not null then ( -- limit 1: exists may read the whole store
              select t.status from tuskline_core.all_tasks t
               where t.id = e.parent_id and t.status = 'success' limit 1) end)::tuskline.dependency
      from unnest(v_tasks) as c
           cross join unnest(c.parents, c.parent_ids, c.conditions)
                   as e (parent, parent_id, condition)
           left join unnest(v_tasks) as p on p.no = e.parent
     order by c.id, coalesce(p.id, e.parent_id));
  v_old := array(
    select distinct e.parent_id
      from unnest(v_tasks) as c
           cross join unnest(c.parent_ids) as e (parent_id)
     where e.parent_id is not null order by 1);
  -- The child reads the results of its parents.
  perform tuskline_core.need_on_task(o.id, 'inspect') from unnest(v_old) as o (id);
  chain_id := coalesce(
    (select min(coalesce(s.chain_id, o.id))
       from unnest(v_old) as o (id)
            left join tuskline.chain_task s on s.task_id = o.id),
    ids[1]);
  insert into tuskline_core.followed_lambda (lambda)
  select distinct u.lambda
    from (select c.lambda from unnest(v_tasks) as c
          union all
          select t.lambda
            from unnest(v_old) as o (id)
                 cross join lateral (select s.lambda from tuskline_core.all_tasks s
                                      where s.id = o.id offset 0) t) u
   where not exists (select from tuskline_core.followed_lambda f where f.lambda = u.lambda)
   order by 1
  on conflict do nothing;
  insert into tuskline.chain_task (task_id, chain_id, name, depth, on_parent_failure)
  select o.id, schedule_chain.chain_id, 'task_' || o.id, 0, 'cancel' from unnest(v_old) as o (id)
  on conflict do nothing;
  insert into tuskline.chain_task (task_id, chain_id, name, depth, on_parent_failure, waits_for)
  select c.id, schedule_chain.chain_id, c.name, c.depth, c.on_parent_failure, w.waits_for
    from unnest(v_tasks) as c
         left join (select e.task_id, max(e.parent_id) as waits_for
                      from unnest(v_edges) as e group by e.task_id) w on w.task_id = c.id
   order by c.id;
  insert into tuskline.dependency select e.* from unnest(v_edges) as e;
  -- A success is final. It is noted now: the retention of the parent may end before the child
  -- checks.
  if v_old <> '{}' then
    insert into tuskline.unmet_dependency (task_id, parent_id)
    select e.task_id, e.parent_id from unnest(v_edges) as e
     where e.outcome = 'success' and e.condition = 'failure';
  end if;
  perform tuskline_core.add_timers(array(
      select distinct e.task_id from unnest(v_edges) as e where e.parent_id = any (v_old)),
    array[v_now], 'parents', v_now);
end $$;
comment on function tuskline.schedule_chain(text) is
  'Schedules tasks that wait for each other or for existing tasks, all or none. '
  'Returns the number of the chain and the ids in the order given.';
select tuskline_core.make_overloads();

-- Assigns depths and ids to the tasks of a chain, and inserts them.
--
-- The first task with a mistake is refused, as by schedule. A task with parents is inserted into
-- task_store, past the trigger: the trigger would put it into its queue.
-- Returns the tasks in id order.
create or replace function tuskline_core.place_chain(
  p_tasks tuskline_core.chained[], p_now timestamptz)
returns tuskline_core.chained[] language plpgsql as $$
declare
  v_depths integer[] := tuskline_core.depths_of(p_tasks);
  v_ids    bigint[];
  v_wrong  record;
  v_said   text[];
  v_barred text[] := tuskline.barred('schedule');
begin
  p_tasks := array(
    select (c.no, c.name, v_depths[c.no], null, c.lambda, c.payload, c.priority, c.collection,
            c.ordering_key, c.limit_key, c.fairness_key, c.traceparent, c.due, c.on_parent_failure,
            c.parents, c.parent_ids, c.conditions)::tuskline_core.chained
      from unnest(p_tasks) as c order by v_depths[c.no], c.no);
  perform tuskline_core.raise_ids() where not tuskline_core.are_ids_raised();
  v_ids := array(
    select case when c.conditions = '{}' and coalesce(c.due <= p_now, true)
                then nextval('tuskline.task_seq')
                else nextval('tuskline.future_seq') end
      from unnest(p_tasks) with ordinality as c order by c.ordinality);
  for v_at in 1..cardinality(p_tasks) loop
    p_tasks[v_at].id := v_ids[v_at];
  end loop;
  select m.*, format(' (task %s, %s of %s)', m.name, m.no, cardinality(p_tasks)) as place
    into v_wrong
    from (select r.*, coalesce(case when r.lambda = any (v_barred) then 'no_right' end,
                               tuskline_core.mistake_in(r.task, q.max_payload_bytes, p_now),
                               tuskline_core.before_accept(r.task, q.is_full)) as mistake
            from (select (c.id, 0, p_now, coalesce(c.due, p_now), coalesce(c.due, p_now),
                          null, null, 'new', c.priority, 0, 0, 0, c.lambda, c.collection,
                          c.payload, c.ordering_key, c.limit_key, c.fairness_key, null,
                          c.traceparent
                         )::tuskline.task as task,
                         c.lambda, c.priority, c.name, c.no
                    from unnest(p_tasks) as c) r
                 left join tuskline.queue q on q.lambda = r.lambda and q.priority = r.priority) m
   where m.mistake is not null order by m.no limit 1;
  if found then
    v_said := tuskline_core.refusal_of(v_wrong.mistake, v_wrong.task, v_wrong.place);
    raise exception using errcode = v_said[1], message = v_said[2], hint = v_said[3];
  end if;
  insert into tuskline.task (id, lambda, priority, collection, payload, scheduled_at,
                             status, next_trigger_at, ordering_key, limit_key, fairness_key,
                             traceparent)
  select c.id, c.lambda, c.priority, c.collection, c.payload, c.due,
         case when n.is_due then 'enqueued' else 'new' end::tuskline.status,
         case when n.is_due then p_now + tuskline_core.stalled_after() else c.due end,
         c.ordering_key, c.limit_key, c.fairness_key, c.traceparent
    from unnest(p_tasks) as c
         cross join lateral (select coalesce(c.due <= p_now, true) as is_due) n
   where c.conditions = '{}' order by c.id;
  insert into tuskline_core.task_store (id, lambda, priority, collection, payload, scheduled_at,
                                        status, next_trigger_at, flags,
                                        ordering_key, limit_key, fairness_key, traceparent)
  select c.id, c.lambda, c.priority, c.collection, c.payload, c.due,
         'new', p_now + tuskline_core.stalled_after(), 4, -- 4: it waits for parents
         c.ordering_key, c.limit_key, c.fairness_key, c.traceparent
    from unnest(p_tasks) as c
   where c.conditions <> '{}' order by c.id;
  return p_tasks;
end $$;
comment on function tuskline_core.place_chain(tuskline_core.chained[], timestamptz) is
  'Inserts the tasks of a chain. Returns them with their ids and depths, in id order.';

-- Counts the tasks before each task of a chain on the longest path to it, and bounds the count.
--
-- An existing parent has its depth on record. If a depth exceeds 1000, the count repeats with only
-- the existing parents that still wait. So a schedule that queues its ticks may run for ever.
create or replace function tuskline_core.depths_of(p_tasks tuskline_core.chained[])
returns integer[] language plpgsql as $$
declare
  v_depths integer[] := tuskline_core.count_depths(p_tasks, false);
begin
  if (select max(d) from unnest(v_depths) as d) > 1000 then
    v_depths := tuskline_core.count_depths(p_tasks, true);
  end if;
  if (select max(d) from unnest(v_depths) as d) > 1000 then
    raise exception using errcode = 'TK021', message = tuskline_core.message_of('TK021',
      format('invalid_chain: at most 1000 tasks one after the other, got %s',
             (select max(d) from unnest(v_depths) as d)));
  end if;
  return v_depths;
end $$;
comment on function tuskline_core.depths_of(tuskline_core.chained[]) is
  'Counts the tasks before each task of a chain. Refuses (TK021) cycles and more than 1000.';

-- Counts the tasks before each task of a chain, by a topological sort.
--
-- Each step removes one task that waits for no task that is left. Tasks that are left at the end
-- form a cycle, and are refused.
-- p_waiting: of the existing parents, count only the tasks that still wait.
create or replace function tuskline_core.count_depths(
  p_tasks tuskline_core.chained[], p_waiting boolean)
returns integer[] language plpgsql as $$
declare
  v_depths  integer[]; -- by number in the call; starts from the existing parents
  v_left    integer[]; -- by number in the call: its parents in the call that are not removed
  v_ready   integer[]; -- tasks whose parents in the call are all removed
  v_parents integer[]; -- parents of the arrows in the call, sorted
  v_child   integer[]; -- children of the same arrows
  v_no      integer;
  v_at      integer := 1;
begin
  select array_agg(coalesce(o.depth, 0) order by c.no),
         array_agg(cardinality(array_remove(c.parents, null)) order by c.no),
         array_agg(c.no) filter (where array_remove(c.parents, null) = '{}')
    into v_depths, v_left, v_ready
    from unnest(p_tasks) as c
         left join lateral (
           select max(coalesce(case when p_waiting then tuskline_core.waiting_before(e.id)
                                    else s.depth end, 0)) + 1 as depth
             from unnest(c.parent_ids) as e (id)
                  left join tuskline.chain_task s on s.task_id = e.id
            where e.id is not null) o on true;
  select array_agg(e.parent order by e.parent), array_agg(c.no order by e.parent)
    into v_parents, v_child
    from unnest(p_tasks) as c
         cross join unnest(c.parents) as e (parent)
   where e.parent is not null;
  while v_at <= cardinality(v_ready) and v_child is not null loop
    for v_edge in width_bucket(v_ready[v_at] - 1, v_parents) + 1
               .. width_bucket(v_ready[v_at], v_parents) loop
      v_no := v_child[v_edge];
      v_depths[v_no] := greatest(v_depths[v_no], v_depths[v_ready[v_at]] + 1);
      v_left[v_no] := v_left[v_no] - 1;
      if v_left[v_no] = 0 then v_ready := v_ready || v_no; end if;
    end loop;
    v_at := v_at + 1;
  end loop;
  if coalesce(cardinality(v_ready), 0) < cardinality(p_tasks) then
    raise exception using errcode = 'TK021', message = tuskline_core.message_of('TK021',
      'invalid_chain: tasks wait for each other: ' || tuskline_core.circle_of(p_tasks, v_left));
  end if;
  return v_depths;
end $$;
comment on function tuskline_core.count_depths(tuskline_core.chained[], boolean) is
  'Counts the tasks before each task of a chain. Refuses (TK021) cycles.';

create or replace function tuskline_core.waiting_before(p_task bigint) returns integer
language sql stable as $$
  with recursive w as (
    select c.waits_for, 1 as tasks from tuskline.chain_task c
     where c.task_id = p_task and c.waits_for is not null
    union all
    select c.waits_for, w.tasks + 1
      from w join tuskline.chain_task c on c.task_id = w.waits_for
     where c.waits_for is not null and w.tasks <= 1000)
  select coalesce(max(w.tasks), 0) from w
$$;
comment on function tuskline_core.waiting_before(bigint) is
  'Counts the tasks that must end, one after the other, before this one begins. '
  '0: it waits for no task.';

-- Names the tasks of a cycle: follows parents that are left until a task repeats.
create or replace function tuskline_core.circle_of(
  p_tasks tuskline_core.chained[], p_left integer[])
returns text language plpgsql immutable as $$
declare
  v_way integer[] := '{}';
  v_no  integer := (select min(u.no) from unnest(p_left) with ordinality as u (left_over, no)
                     where u.left_over > 0);
begin
  while v_no <> all (v_way) loop
    v_way := v_way || v_no;
    v_no := (select min(e.parent)
               from unnest(p_tasks) as c
                    cross join unnest(c.parents) as e (parent)
              where c.no = v_no and p_left[e.parent] > 0);
  end loop;
  v_way := v_way[array_position(v_way, v_no):] || v_no;
  return (
    select string_agg(c.name, ' after ' order by u.place)
      from unnest(v_way) with ordinality as u (no, place)
           join unnest(p_tasks) as c on c.no = u.no);
end $$;
comment on function tuskline_core.circle_of(tuskline_core.chained[], integer[]) is
  'Names the tasks of a cycle for an error message.';
