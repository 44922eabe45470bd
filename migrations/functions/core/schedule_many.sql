-- Schedules up to 10,000 tasks in one call and one transaction.
--
-- The arrays are parallel. A null array means the default for every row. One bad row refuses the
-- whole batch; the error names its number.
-- Returns the ids in the order given. For a unique key that is held, the id of its holder.
--
-- The last statement is the plain way, as in schedule. A batch of valid tasks without keys, all of
-- direct lambdas, goes past the trigger (insert_plain), at half of the cost. So rights are checked
-- here as well: v_asked has the closed lambdas to which the caller has no right by its own name.
-- Planner: the settings make it look up the queue of each row, in the order of the rows, also with
-- a plan from the time of four queues.
create or replace function tuskline.schedule_many(
  p_lambdas       text[],
  p_payloads      json[]        default null,
  p_priorities    text[]        default null,
  p_collections   text[]        default null,
  p_scheduled_at  timestamptz[] default null,
  p_delays        interval[]    default null,
  p_ordering_keys text[]        default null,
  p_limit_keys    text[]        default null,
  p_fairness_keys text[]        default null,
  p_unique_keys   text[]        default null,
  p_traceparents  text[]        default null)
returns bigint[] language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off as $$
declare
  v_now    timestamptz := tuskline.clock();
  v_rows   integer := coalesce(cardinality(p_lambdas), 0);
  v_ids    bigint[]; v_due timestamptz[];
  v_queues integer[]; v_plain boolean; -- the queue of each task; no task needs the trigger
  v_caller name := tuskline_core.caller(); v_asked text[];
  v_given  bigint[]; v_keys record; -- the ids to return: v_ids, or the holders of unique keys
begin
  if v_rows not between 1 and 10000 then
    perform tuskline_core.refuse('TK007',
      format('invalid_batch: 1 to 10000 tasks a call, got %s', v_rows),
      'use COPY tuskline.task for more');
  end if;
  if (cardinality(p_payloads) <> v_rows or cardinality(p_priorities) <> v_rows
      or cardinality(p_collections) <> v_rows or cardinality(p_scheduled_at) <> v_rows
      or cardinality(p_delays) <> v_rows or cardinality(p_ordering_keys) <> v_rows
      or cardinality(p_limit_keys) <> v_rows or cardinality(p_fairness_keys) <> v_rows
      or cardinality(p_unique_keys) <> v_rows or cardinality(p_traceparents) <> v_rows) then
    perform tuskline_core.refuse('TK007',
      format('invalid_batch: every array must have %s elements, as p_lambdas has', v_rows));
  end if;
  perform tuskline_core.raise_ids() where not tuskline_core.are_ids_raised();
  select array_agg(case when d.due > v_now then nextval('tuskline.future_seq')
                        else nextval('tuskline.task_seq') end),
         array_agg(d.due), array_agg(d.queue_id), bool_and(d.plain is true),
         array_agg(d.lambda) filter (where v_caller <> all (d.schedulers))
    into v_ids, v_due, v_queues, v_plain, v_asked
    from (select r.row, q.queue_id, q.lambda, q.schedulers,
                 case when num_nonnulls(r.scheduled_at, r.delay) > 0 then tuskline_core.due_time(
                   v_now, r.scheduled_at, r.delay, r.row, v_rows) end as due,
                 q.direct and tuskline_core.are_valid(
                   r.collection, r.traceparent, r.payload, q.max_payload_bytes) as plain
            from unnest(p_lambdas, p_payloads, p_priorities, p_collections, p_scheduled_at,
                        p_delays, p_traceparents)
                   with ordinality as r (lambda, payload, priority, collection, scheduled_at,
                                         delay, traceparent, row)
                 left join tuskline.queue q
                   on q.lambda = r.lambda and q.priority::text = coalesce(r.priority, 'normal')
           order by r.row) d;
  if v_asked is not null then perform tuskline_core.need_each(v_asked, 'schedule'); end if;
  if v_plain and num_nonnulls(p_ordering_keys, p_limit_keys, p_fairness_keys,
                              p_unique_keys) = 0 then
    return tuskline_core.insert_plain(v_ids, v_queues, v_due, p_lambdas, p_payloads, p_priorities,
                                      p_collections, p_traceparents, v_now);
  end if;
  v_given := v_ids;
  if p_unique_keys is not null then
    v_keys := tuskline_core.accept_keys(v_ids, p_lambdas, p_unique_keys, v_due, p_payloads, v_now);
    if v_keys.mistake is not null then
      perform tuskline_core.refuse_task(v_keys.mistake, v_keys.task,
        tuskline_core.row_of(v_keys.number, v_rows), v_keys.said);
    end if;
    v_given := v_keys.holders;
  end if;
  insert into tuskline.task (id, lambda, priority, collection, payload, scheduled_at,
                             status, next_trigger_at, ordering_key, limit_key, fairness_key,
                             unique_key, traceparent)
  select r.id, coalesce(r.lambda, ''), tuskline_core.priority_of(r.priority, r.row, v_rows),
         r.collection, r.payload, r.due,
         case when r.due > v_now then 'new' else 'enqueued' end::tuskline.status,
         case when r.due > v_now then r.due else v_now + tuskline_core.stalled_after() end,
         r.ordering_key, r.limit_key, r.fairness_key, r.unique_key, r.traceparent
    from unnest(v_ids, v_given, p_lambdas, p_payloads, p_priorities, p_collections, v_due,
                p_ordering_keys, p_limit_keys, p_fairness_keys, p_unique_keys, p_traceparents)
           with ordinality as r (
             id, given, lambda, payload, priority, collection, due,
             ordering_key, limit_key, fairness_key, unique_key, traceparent, row)
   where r.id = r.given;
  return v_given;
end $$;
comment on function tuskline.schedule_many(
  text[], json[], text[], text[], timestamptz[], interval[], text[], text[], text[], text[],
  text[]) is
  'Schedules up to 10,000 tasks, all or none. Returns their ids in the order given; for a unique '
  'key that is held, the id of its holder.';

-- Inserts valid tasks without keys past the trigger. Each has a direct queue in p_queues.
--
-- The transaction has its number before it draws those of queue rows: else a low-water mark may
-- pass them. The order in which the statement inserts is not defined.
-- A gate or limit that is set after the queues were read meets these tasks as it meets those that
-- other open transactions schedule: in the queue, or when their timer comes due.
create or replace function tuskline_core.insert_plain(
  p_ids bigint[], p_queues integer[], p_due timestamptz[], p_lambdas text[], p_payloads json[],
  p_priorities text[], p_collections text[], p_traceparents text[], p_now timestamptz)
returns bigint[] language plpgsql as $$
declare
  v_number xid8 := pg_current_xact_id();
  v_queues integer[];
begin
  with r as materialized (
    select u.*, coalesce(u.due > p_now, false) as later
      from unnest(p_ids, p_queues, p_due, p_lambdas, p_payloads, p_priorities, p_collections,
                  p_traceparents)
             as u (id, queue_id, due, lambda, payload, priority, collection, traceparent)
  ), t as (
    insert into tuskline_core.task_store (id, lambda, priority, collection, payload, scheduled_at,
                                          status, next_trigger_at, traceparent)
    select r.id, r.lambda, coalesce(r.priority, 'normal')::tuskline.priority, r.collection,
           r.payload, r.due, case when r.later then 'new' else 'enqueued' end::tuskline.status,
           case when r.later then r.due else p_now + tuskline_core.stalled_after() end,
           r.traceparent from r
  ), q as (
    insert into tuskline.queued (queue_id, bytes, task_id)
    select r.queue_id, coalesce(octet_length(r.payload::text), 0), r.id from r where not r.later)
  select array_agg(distinct r.queue_id) filter (where not r.later),
         tuskline_core.add_timers(array_agg(r.id) filter (where r.later),
           array_agg(r.due) filter (where r.later), 'due', p_now)
    into v_queues from r;
  perform tuskline_core.wake(v_queues);
  return p_ids;
end $$;
comment on function tuskline_core.insert_plain(
  bigint[], integer[], timestamptz[], text[], json[], text[], text[], text[], timestamptz) is
  'Inserts valid tasks without keys past the trigger: into their queues, or with timers.';
