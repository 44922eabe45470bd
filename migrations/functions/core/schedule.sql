-- Schedules one task, now or later, and returns its id.
--
-- The task is due at p_scheduled_at, or p_delay after the database's clock, or now. A time in the
-- past means now. If another task holds p_unique_key, nothing is inserted, and that task's id is
-- returned.
--
-- Guarantees: the task exists when the caller's transaction commits, and not before. It is then in
-- its queue if it is due now, and has a timer if it is due later.
--
-- The last statement is the plain way: an insert into tuskline.task. The trigger route does the
-- rest, as for any INSERT or COPY. The most frequent calls, a plain task that is due now or later,
-- insert into task_store and so past the trigger, at seven tenths and four tenths of the cost. In
-- such a call each statement and each column costs: an executor is set up for it.
create or replace function tuskline.schedule(
  p_lambda       text,
  p_payload      text        default null,
  p_priority     text        default 'normal',
  p_collection   text        default null,
  p_scheduled_at timestamptz default null,
  p_delay        interval    default null,
  p_ordering_key text        default null,
  p_limit_key    text        default null,
  p_fairness_key text        default null,
  p_unique_key   text        default null,
  p_traceparent  text        default null)
returns bigint language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_payload json := tuskline_core.json_of('payload', p_payload);
  v_now     timestamptz;
  v_due     timestamptz;
  v_id      bigint;
  v_queue   integer;
  v_keys    record;
  v_roles   text[]; -- that may schedule; null: every role
begin
  if num_nonnulls(p_ordering_key, p_limit_key, p_fairness_key) = 0 then
    -- Not found: the lambda is unknown, not direct, gated, limited or full, or an argument is
    -- wrong.
    select q.queue_id, q.schedulers into v_queue, v_roles from tuskline.queue q
     where q.lambda = p_lambda and q.priority::text = p_priority and q.direct
       and tuskline_core.are_valid(p_collection, p_traceparent, v_payload, q.max_payload_bytes);
    if v_roles is not null and tuskline_core.caller() <> all (v_roles) then
      perform tuskline_core.need(p_lambda, 'schedule');
    end if;
  end if;
  if v_queue is null or num_nonnulls(p_scheduled_at, p_delay, p_unique_key) > 0 then
    v_now := tuskline.clock();
    v_due := tuskline_core.due_time(v_now, p_scheduled_at, p_delay);
  end if;
  -- The ids of a new life are raised before its first one is drawn (raise_ids).
  v_id := case when tuskline_core.are_ids_raised() or tuskline_core.raise_ids()
               then case when v_due > v_now then nextval('tuskline.future_seq')
                         else nextval('tuskline.task_seq') end end;
  if p_unique_key is not null then
    v_keys := tuskline_core.accept_keys(array[v_id], array[p_lambda], array[p_unique_key],
                                   array[v_due], array[v_payload], v_now);
    if v_keys.mistake is not null then
      perform tuskline_core.refuse_task(v_keys.mistake, v_keys.task, '', v_keys.said);
    end if;
    if v_keys.holders[1] <> v_id then return v_keys.holders[1]; end if;
  end if;
  if v_queue is not null and v_due > v_now then
    insert into tuskline_core.task_store (id, lambda, priority, collection, payload, scheduled_at,
                                          status, next_trigger_at, unique_key, traceparent)
    values (v_id, p_lambda, p_priority::tuskline.priority, p_collection, v_payload, v_due,
            'new', v_due, p_unique_key, p_traceparent);
    perform tuskline_core.add_timers(array[v_id], array[v_due], 'due', v_now);
    return v_id;
  end if;
  if v_queue is not null and v_due is null then
    insert into tuskline_core.task_store (id, lambda, priority, collection, payload, unique_key,
                                          traceparent)
    values (v_id, p_lambda, p_priority::tuskline.priority, p_collection, v_payload, p_unique_key,
            p_traceparent);
    insert into tuskline.queued (queue_id, bytes, task_id)
    values (v_queue, coalesce(octet_length(v_payload::text), 0), v_id);
    if tuskline_core.is_watched(v_queue) then
      perform tuskline_core.notify_queue(v_queue);
    end if;
    return v_id;
  end if;
  -- The most frequent mistake. The trigger refuses it, too, but below the text of the insert.
  if not exists (select from tuskline.lambda l where l.name = p_lambda) then
    perform tuskline_core.refuse_lambda(coalesce(p_lambda, ''));
  end if;
  insert into tuskline.task (id, lambda, priority, collection, payload, scheduled_at,
                             status, next_trigger_at,
                             ordering_key, limit_key, fairness_key, unique_key, traceparent)
  values (v_id, coalesce(p_lambda, ''), tuskline_core.priority_of(p_priority), p_collection,
          v_payload, v_due,
          case when v_due > v_now then 'new' else 'enqueued' end::tuskline.status,
          case when v_due > v_now then v_due else v_now + tuskline_core.stalled_after() end,
          p_ordering_key, p_limit_key, p_fairness_key, p_unique_key, p_traceparent);
  return v_id;
end $$;
comment on function tuskline.schedule(
  text, text, text, text, timestamptz, interval, text, text, text, text, text) is
  'Schedules one task, now or later. Returns its id, or the id of the task that holds '
  'p_unique_key. The task exists once your transaction has committed.';
select tuskline_core.make_overloads();

create or replace function tuskline_core.due_time(
  p_now timestamptz, p_scheduled_at timestamptz, p_delay interval,
  p_row bigint default null, p_rows integer default null)
returns timestamptz language plpgsql immutable as $$
begin
  if p_scheduled_at is null and p_delay is null then return null; end if;
  if p_scheduled_at is not null and p_delay is not null then
    raise exception using errcode = 'TK005', message = tuskline_core.message_of('TK005',
      format('invalid_due: give a due time or a delay, not both, got %s and %s%s',
             p_scheduled_at, p_delay, tuskline_core.row_of(p_row, p_rows)));
  end if;
  if p_delay < '0' then
    raise exception using errcode = 'TK005', message = tuskline_core.message_of('TK005',
      format('invalid_due: delay must not be negative, got %s%s',
             p_delay, tuskline_core.row_of(p_row, p_rows)));
  end if;
  if not isfinite(p_scheduled_at) or p_scheduled_at > p_now + tuskline_core.max_delay()
     or p_delay > tuskline_core.max_delay() then
    raise exception using errcode = 'TK005', message = tuskline_core.message_of('TK005',
      format('invalid_due: due time must be finite and at most 10 years ahead, got %s%s',
             coalesce(p_scheduled_at::text, p_delay::text), tuskline_core.row_of(p_row, p_rows)));
  end if;
  return coalesce(p_scheduled_at, p_now + p_delay);
end $$;
comment on function tuskline_core.due_time(timestamptz, timestamptz, interval, bigint, integer) is
  'Due time from an instant or a delay. Refuses (TK005) both, a negative delay, and an instant or '
  'a delay that is not finite or over 10 years ahead.';

create or replace function tuskline_core.priority_of(
  p_label text, p_row bigint default null, p_rows integer default null)
returns tuskline.priority language plpgsql immutable as $$
begin
  if p_label in ('critical', 'high', 'normal', 'low') then
    return p_label::tuskline.priority;
  end if;
  if p_label is null then return 'normal'; end if;
  raise exception using errcode = 'TK006', message = tuskline_core.message_of('TK006',
    format('invalid_priority: must be critical, high, normal or low, got %L%s',
           left(p_label, 80), tuskline_core.row_of(p_row, p_rows)));
end $$;
comment on function tuskline_core.priority_of(text, bigint, integer) is
  'Priority by its label, normal for null. Refuses (TK006) any other label.';

create or replace function tuskline_core.row_of(p_row bigint, p_rows bigint) returns text
language sql immutable as $$
  select case when p_rows > 1 then format(' (row %s of %s)', p_row, p_rows) else '' end
$$;
comment on function tuskline_core.row_of(bigint, bigint) is
  'Names the row of a batch in a refusal. Empty for a single row.';
