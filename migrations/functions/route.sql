-- route: puts what was just inserted into tuskline.task where it belongs, in the same transaction:
-- due now -> its queue; the rest (due later, or a lambda that is not direct) -> a timer; a mistake
-- -> refusal of the whole statement. Runs once per statement for INSERT, COPY and schedule alike.
-- One row alone takes the short way, by look-ups in place of a join: 43 µs of CPU with its insert, against 68.
create or replace function tuskline.is_well_formed(p_collection text, p_payload json, p_max_payload_bytes integer)
returns boolean language sql stable as $$
  select (p_collection is null or p_collection ~ '^[a-z][a-z0-9_]{0,62}$')
     and (p_payload is null or octet_length(p_payload::text) <= p_max_payload_bytes and strpos(p_payload::text, chr(92) || 'u0000') = 0)
$$;
comment on function tuskline.is_well_formed(text, json, integer) is 'True for a collection and a payload that need no second look.';

create or replace function tuskline.is_direct(
  p_status tuskline.status, p_fence bigint, p_attempt smallint, p_crashes smallint, p_flags smallint, p_started_at timestamptz,
  p_finished_at timestamptz, p_scheduled_at timestamptz, p_now timestamptz, p_collection text, p_payload json, p_max_payload_bytes integer,
  p_ordering_key text, p_limit_key text, p_fairness_key text, p_unique_key text)
returns boolean language sql stable as $$
  select p_status = 'enqueued' and p_fence = 0 and p_attempt = 0 and p_crashes = 0 and p_flags = 0
     and p_started_at is null and p_finished_at is null
     and (p_scheduled_at is null or p_scheduled_at <= p_now and p_scheduled_at > '-infinity')
     and p_ordering_key is null and p_limit_key is null and p_unique_key is null and (p_fairness_key is null or octet_length(p_fairness_key) between 1 and 256)
     and tuskline.is_well_formed(p_collection, p_payload, p_max_payload_bytes)
$$;
comment on function tuskline.is_direct(tuskline.status, bigint, smallint, smallint, smallint, timestamptz, timestamptz, timestamptz, timestamptz, text, json, integer, text, text, text, text) is
  'True for a row that may go straight into its queue: due, unclaimed and well-formed.';

-- is_fresh: what the column defaults give. An ORM that names every column may send the same values; others
-- are looked at by refuse_row. Only the segment in use is known to be open without a look.
create or replace function tuskline.is_fresh(
  p_id bigint, p_last bigint, p_created_at timestamptz, p_next_trigger_at timestamptz,
  p_now timestamptz)
returns boolean language sql stable as $$
  select p_id > 0 and p_id <= p_last and p_id >> 24 = p_last >> 24
     and p_created_at between p_now - interval '1 day' and p_now
     and p_next_trigger_at between p_now - interval '1 day' and p_now + interval '10 minutes'
$$;
comment on function tuskline.is_fresh(bigint, bigint, timestamptz, timestamptz, timestamptz) is
  'True for an id of the segment in use that was issued (p_last: the last one), and for times that need no second look.';

create or replace function tuskline.route() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now     timestamptz := tuskline.clock();
  v_last    bigint := pg_sequence_last_value('tuskline.task_seq');
  v_rows    bigint := 0;
  v_row     tuskline.task;
  v_queue   integer;
  v_direct  boolean;
  v_largest integer;
  v_ids     bigint[];
  v_queued  bigint[] := '{}';
  v_queues  integer[];
  v_rest    bigint[];
  v_numbers bigint[];
  v_plans   text[];
begin
  for v_row in select * from new_rows loop
    v_rows := v_rows + 1;
    exit when v_rows = 2;
  end loop;
  if v_rows = 1 then
    select q.queue_id, q.direct, q.max_payload_bytes into v_queue, v_direct, v_largest
      from tuskline.queue q where q.lambda = v_row.lambda and q.priority = v_row.priority;
    if v_direct and tuskline.is_fresh(v_row.id, v_last, v_row.created_at, v_row.next_trigger_at, v_now)
       and tuskline.is_direct(v_row.status, v_row.fence, v_row.attempt, v_row.crashes, v_row.flags, v_row.started_at, v_row.finished_at,
                                       v_row.scheduled_at, v_now, v_row.collection, v_row.payload, v_largest, v_row.ordering_key, v_row.limit_key, v_row.fairness_key, v_row.unique_key) then
      insert into tuskline.queued (queue_id, bytes, task_id)
      values (v_queue, coalesce(octet_length(v_row.payload::text), 0), v_row.id);
      if tuskline.is_watched(v_queue) then
        perform tuskline.notify_queue(v_queue);
      end if;
      return null;
    end if;
    v_rest := array[v_row.id];
    v_numbers := '{1}';
  elsif v_rows > 1 then
    v_plans := tuskline.pin_plans('{off,off,off,off}');
    select count(*) into v_rows from new_rows;
    for v_queue, v_ids in
      with i as (
        insert into tuskline.queued (queue_id, bytes, task_id)
        select q.queue_id, coalesce(octet_length(t.payload::text), 0), t.id
          from new_rows t join tuskline.queue q on q.lambda = t.lambda and q.priority = t.priority
         where q.direct and tuskline.is_fresh(t.id, v_last, t.created_at, t.next_trigger_at, v_now)
           and tuskline.is_direct(t.status, t.fence, t.attempt, t.crashes, t.flags, t.started_at, t.finished_at, t.scheduled_at, v_now,
                                               t.collection, t.payload, q.max_payload_bytes, t.ordering_key, t.limit_key, t.fairness_key, t.unique_key)
        returning queue_id, task_id)
      select i.queue_id, array_agg(i.task_id) from i group by i.queue_id
    loop
      v_queues := v_queues || v_queue;
      v_queued := v_queued || v_ids;
    end loop;
    -- The rest is whoever was not queued. To ask again who might be would answer from a later moment: a gate
    -- opened in between would leave a row with neither a place in a queue nor a timer.
    if cardinality(v_queued) < v_rows then
      select array_agg(r.id order by r.id), array_agg(r.number order by r.id) into v_rest, v_numbers
        from (select u.id, max(u.number) as number
                from (select t.id, row_number() over () as number from new_rows t union all select unnest(v_queued), null) u
               group by u.id having count(*) = 1) r;
    end if;
    perform tuskline.pin_plans(v_plans);
    perform tuskline.wake(v_queues);
  end if;
  if v_rest is not null then
    perform tuskline.route_rest(v_now, v_rest, v_numbers, v_rows);
  end if;
  return null;
end $$;
comment on function tuskline.route() is 'Trigger of tuskline.task: due rows into their queue, later ones into timer, mistakes refused.';

-- pin_plans: joins by nested loop over queue's unique (lambda, priority): a plan made when the table was
-- empty must not survive into a day with 400 queues. And no JIT. A trigger alone sees its new rows, so
-- these cannot be settings of a function it calls; as its own they would cost each single row 5 µs.
-- Returns what was set before, to be set again.
create or replace function tuskline.pin_plans(p_values text[]) returns text[]
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
comment on function tuskline.pin_plans(text[]) is 'Sets what decides a plan, until set back or the transaction ends; returns what was set.';
