-- Schedules up to 10,000 tasks in one call and one transaction.
--
-- The arrays are parallel. A null array means the default for every row. One bad row refuses the
-- whole batch; the error names its number.
-- Returns the ids in the order given. For a unique key that is held, the id of its holder.
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
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now   timestamptz := tuskline.clock();
  v_rows  integer := coalesce(cardinality(p_lambdas), 0);
  v_ids   bigint[];
  v_given bigint[]; -- the ids to return: v_ids, or the holders of unique keys
  v_due   timestamptz[];
  v_keys  record;
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
  if num_nonnulls(p_scheduled_at, p_delays, p_ordering_keys, p_limit_keys, p_fairness_keys,
                  p_unique_keys) = 0 then
    with i as (
      insert into tuskline.task (lambda, priority, collection, payload, traceparent)
      select coalesce(r.lambda, ''),
             case when r.priority is null then 'normal'
                  else tuskline_core.priority_of(r.priority, r.row, v_rows) end,
             r.collection, r.payload, r.traceparent
        from unnest(p_lambdas, p_payloads, p_priorities, p_collections, p_traceparents)
               with ordinality as r (lambda, payload, priority, collection, traceparent, row)
      returning id)
    select array_agg(id) into v_ids from i;
    return v_ids;
  end if;
  select array_agg(case when d.due > v_now then nextval('tuskline.future_seq')
                        else nextval('tuskline.task_seq') end order by d.row),
         array_agg(d.due order by d.row)
    into v_ids, v_due
    from (select r.row,
                 tuskline_core.due_time(v_now, r.scheduled_at, r.delay, r.row, v_rows) as due
            from unnest(p_lambdas, p_scheduled_at, p_delays)
                   with ordinality as r (lambda, scheduled_at, delay, row)
           order by r.row) d;
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
