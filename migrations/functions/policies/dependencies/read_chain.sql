-- Reads the JSON of schedule_chain into rows, and refuses what is no chain.
--
-- Checks the chain only: fields, names and parents. place_chain checks each task as a task.
-- Returns the tasks in the order of the array, with the names of parents resolved to numbers.
create or replace function tuskline_core.read_chain(p_tasks json, p_now timestamptz)
returns tuskline_core.chained[] language plpgsql as $$
declare
  v_rows  integer := case when json_typeof(p_tasks) = 'array'
                          then json_array_length(p_tasks) end;
  v_tasks tuskline_core.chained[];
begin
  if coalesce(v_rows, 0) not between 1 and 10000 then
    raise exception using errcode = 'TK007', message = tuskline_core.message_of('TK007',
      format('invalid_batch: an array of 1 to 10000 tasks, got %s',
             coalesce(v_rows::text, json_typeof(p_tasks), 'null')));
  end if;
  if exists (select from json_array_elements(p_tasks) as e (value)
              where json_typeof(e.value) <> 'object') then
    raise exception using errcode = 'TK021', message = tuskline_core.message_of('TK021',
      'invalid_chain: every task must be an object');
  end if;
  perform tuskline_core.refuse('TK021',
            format('invalid_chain: unknown field %L (task %s)', left(f.name, 80), e.no),
            'there are name, lambda, payload, priority, collection, ordering_key, limit_key, '
            'fairness_key, traceparent, scheduled_at, delay_ms, on_parent_failure and after')
     from json_array_elements(p_tasks) with ordinality as e (value, no)
          cross join json_object_keys(e.value) as f (name)
    where f.name not in ('name', 'lambda', 'payload', 'priority', 'collection', 'ordering_key',
                         'limit_key', 'fairness_key', 'traceparent', 'scheduled_at', 'delay_ms',
                         'on_parent_failure', 'after')
    order by e.no;
  v_tasks := array(
    select (n.no, coalesce(n.name, n.lambda || '_' || n.no, ''), 0, null,
            coalesce(n.lambda, ''), n.payload,
            tuskline_core.priority_of(n.priority, n.no, v_rows), n.collection,
            n.ordering_key, n.limit_key, n.fairness_key, n.traceparent,
            tuskline_core.due_time(
              p_now, n.scheduled_at, n.delay_ms * interval '1 millisecond', n.no, v_rows),
            coalesce(n.on_parent_failure, 'cancel'), null, null, null)::tuskline_core.chained
      from rows from (json_to_recordset(p_tasks) as (
             name text, lambda text, payload json, priority text, collection text,
             ordering_key text, limit_key text, fairness_key text, traceparent text,
             scheduled_at timestamptz, delay_ms bigint, on_parent_failure text))
           with ordinality as n (
             name, lambda, payload, priority, collection,
             ordering_key, limit_key, fairness_key, traceparent,
             scheduled_at, delay_ms, on_parent_failure, no)
     order by n.no);
  perform tuskline_core.check_name(format('name of task %s', c.no), c.name)
     from unnest(v_tasks) as c
    where c.name !~ '^[a-z][a-z0-9_]{0,69}$' order by c.no;
  perform tuskline_core.refuse('TK021',
            format('invalid_chain: two tasks have the name %s', c.name))
     from unnest(v_tasks) as c
    group by c.name having count(*) > 1 order by c.name;
  perform tuskline_core.refuse('TK021',
            format('invalid_chain: on_parent_failure must be cancel, hold or run, got %L (task %s)',
                   left(c.on_parent_failure, 80), c.name))
     from unnest(v_tasks) as c
    where c.on_parent_failure not in ('cancel', 'hold', 'run') order by c.no;
  return tuskline_core.read_arrows(p_tasks, v_tasks);
end $$;
comment on function tuskline_core.read_chain(json, timestamptz) is
  'Reads the tasks of a chain from JSON. Refuses (TK007, TK021) what is no chain.';

-- Reads the parents of the tasks of a chain from the field after.
--
-- Planner: one query reads all parents, and its join hashes the names. A query for each task would
-- read every name each time. Existing tasks are read by id, in a scalar subquery: no plan hashes
-- the whole store for it.
create or replace function tuskline_core.read_arrows(
  p_tasks json, p_read tuskline_core.chained[])
returns tuskline_core.chained[] language plpgsql as $$
declare
  v_child  integer[]; -- these five: one element per child and parent
  v_parent integer[];
  v_id     bigint[];
  v_said   text[];
  v_on     text[];
begin
  perform tuskline_core.refuse('TK021',
            format('invalid_chain: after must be an array, got %s (task %s)',
                   left((e.value -> 'after')::text, 80), (p_read[e.no::integer]).name))
     from json_array_elements(p_tasks) with ordinality as e (value, no)
    where json_typeof(e.value -> 'after') not in ('array', 'null') order by e.no;
  select array_agg(a.child), array_agg(a.parent), array_agg(a.id),
         array_agg(a.said), array_agg(a.condition)
    into v_child, v_parent, v_id, v_said, v_on
    from (select distinct e.no as child, p.no as parent, r.id, r.said, r.condition
            from json_array_elements(p_tasks) with ordinality as e (value, no)
                 cross join lateral json_array_elements(
                   case when json_typeof(e.value -> 'after') = 'array' then e.value -> 'after'
                        else '[]' end) as w (value)
                 cross join lateral (
                   select case when json_typeof(w.value) = 'object' then w.value -> 'task'
                               else w.value end as task,
                          case when json_typeof(w.value) = 'object'
                               then coalesce(w.value ->> 'on', 'success')
                               else 'success' end as condition) o
                 cross join lateral (
                   select o.task #>> '{}' as said, o.condition,
                          case when json_typeof(o.task) = 'number'
                                and o.task #>> '{}' ~ '^[0-9]{1,18}$'
                               then (o.task #>> '{}')::bigint end as id) r
                 left join unnest(p_read) as p
                        on json_typeof(o.task) = 'string' and p.name = r.said
           order by e.no) a;
  perform tuskline_core.refuse('TK021',
            format('invalid_chain: on must be success, failure or always, got %L (task %s)',
                   left(a.condition, 80), (p_read[a.child]).name))
     from unnest(v_child, v_on) as a (child, condition)
    where a.condition not in ('success', 'failure', 'always') order by a.child;
  perform tuskline_core.refuse('TK021',
            format('invalid_chain: task %s waits for %L, which is neither a task of this call '
                   'nor the number of one',
                   (p_read[a.child]).name, left(a.said, 80)))
     from unnest(v_child, v_parent, v_id, v_said) as a (child, parent, id, said)
    where a.parent is null
      and (select true from tuskline_core.all_tasks t where t.id = a.id limit 1) is null
    order by a.child;
  perform tuskline_core.refuse('TK021',
            format('invalid_chain: task %s waits for %L on two conditions, %s and %s',
                   (p_read[a.child]).name, left(min(a.said), 80),
                   min(a.condition), max(a.condition)),
            'a parent is waited for once: on success, on failure (any other end), '
            'or on always (any end)')
     from unnest(v_child, v_parent, v_id, v_said, v_on) as a (child, parent, id, said, condition)
    group by a.child, a.parent, a.id having count(*) > 1 order by a.child;
  return array(
    select (c.no, c.name, c.depth, c.id, c.lambda, c.payload, c.priority, c.collection,
            c.ordering_key, c.limit_key, c.fairness_key, c.traceparent, c.due, c.on_parent_failure,
            coalesce(w.parents, '{}'), coalesce(w.parent_ids, '{}'),
            coalesce(w.conditions, '{}'))::tuskline_core.chained
      from unnest(p_read) as c
           left join (
             select a.child, array_agg(a.parent order by a.parent, a.id) as parents,
                    array_agg(a.id order by a.parent, a.id) as parent_ids,
                    array_agg(a.condition order by a.parent, a.id) as conditions
               from unnest(v_child, v_parent, v_id, v_on) as a (child, parent, id, condition)
              group by a.child) w on w.child = c.no
     order by c.no);
end $$;
comment on function tuskline_core.read_arrows(json, tuskline_core.chained[]) is
  'Adds the parents to the tasks of a chain: by number in the call, or by id.';
