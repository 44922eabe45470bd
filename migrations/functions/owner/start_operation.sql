-- Begins an operation: one action on all tasks that match the arguments. Returns its number.
--
--   p_action              effect
--   cancel                ends tasks that wait; requests that workers stop the tasks they hold
--   retry                 restarts ended tasks that did not succeed. A task that is due later keeps
--                         its due time; with the value now it is due now
--   priority, collection  gives waiting tasks a new one (p_value)
--   purge                 deletes ended tasks before their retention is over
--   erase                 deletes tasks of every status, also from the archive, and archives none
--   redrive               restarts dead letters. p_canary releases 1, then 10, then the rest, and
--                         stops when one dies again. p_payload replaces the payload of one task
--
-- Store consumers advance the operation one batch at a time (advance_operations), so a million
-- tasks delay nothing. It changes only tasks that were scheduled before it began. p_limit bounds
-- the number of tasks, p_per_second the rate. With p_files the caller advances a purge itself
-- (advance_operation) and writes the files of the archive.
create or replace function tuskline.start_operation(
  p_action       text,
  p_lambda       text             default null,
  p_value        text             default null,
  p_collection   text             default null,
  p_priority     text             default null,
  p_statuses     text[]           default null,
  p_fingerprint  text             default null,
  p_ids          bigint[]         default null,
  p_key          text             default null,
  p_field        text[]           default null,
  p_equals       text             default null,
  p_created_from timestamptz      default null,
  p_created_to   timestamptz      default null,
  p_ended_to     timestamptz      default null,
  p_limit        bigint           default null,
  p_per_second   double precision default null,
  p_canary       boolean          default false,
  p_payload      text             default null,
  p_reason       text             default null,
  p_files        boolean          default false)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  o tuskline.operation := tuskline_core.new_operation(
    p_action, p_lambda, p_value, p_collection, p_priority, p_statuses, p_fingerprint, p_ids, p_key,
    p_field, p_equals, p_created_from, p_created_to, p_ended_to, p_limit);
begin
  o.per_second := p_per_second;
  o.canary := p_canary;
  o.reason := p_reason;
  o.writes_files := p_files;
  o.payload := tuskline_core.json_of('payload', p_payload);
  o.step := case when p_canary then 1 end;
  perform tuskline_core.check_manner(o);
  if o.payload is not null then perform tuskline_core.need_on_task(o.ids[1], 'own'); end if;
  o.operation_id := nextval('tuskline.operation_operation_id_seq');
  insert into tuskline.operation select o.*;
  insert into tuskline.audit (at, verb, subject, detail)
  select o.begun_at, 'start_operation', coalesce(o.lambda, 'all lambdas'),
         format('operation %s: %s%s', o.operation_id, o.action,
                string_agg(format(', %s %s', f.key, left(f.value, 200)), ''))
    from json_each_text(json_strip_nulls(json_build_object(
           'to', o.value, 'collection', o.collection, 'priority', o.priority,
           'statuses', o.statuses::text, 'fingerprint', o.fingerprint, 'ids', o.ids::text,
           'key', tuskline_core.digest(o.key), 'field', o.field::text,
           'equal to', tuskline_core.digest(o.equals),
           'created from', o.created_from, 'created to', o.created_to, 'ended to', o.ended_to,
           'at most', o.max_tasks, 'per second', o.per_second, 'canary', nullif(o.canary, false),
           'payload', case when o.payload is not null then 'new' end, 'reason', o.reason))) f;
  perform tuskline_core.notify('tuskline_timer');
  return o.operation_id;
end $$;
comment on function tuskline.start_operation(
  text, text, text, text, text, text[], text, bigint[], text, text[], text, timestamptz,
  timestamptz, timestamptz, bigint, double precision, boolean, text, text, boolean) is
  'Begins to cancel, retry, purge, redrive or erase tasks, or to give them a new priority or '
  'collection. '
  'Returns the number of the operation. Audited.';

-- Begins a redrive with a new payload as json; the next overload takes jsonb.
--
-- A payload belongs to one task, so both overloads take ids and payload only. They run with the
-- rights of the caller: PostgreSQL inlines them, and a plan contains the main function instead.
create or replace function tuskline.start_operation(
  p_action text, p_ids bigint[], p_payload json, p_reason text default null)
returns bigint language sql as $$
  select tuskline.start_operation(
    p_action, p_ids => p_ids, p_payload => p_payload::text, p_reason => p_reason)
$$;
comment on function tuskline.start_operation(text, bigint[], json, text) is
  'Begins a redrive of one dead letter with a new payload. Audited.';

create or replace function tuskline.start_operation(
  p_action text, p_ids bigint[], p_payload jsonb, p_reason text default null)
returns bigint language sql as $$
  select tuskline.start_operation(
    p_action, p_ids => p_ids, p_payload => p_payload::text, p_reason => p_reason)
$$;
comment on function tuskline.start_operation(text, bigint[], jsonb, text) is
  'Begins a redrive of one dead letter with a new payload. Audited.';

-- Builds the row of an operation that has not begun, and checks its filters.
--
-- created_to is at most now. Without p_ended_to a purge covers tasks that ended at least one minute
-- ago. Without p_statuses the default is every status that the action allows. A retry, or a filter
-- by fingerprint, defaults to dead and fatal_failure.
create or replace function tuskline_core.new_operation(
  p_action text, p_lambda text, p_value text, p_collection text, p_priority text,
  p_statuses text[], p_fingerprint text, p_ids bigint[], p_key text, p_field text[],
  p_equals text, p_created_from timestamptz, p_created_to timestamptz, p_ended_to timestamptz,
  p_limit bigint)
returns tuskline.operation language plpgsql as $$
declare
  v_now  timestamptz := tuskline.clock();
  v_all  text[] := case
    when p_action = 'cancel' then '{new,enqueued,retriable_failure,claimed,processing}'::text[]
    when p_action in ('priority', 'collection') then '{new,enqueued,retriable_failure}'
    when p_action = 'retry' then enum_range('fatal_failure'::tuskline.status, null)::text[]
    when p_action = 'purge' then enum_range('success'::tuskline.status, null)::text[]
    when p_action = 'erase' then enum_range(null::tuskline.status)::text[]
    when p_action = 'redrive' then '{dead,fatal_failure}' end;
  o      tuskline.operation;
begin
  if v_all is null then
    raise exception using errcode = 'TK029', message = tuskline_core.message_of('TK029',
      format('invalid_operation: action must be cancel, retry, priority, collection, purge, '
             'redrive or erase, got %L', left(p_action, 80)));
  elsif p_statuses = '{}' or not p_statuses <@ v_all then
    raise exception using errcode = 'TK029', message = tuskline_core.message_of('TK029',
      format('invalid_operation: %s is for tasks that are %s, got %s',
             p_action, array_to_string(v_all, ', '), left(p_statuses::text, 200)));
  end if;
  o.statuses := coalesce(p_statuses, case
    when p_action = 'retry' or p_fingerprint is not null then '{dead,fatal_failure}'
    else v_all end);
  o.action := p_action;
  o.lambda := p_lambda;
  o.value := p_value;
  o.collection := p_collection;
  o.fingerprint := p_fingerprint;
  o.ids := p_ids;
  o.key := p_key;
  o.field := p_field;
  o.equals := p_equals;
  o.max_tasks := p_limit;
  o.created_from := p_created_from;
  o.created_to := least(p_created_to, v_now);
  o.ended_to := case
    when p_action = 'purge' then least(v_now, coalesce(p_ended_to, v_now - interval '1 minute'))
    when p_action in ('retry', 'redrive') then least(v_now, p_ended_to)
    else p_ended_to end;
  o.author := tuskline_core.caller();
  o.begun_at := v_now;
  o.next_at := v_now;
  o.state := 'running';
  o.mark := 0;
  o.behind := '{}';
  o.watched := '{}';
  o.met := false;
  o.segments := case when p_action = 'erase' then tuskline_core.segments_to_walk() end;
  o.looked := 0;
  o.changed := 0;
  o.spared := 0;
  o.operation_id := 0;
  perform tuskline_core.check_choice(o, num_nonnulls(p_statuses, p_ended_to) > 0);
  if tuskline_core.rights_in_use() then o.ids := tuskline_core.need_operation(o); end if;
  if p_priority is not null then o.priority := tuskline_core.priority_of(p_priority); end if;
  return o;
end $$;
comment on function tuskline_core.new_operation(
  text, text, text, text, text, text[], text, bigint[], text, text[], text, timestamptz,
  timestamptz, timestamptz, bigint) is
  'Builds the row of an operation on the tasks that match the arguments. '
  'Refuses (TK001, TK029) invalid arguments.';

-- Refuses an operation whose filters or new value are missing or invalid.
--
-- Every operation needs a lambda, ids, a key or a field. A purge may name statuses, a collection, a
-- fingerprint or an end time instead, and an erase a collection. A new priority or
-- collection always needs a lambda.
create or replace function tuskline_core.check_choice(o tuskline.operation, p_is_narrow boolean)
returns void language plpgsql stable as $$
declare
  v_moves boolean := o.action in ('priority', 'collection');
  v_wrong text := case
    when o.action = 'retry' and o.value <> 'now'
      then format('the value of a retry is now, or none, got %L', left(o.value, 80))
    when o.action <> 'retry' and v_moves <> (o.value is not null)
      then format('a new priority or collection, and nothing else, needs a value, got %s with %L',
                  o.action, left(o.value, 80))
    when o.lambda is null and (v_moves or num_nonnulls(o.ids, o.key, o.field) = 0 and not (
           o.action = 'purge' and p_is_narrow
           or o.action in ('purge', 'erase') and num_nonnulls(o.collection, o.fingerprint) > 0))
      then format('say which tasks: %s needs a lambda%s', o.action, case
        when o.action = 'purge'
          then ', ids, a key, a field, statuses, a collection, a fingerprint or a time'
        when o.action = 'erase' then ', ids, a key, a field or a collection'
        when not v_moves then ', ids, a key or a field' end)
    when num_nonnulls(o.field, o.equals) = 1 or cardinality(o.field) not between 1 and 32
         or array_position(o.field, null) is not null
      then format('field must be a path of 1 to 32 names, with the text that it equals, '
                  'got %L and %L', left(o.field::text, 80), left(o.equals, 80))
    when octet_length(o.key) not between 1 and 256
      then format('key must have 1 to 256 bytes, got %s', octet_length(o.key))
    when cardinality(o.ids) not between 1 and 10000
      then format('ids must be 1 to 10000, got %s', cardinality(o.ids))
    when o.fingerprint is not null and not o.statuses <@ '{dead,fatal_failure}'
      then format('a fingerprint is for tasks that are dead or fatal_failure, got %s', o.statuses)
    when o.ended_to is not null and (v_moves or o.action = 'cancel')
      then format('%s is for tasks that have not ended, got ended_to', o.action)
    when o.action = 'erase' and (p_is_narrow or num_nonnulls(o.fingerprint, o.max_tasks) > 0)
      then 'an erase deletes tasks of every status: it takes no statuses, fingerprint, end time '
           'or limit'
    when o.max_tasks < 1 then format('limit must be at least 1, got %s', o.max_tasks)
  end;
begin
  if v_wrong is not null then
    raise exception using errcode = 'TK029', message = tuskline_core.message_of('TK029',
      'invalid_operation: ' || v_wrong);
  elsif o.lambda is not null
    and not exists (select from tuskline.lambda l where l.name = o.lambda) then
    perform tuskline_core.refuse_lambda(o.lambda);
  end if;
  if o.action = 'priority' then perform tuskline_core.priority_of(o.value); end if;
  if o.action = 'collection' then perform tuskline_core.check_name('collection', o.value); end if;
end $$;
comment on function tuskline_core.check_choice(tuskline.operation, boolean) is
  'Refuses (TK001, TK029) an operation whose filters or new value are missing or invalid.';

-- Refuses an operation whose rate, canary, payload, files or reason is invalid.
create or replace function tuskline_core.check_manner(o tuskline.operation) returns void
language plpgsql stable as $$
declare
  v_most  integer;
  v_wrong text := case
    when o.per_second is not null and not (o.per_second between 0.001 and 1000000)
      then format('per_second must be 0.001 to 1000000, got %s', o.per_second)
    when o.canary is null or o.writes_files is null
      then 'canary and files must be true or false, got null'
    when (o.canary or o.payload is not null) and o.action <> 'redrive'
      then format('a canary and a payload are for a redrive, got %s', o.action)
    when o.payload is not null and cardinality(o.ids) is distinct from 1
      then 'a payload is for one task: give its id, and no other'
    when o.writes_files and o.action <> 'purge'
      then format('files are for a purge, got %s', o.action)
    when o.action in ('redrive', 'erase') and o.reason is null or o.reason !~ '[^[:space:]]'
         or length(o.reason) > 500
      then 'reason must have 1 to 500 characters'
  end;
begin
  if v_wrong is not null then
    raise exception using errcode = 'TK029', message = tuskline_core.message_of('TK029',
      'invalid_operation: ' || v_wrong);
  elsif o.payload is null then
    return;
  end if;
  select l.max_payload_bytes into v_most
    from tuskline_core.all_tasks t join tuskline.lambda l on name = t.lambda where t.id = o.ids[1];
  if octet_length(o.payload::text) > v_most then
    raise exception using errcode = 'TK004', message = tuskline_core.message_of('TK004',
      format('payload_too_large: at most %s bytes, got %s', v_most, octet_length(o.payload::text)));
  elsif strpos(o.payload::text, chr(92) || 'u0000') > 0
    and not tuskline_core.is_storable(o.payload) then
    raise exception using errcode = 'TK003', message = tuskline_core.message_of('TK003',
      'invalid_payload: ' || chr(92) || 'u0000 cannot be stored in text');
  end if;
end $$;
comment on function tuskline_core.check_manner(tuskline.operation) is
  'Refuses (TK003, TK004, TK029) an invalid rate, canary, payload or reason of an operation.';

-- Counts the tasks that an operation with these arguments would change now. A purge may change
-- fewer: the count includes those that it spares because a task, session or redrive needs them.
create or replace function tuskline.preview_operation(
  p_action       text,
  p_lambda       text        default null,
  p_value        text        default null,
  p_collection   text        default null,
  p_priority     text        default null,
  p_statuses     text[]      default null,
  p_fingerprint  text        default null,
  p_ids          bigint[]    default null,
  p_key          text        default null,
  p_field        text[]      default null,
  p_equals       text        default null,
  p_created_from timestamptz default null,
  p_created_to   timestamptz default null,
  p_ended_to     timestamptz default null,
  p_limit        bigint      default null)
returns table (lambda text, status text, archived boolean, tasks bigint, first_ids bigint[])
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  o tuskline.operation := tuskline_core.new_operation(
    p_action, p_lambda, p_value, p_collection, p_priority, p_statuses, p_fingerprint, p_ids, p_key,
    p_field, p_equals, p_created_from, p_created_to, p_ended_to, p_limit);
begin
  return query
  select m.lambda, m.status::text, m.archived, count(*), (array_agg(m.id order by m.id))[:10]
    from (select t.* from tuskline_core.meant_tasks(o) t limit o.max_tasks) m
   group by m.lambda, m.status, m.archived order by m.lambda, m.status, m.archived;
end $$;
comment on function tuskline.preview_operation(
  text, text, text, text, text, text[], text, bigint[], text, text[], text, timestamptz,
  timestamptz, timestamptz, bigint) is
  'Counts the tasks that an operation with these arguments would change now, by lambda and status, '
  'and lists the first ten. archived: rows of task_archive, which only an erase deletes.';

-- Returns the tasks that match an operation, in id order, reading 10,000 ids at a time.
create or replace function tuskline_core.meant_tasks(o tuskline.operation)
returns table (id bigint, lambda text, status tuskline.status, archived boolean)
language plpgsql as $$
declare
  v_next bigint[];
  v_ids  bigint[];
  v_left bigint := o.max_tasks;
begin
  loop
    v_next := tuskline_core.next_ids(o, 10000);
    exit when v_next = '{}' or v_left <= 0;
    v_ids := tuskline_core.meant_ids(o, v_next, o.begun_at);
    v_left := v_left - cardinality(v_ids);
    o.mark := v_next[cardinality(v_next)];
    return query
    select t.id, t.lambda, t.status, false from tuskline_core.all_tasks t
     where t.id = any (v_ids) and t.id between v_next[1] and o.mark
    union all
    select a.id, a.lambda, a.status, true from tuskline.task_archive a
     where o.action = 'erase' and a.id = any (v_ids)
       and not exists (select from tuskline_core.all_tasks t where t.id = a.id)
     order by 1;
  end loop;
end $$;
comment on function tuskline_core.meant_tasks(tuskline.operation) is
  'Returns the tasks that match an operation, in id order.';

-- Stops a running operation. The tasks that it has changed keep their change.
-- Returns false if the operation is not running. It waits for a batch that is running now.
create or replace function tuskline.stop_operation(p_operation bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  o tuskline.operation;
begin
  select u.* into o from tuskline.operation u
   where u.operation_id = p_operation and u.state = 'running' for update;
  if not found then return false; end if;
  perform tuskline_core.need_operation(o) where tuskline_core.rights_in_use();
  o.state := 'stopped'; o.note := 'by ' || tuskline_core.caller();
  perform tuskline_core.save_operation(o, tuskline.clock());
  return true;
end $$;
comment on function tuskline.stop_operation(bigint) is
  'Stops a running operation; tasks that it has changed stay changed. False: it is not running. '
  'Audited.';
