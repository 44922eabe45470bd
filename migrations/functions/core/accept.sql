-- Checks whether a row may become a task. These are the only checks of validity.
--
-- INSERT, COPY and the verbs that insert (route), schedule_chain and define_periodic check whole
-- rows. schedule, schedule_many (are_valid) and the unique keys check the parts that they have.
-- Each mistake has a name; refuse_task raises it to the caller.

create or replace function tuskline_core.is_storable(p_payload json) returns boolean
language plpgsql immutable as $$
begin
  perform p_payload::jsonb;
  return true;
exception when untranslatable_character then
  return false;
end $$;
comment on function tuskline_core.is_storable(json) is 'False for JSON that holds a NUL character.';

create or replace function tuskline_core.is_key(p_key text) returns boolean
language sql immutable as $$ select octet_length(p_key) between 1 and 256 $$;
comment on function tuskline_core.is_key(text) is
  'True for a valid ordering, limit, fairness or unique key. Null for null.';

create or replace function tuskline_core.is_traceparent(p_text text) returns boolean
language sql immutable as $$
  select p_text ~ '^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$'
$$;
comment on function tuskline_core.is_traceparent(text) is
  'True for a traceparent of W3C Trace Context: version, trace, span and flags. False for version '
  'ff and for a trace or span of zeros. Null for null.';

-- Returns the name of the mistake in a payload; null: there is none.
--
-- The six characters that JSON writes for U+0000 may be harmless text (behind an escaped
-- backslash). Only the parser of jsonb can tell. It runs for payloads that contain them.
create or replace function tuskline_core.mistake_in_payload(p_payload json, p_max_bytes integer)
returns text language sql stable as $$
  select case
    when octet_length(p_payload::text) > p_max_bytes then 'payload_too_large'
    when strpos(p_payload::text, chr(92) || 'u0000') > 0
         and not tuskline_core.is_storable(p_payload)
      then 'invalid_payload'
  end
$$;
comment on function tuskline_core.mistake_in_payload(json, integer) is
  'Name of the mistake in a payload; null: there is none.';

-- Tells whether a task without keys may go past the trigger. The trigger names its mistake.
create or replace function tuskline_core.are_valid(
  p_collection text, p_traceparent text, p_payload json, p_max_payload_bytes integer)
returns boolean language sql stable as $$
  select tuskline_core.is_name(p_collection) is not false
     and tuskline_core.is_traceparent(p_traceparent) is not false
     and tuskline_core.mistake_in_payload(p_payload, p_max_payload_bytes) is null
$$;
comment on function tuskline_core.are_valid(text, text, json, integer) is
  'Whether mistake_in finds no mistake in these parts of a task.';

-- Returns the name of the first mistake in a row; null: there is none.
--
-- p_max_payload_bytes is the limit of the task's queue; null: its lambda is not defined.
-- Planner: one expression without subqueries, so each call is inlined. accept_rest makes the checks
-- that read a table, for few rows.
create or replace function tuskline_core.mistake_in(
  t tuskline.task, p_max_payload_bytes integer, p_now timestamptz)
returns text language sql stable as $$
  select case
    when p_max_payload_bytes is null then 'unknown_lambda'
    when t.status not in ('new', 'enqueued') or t.fence <> 0 or t.attempt <> 0 or t.crashes <> 0
      or t.flags <> 0 or t.started_at is not null or t.finished_at is not null
      or t.status = 'new' and (t.scheduled_at is null
                               or t.next_trigger_at is distinct from t.scheduled_at)
      then 'invalid_status'
    when not tuskline_core.is_name(t.collection) then 'invalid_name'
    when not isfinite(t.scheduled_at) or t.scheduled_at > p_now + tuskline_core.max_delay()
      or not isfinite(t.next_trigger_at) or t.next_trigger_at > p_now + tuskline_core.max_delay()
      then 'invalid_due'
    when t.created_at not between p_now - interval '1 day' and p_now + interval '1 minute'
      then 'invalid_time'
    when not tuskline_core.is_key(t.ordering_key) or not tuskline_core.is_key(t.limit_key)
      or not tuskline_core.is_key(t.fairness_key) or not tuskline_core.is_key(t.unique_key)
      then 'invalid_key'
    when not tuskline_core.is_traceparent(t.traceparent) then 'invalid_traceparent'
    else tuskline_core.mistake_in_payload(t.payload, p_max_payload_bytes)
  end
$$;
comment on function tuskline_core.mistake_in(tuskline.task, integer, timestamptz) is
  'Name of the first mistake in a row that is to be a task; null: there is none.';

-- Checks the id of an inserted task: it must be issued, and its segment must not be sealed.
--
-- If an id was not issued, its sequence reaches it later, and that insert fails. A task in a sealed
-- segment would be lost, because that segment is not read again. An id in task_kept counts as
-- sealed. An id that was drawn before this life of the database has raised the ids may be that of a
-- lost task: raised_ids. If no call has raised them, this one does.
-- Returns the name of the mistake; null: there is none.
-- Locks: the row of the segment FOR SHARE, in a subtransaction that rolls back at once. The lock
-- waits for a transaction that may seal the segment. A later one sees this transaction's lock on
-- the partition (late_writers), which lasts until this transaction ends.
create or replace function tuskline_core.mistake_in_id(p_id bigint) returns text
language plpgsql as $$
declare
  v_last bigint := case p_id >> 50 when 0 then pg_sequence_last_value('tuskline.task_seq')
                                   when 1 then pg_sequence_last_value('tuskline.future_seq') end;
  v_open boolean;
begin
  if not tuskline_core.are_ids_raised() then
    perform tuskline_core.raise_ids();
    return 'raised_ids';
  end if;
  if p_id > 0 and tuskline_core.is_current_id(p_id, v_last) then return null; end if;
  if p_id < 1 or p_id > v_last or v_last is null
     or tuskline_core.cell_of(p_id) <> tuskline_core.cell_of(v_last) then
    return 'unknown_id';
  end if;
  if tuskline_core.is_drawn_too_early() then return 'raised_ids'; end if;
  begin
    select g.sealed_at is null into v_open
      from tuskline.segment g where g.segment_no = tuskline_core.segment_of(p_id) for share;
    raise exception using errcode = 'TK051';
  exception when sqlstate 'TK051' then null;
  end;
  if v_open is distinct from true
     or exists (select from tuskline.task_kept k where k.id = p_id) then
    return 'sealed_id';
  end if;
  return null;
end $$;
comment on function tuskline_core.mistake_in_id(bigint) is
  'Name of the mistake in an id: it is not issued, its segment is sealed, or ids were raised '
  'since. Null: none.';

create or replace function tuskline_core.is_current_id(p_id bigint, p_last bigint) returns boolean
language sql immutable as $$ select p_id <= p_last and p_id >> 24 = p_last >> 24 $$;
comment on function tuskline_core.is_current_id(bigint, bigint) is
  'True for an issued id of the segment in use, which is open. '
  'p_last: the last id that the sequence has issued.';

-- Accepts inserted tasks that did not go into their queue at once.
--
-- A task joins the wait list of its limit, or gets a timer for a store consumer. Rows that schedule
-- has written as new are not updated again.
-- p_ids: in id order. p_numbers: the number of each row in its statement.
-- Planner: width_bucket copies the array. offset 0 lets it run only for rows with a mistake.
-- Returns the first mistake with its row. Then route refuses the statement, which undoes all of it:
-- a mistake in a unique key is found after rows were updated.
create or replace function tuskline_core.accept_rest(
  p_ids bigint[], p_numbers bigint[], p_now timestamptz,
  out mistake text, out task tuskline.task, out number bigint, out said text)
language plpgsql
set jit = off set plan_cache_mode = force_generic_plan
set enable_hashjoin = off set enable_mergejoin = off
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_first  bigint := p_ids[1];
  v_last   bigint := p_ids[cardinality(p_ids)];
  m        record;
  k        record;
  v_behind bigint[];
  v_barred text[] := case when tuskline_core.rights_in_use() then tuskline.barred('schedule') end;
begin
  select r.task, p_numbers[width_bucket((r.task).id, p_ids)] as number, r.mistake into m
    from (select t as task,
                 coalesce(case when t.lambda = any (v_barred) then 'no_right' end,
                          tuskline_core.mistake_in(t, q.max_payload_bytes, p_now),
                          case when q.is_full or t.ordering_key is not null
                                    or t.unique_key is not null
                               then tuskline_core.before_accept(t, q.is_full) end,
                          tuskline_core.mistake_in_id(t.id)) as mistake
            from tuskline.task t
                 left join tuskline.queue q on q.lambda = t.lambda and q.priority = t.priority
           where t.id = any (p_ids) and t.id between v_first and v_last offset 0) r
   where r.mistake is not null order by number limit 1;
  if found then
    mistake := m.mistake;
    task := m.task;
    number := m.number;
    return;
  end if;
  update tuskline.task t
     set status = 'new', next_trigger_at = greatest(coalesce(t.scheduled_at, p_now), p_now)
   where t.id = any (p_ids) and t.id between v_first and v_last and t.status = 'enqueued';
  if exists (select from tuskline.unique_policy) then
    select u.ids, a.* into k
      from (select array_agg(t.id order by t.id) as ids,
                   array_agg(t.lambda order by t.id) as lambdas,
                   array_agg(t.unique_key order by t.id) as keys,
                   array_agg(t.scheduled_at order by t.id) as due,
                   array_agg(t.payload order by t.id) as payloads
              from tuskline.task t
             where t.id = any (p_ids) and t.id between v_first and v_last
               and t.unique_key is not null) u
           cross join lateral tuskline_core.accept_keys(
             u.ids, u.lambdas, u.keys, u.due, u.payloads, p_now) a;
    if k.mistake is not null then
      mistake := k.mistake;
      task := k.task;
      said := k.said;
      number := p_numbers[width_bucket(k.ids[k.number], p_ids)];
      return;
    end if;
    -- A task whose key is held stays as a dropped row that names the holder.
    perform tuskline_core.end_waiting(array_agg(h.id), array_agg('dropped'::tuskline.status),
              array_agg('duplicate'::text),
              array_agg(format('task %s holds its unique key', h.holder)), p_now)
       from unnest(k.ids, k.holders) as h (id, holder) where h.id <> h.holder;
    p_ids := array(select unnest(p_ids) except select h.id
                     from unnest(k.ids, k.holders) as h (id, holder) where h.id <> h.holder);
  end if;
  v_behind := tuskline_core.on_accept(p_ids, p_now);
  if v_behind <> '{}' then
    p_ids := array(select unnest(p_ids) except select unnest(v_behind));
  end if;
  perform tuskline_core.add_timers(array_agg(t.id), array_agg(t.next_trigger_at), 'due', p_now)
     from tuskline.task t where t.id = any (p_ids) and t.id between v_first and v_last;
end $$;
comment on function tuskline_core.accept_rest(bigint[], bigint[], timestamptz) is
  'Accepts inserted tasks that are not queued at once: they join wait lists or get timers. '
  'Returns the first mistake, for the caller to refuse it.';

-- Words the mistake that mistake_in, mistake_in_id, before_accept or hold_key has named: its code,
-- message and hint.
--
-- The caller raises it: each function in between would add lines to the error that people read.
create or replace function tuskline_core.refusal_of(
  p_mistake text, t tuskline.task, p_where text, p_said text default null)
returns text[] language plpgsql as $$
declare
  l      tuskline.lambda;
  v_said text[];
begin
  if p_mistake = 'no_right' then
    return tuskline_core.refusal_of_right(t.lambda, '{schedule}');
  end if;
  select * into l from tuskline.lambda where name = t.lambda;
  v_said := case p_mistake -- code, name, what is wrong, what to do
    when 'unknown_lambda' then array['TK001', 'unknown_lambda',
      format('%L is not defined', left(t.lambda, 80)),
      tuskline_core.hint_of_lambda(left(t.lambda, 80))]
    when 'invalid_status' then array['TK008', 'invalid_status',
      format('a task is born new or enqueued and unclaimed, got %s', t.status),
      'leave these columns to their defaults']
    when 'invalid_name' then array['TK002', 'invalid_name',
      format('collection must match [a-z][a-z0-9_]{0,62}, got %L', left(t.collection, 80)),
      'null means no collection']
    when 'invalid_due' then array['TK005', 'invalid_due',
      format('due time must be finite and at most 10 years ahead, got %s',
        coalesce(t.scheduled_at, t.next_trigger_at)), 'null means now']
    when 'invalid_time' then array['TK052', 'invalid_time',
      format('created_at must be now, within a day, got %s', t.created_at),
      'leave the column to its default']
    when 'invalid_key' then array['TK019', 'invalid_key',
      (select format('%s must have 1 to 256 bytes, got %s', k.name, octet_length(k.value))
         from (values ('ordering_key', t.ordering_key), ('limit_key', t.limit_key),
                      ('fairness_key', t.fairness_key), ('unique_key', t.unique_key))
                as k (name, value)
        where not tuskline_core.is_key(k.value) limit 1), 'null means no key']
    when 'invalid_traceparent' then array['TK054', 'invalid_traceparent',
      format('must be 00-<32 hex digits>-<16 hex digits>-<2 hex digits>, neither number 0, got %L',
        left(t.traceparent, 80)), 'null means no trace']
    when 'no_order' then array['TK019', 'invalid_key',
      format('lambda %s keeps no order and takes no ordering_key', t.lambda),
      format('select tuskline.set_order(%L)', t.lambda)]
    when 'no_unique_keys' then array['TK019', 'invalid_key',
      format('lambda %s has no unique keys and takes no unique_key', t.lambda),
      format('select tuskline.set_unique(%L)', t.lambda)]
    when 'duplicate' then array['TK027', 'duplicate',
      format('key %L of %s %s', t.unique_key, t.lambda, p_said),
      format('%s refuses a second task of a key: see tuskline.set_unique()', t.lambda)]
    when 'backlog_full' then array['TK020', 'backlog_full',
      format('%s tasks of %s wait already', l.max_backlog, t.lambda),
      format('try again later, or: select tuskline.alter_lambda(%L, p_max_backlog => ...)',
        t.lambda)]
    when 'payload_too_large' then array['TK004', 'payload_too_large',
      format('at most %s bytes, got %s', l.max_payload_bytes, octet_length(t.payload::text)),
      format('store it elsewhere and send its name, or: '
        'select tuskline.alter_lambda(%L, p_max_payload_bytes => ...)', t.lambda)]
    when 'invalid_payload' then array['TK003', 'invalid_payload',
      format('%su0000 cannot be stored in text', chr(92)), 'send the text without it']
    when 'unknown_id' then array['TK051', 'invalid_id',
      format('the sequences of tuskline have not issued %s', t.id),
      'leave the column out, or insert its default']
    when 'sealed_id' then array['TK051', 'invalid_id', format('the segment of %s is sealed', t.id),
      'leave the column out, or insert its default']
    when 'raised_ids' then array['40001', 'ids_raised',
      format('id %s was drawn before the restart, promotion or restore was noticed', t.id),
      'repeat the transaction: it draws a new id']
  end;
  return array[v_said[1], tuskline_core.message_of(
    v_said[1], format('%s: %s%s', v_said[2], v_said[3], p_where)), v_said[4]];
end $$;
comment on function tuskline_core.refusal_of(text, tuskline.task, text, text) is
  'Code, message and hint for a mistake in a task. p_where: the row in the caller''s batch; empty '
  'for a single task. p_said: more about it.';

create or replace function tuskline_core.refuse_task(
  p_mistake text, t tuskline.task, p_where text, p_said text default null)
returns void language plpgsql as $$
declare
  v_said text[] := tuskline_core.refusal_of(p_mistake, t, p_where, p_said);
begin
  raise exception using errcode = v_said[1], message = v_said[2], hint = v_said[3];
end $$;
comment on function tuskline_core.refuse_task(text, tuskline.task, text, text) is
  'Raises a mistake in a task by its name, see refusal_of.';
