-- Routes the tasks that a statement has inserted, in the same transaction:
--
--   valid, due and plain, of a direct lambda   into their queue
--   valid                                      a timer, or the wait list of a limit (accept_rest)
--   else                                       the statement is refused
--
-- It is the trigger of tuskline.task, once per statement, for INSERT, COPY and schedule alike. A
-- single row takes a shorter path with lookups and without a join: 43 µs of CPU with its insert,
-- against 68.
--
-- Until this life of the database has raised the ids, no row is plain: mistake_in_id refuses it.

create or replace function tuskline_core.is_plain(t tuskline.task, p_last bigint, p_now timestamptz)
returns boolean language sql stable as $$
  select t.status = 'enqueued' and (t.scheduled_at is null or t.scheduled_at <= p_now)
     and t.ordering_key is null and t.limit_key is null and t.unique_key is null
     and t.id > 0 and tuskline_core.is_current_id(t.id, p_last)
     and t.next_trigger_at between p_now - interval '1 day'
                               and p_now + tuskline_core.stalled_after()
$$;
comment on function tuskline_core.is_plain(tuskline.task, bigint, timestamptz) is
  'Whether a valid row may go straight into its queue. It is due, has no key of a policy, and has '
  'an id of the segment in use (p_last: the last id of its sequence).';

create or replace function tuskline_core.route() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now     timestamptz := tuskline.clock();
  v_last    bigint := case when tuskline_core.are_ids_raised()
                           then pg_sequence_last_value('tuskline.task_seq') end;
  v_rows    bigint := 0; v_row tuskline.task;
  v_queue   integer; v_direct boolean; v_largest integer;
  v_ids     bigint[]; v_queued bigint[] := '{}';
  v_queues  integer[]; v_rest   bigint[]; v_numbers bigint[];
  v_plans   text[]; v_wrong  record; v_said text[];
  v_roles   text[]; v_barred text[]; -- that may schedule (null: all); closed to the caller
begin
  for v_row in select * from new_rows loop
    v_rows := v_rows + 1;
    exit when v_rows = 2;
  end loop;
  if v_rows = 1 then
    select q.queue_id, q.direct, q.max_payload_bytes, q.schedulers
      into v_queue, v_direct, v_largest, v_roles
      from tuskline.queue q where q.lambda = v_row.lambda and q.priority = v_row.priority;
    if v_direct and (v_roles is null or tuskline_core.caller() = any (v_roles)
                     or tuskline_core.has_right(v_row.lambda, 'schedule'))
       and tuskline_core.is_plain(v_row, v_last, v_now)
       and tuskline_core.mistake_in(v_row, v_largest, v_now) is null then
      insert into tuskline.queued (queue_id, bytes, task_id)
      values (v_queue, coalesce(octet_length(v_row.payload::text), 0), v_row.id);
      if tuskline_core.is_watched(v_queue) then perform tuskline_core.notify_queue(v_queue); end if;
      return null;
    end if;
    v_rest := array[v_row.id]; v_numbers := '{1}';
  elsif v_rows > 1 then
    v_plans := tuskline_core.pin_plans('{off,off,off,off}');
    select count(*) into v_rows from new_rows;
    v_barred := case when tuskline_core.rights_in_use() then tuskline.barred('schedule') end;
    for v_queue, v_ids in
      with i as (
        insert into tuskline.queued (queue_id, bytes, task_id)
        select q.queue_id, coalesce(octet_length(t.payload::text), 0), t.id
          from new_rows t join tuskline.queue q on q.lambda = t.lambda and q.priority = t.priority
         where q.direct and (q.lambda = any (v_barred)) is not true
           and tuskline_core.is_plain(t, v_last, v_now)
           and tuskline_core.mistake_in(t, q.max_payload_bytes, v_now) is null
        returning queue_id, task_id)
      select i.queue_id, array_agg(i.task_id) from i group by i.queue_id
    loop
      v_queues := v_queues || v_queue;
      v_queued := v_queued || v_ids;
    end loop;
    -- The rest: rows that were not queued. The conditions must not be evaluated again. A gate that
    -- opens in between would leave a task with neither a queue row nor a timer.
    if cardinality(v_queued) < v_rows then
      select array_agg(r.id order by r.id), array_agg(r.number order by r.id) into v_rest, v_numbers
        from (select u.id, max(u.number) as number
                from (select t.id, row_number() over () as number from new_rows t
                      union all
                      select unnest(v_queued), null) u
               group by u.id having count(*) = 1) r;
    end if;
    perform tuskline_core.pin_plans(v_plans);
    perform tuskline_core.wake(v_queues);
  end if;
  if v_rest is not null then
    select a.* into v_wrong from tuskline_core.accept_rest(v_rest, v_numbers, v_now) a;
    if v_wrong.mistake is not null then
      v_said := tuskline_core.refusal_of(v_wrong.mistake, v_wrong.task,
        tuskline_core.row_of(v_wrong.number, v_rows), v_wrong.said);
      raise exception using errcode = v_said[1], message = v_said[2], hint = v_said[3];
    end if;
  end if;
  return null;
end $$;
comment on function tuskline_core.route() is
  'Trigger of tuskline.task: puts due tasks into their queues and the rest into timer or a wait '
  'list. Refuses mistakes.';

-- Pins nested-loop joins over the unique (lambda, priority) of queue, without JIT.
--
-- A plan from the time of an empty table must not be used later with 400 queues. Only the trigger
-- sees its new rows, so these cannot be settings of a function that it calls. As settings of the
-- trigger they would cost each single row 5 µs.
-- Returns the old values; the caller restores them.
create or replace function tuskline_core.pin_plans(p_values text[]) returns text[]
language plpgsql as $$
declare
  v_names  text[] := '{enable_hashjoin,enable_mergejoin,enable_seqscan,jit}';
  v_before text[];
begin
  for v_at in 1..cardinality(v_names) loop
    v_before[v_at] := current_setting(v_names[v_at]);
    perform set_config(v_names[v_at], p_values[v_at], true);
  end loop;
  return v_before;
end $$;
comment on function tuskline_core.pin_plans(text[]) is
  'Sets planner settings until the transaction ends or they are restored. Returns the old values.';
