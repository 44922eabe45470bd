-- Defines a lambda and creates its four queues, one per priority.
--
-- Returns true if the lambda is new. A lambda that exists is left as it is, so each worker may call
-- this at its start.
--
-- The leaf tables are named by queue_id: the name of a lambda is stored in rows only and never
-- enters SQL text.
create or replace function tuskline.define_lambda(
  p_name                text,
  p_attempt_timeout     interval default '5 minutes',
  p_max_attempts        integer  default 20,
  p_retry_base          interval default '1 second',
  p_retry_cap           interval default '1 hour',
  p_retention           interval default '7 days',
  p_dead_retention      interval default '30 days',
  p_direct              boolean  default true,
  p_max_payload_bytes   integer  default 262144,
  p_max_crashes         integer  default 3,
  p_max_backlog         integer  default 0,
  p_cancelled_retention interval default null,
  p_dropped_retention   interval default null,
  p_fatal_retention     interval default null,
  p_archive             text     default 'none')
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now      timestamptz := tuskline.clock();
  v_settings jsonb := jsonb_build_object(
    'name', p_name, 'attempt_timeout', p_attempt_timeout, 'max_attempts', p_max_attempts,
    'max_crashes', p_max_crashes, 'retry_base', p_retry_base, 'retry_cap', p_retry_cap,
    'retention', p_retention, 'dead_retention', p_dead_retention,
    'cancelled_retention', p_cancelled_retention, 'dropped_retention', p_dropped_retention,
    'fatal_retention', p_fatal_retention, 'archive', p_archive, 'direct', p_direct,
    'max_payload_bytes', p_max_payload_bytes, 'max_backlog', p_max_backlog,
    'defined_by', tuskline_core.caller(), 'created_at', v_now, 'altered_at', v_now);
  v_priority tuskline.priority;
begin
  perform tuskline_core.check_name('lambda', p_name);
  perform tuskline_core.check_settings(v_settings);
  -- Read before the lock: a worker that starts does not wait while another lambda is defined.
  if exists (select from tuskline.lambda where name = p_name) then return false; end if;
  perform tuskline_core.lock_guard('queue');
  insert into tuskline.lambda
  select l.* from jsonb_populate_record(null::tuskline.lambda, v_settings) l
  on conflict do nothing;
  if not found then return false; end if;
  foreach v_priority in array enum_range(null::tuskline.priority) loop
    perform tuskline_core.add_queue(p_name, v_priority, p_direct, p_max_payload_bytes);
  end loop;
  perform tuskline_core.make_pops(p_name);
  insert into tuskline.audit (at, verb, subject) values (v_now, 'define_lambda', p_name);
  return true;
end $$;
comment on function tuskline.define_lambda(
  text, interval, integer, interval, interval, interval, interval, boolean, integer, integer,
  integer, interval, interval, interval, text) is
  'Defines a lambda and creates its queues. True: it is new; one that exists is left as it is.';

-- Changes the given settings of a lambda. Null leaves a setting as it is.
--
-- p_as_others names statuses (cancelled, dropped, fatal_failure) that lose their own retention.
--
-- Nothing is restarted. Retry settings, max_attempts and max_crashes apply to every attempt that
-- ends from now on. A worker reads attempt_timeout only when it registers.
create or replace function tuskline.alter_lambda(
  p_name                text,
  p_attempt_timeout     interval default null,
  p_max_attempts        integer  default null,
  p_retry_base          interval default null,
  p_retry_cap           interval default null,
  p_retention           interval default null,
  p_dead_retention      interval default null,
  p_direct              boolean  default null,
  p_max_payload_bytes   integer  default null,
  p_max_crashes         integer  default null,
  p_max_backlog         integer  default null,
  p_cancelled_retention interval default null,
  p_dropped_retention   interval default null,
  p_fatal_retention     interval default null,
  p_archive             text     default null,
  p_as_others           text[]   default '{}')
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  l tuskline.lambda;
begin
  perform tuskline_core.need(p_name, 'own');
  select * into l from tuskline.lambda where name = p_name for update;
  if not found then
    perform tuskline_core.refuse_lambda(p_name);
  end if;
  if not coalesce(p_as_others, '{}') <@ '{cancelled,dropped,fatal_failure}' then
    perform tuskline_core.refuse('TK009', format(
      'invalid_setting: as_others must name cancelled, dropped or fatal_failure, got %s',
      left(p_as_others::text, 80)));
  end if;
  perform tuskline_core.save_settings(l, to_jsonb(l)
    || coalesce((select jsonb_object_agg(split_part(o.status, '_', 1) || '_retention', null)
                   from unnest(p_as_others) as o (status)), '{}')
    || jsonb_strip_nulls(jsonb_build_object(
         'attempt_timeout', p_attempt_timeout, 'max_attempts', p_max_attempts,
         'max_crashes', p_max_crashes, 'retry_base', p_retry_base, 'retry_cap', p_retry_cap,
         'retention', p_retention, 'dead_retention', p_dead_retention,
         'cancelled_retention', p_cancelled_retention, 'dropped_retention', p_dropped_retention,
         'fatal_retention', p_fatal_retention, 'archive', p_archive, 'direct', p_direct,
         'max_payload_bytes', p_max_payload_bytes, 'max_backlog', p_max_backlog)));
end $$;
comment on function tuskline.alter_lambda(
  text, interval, integer, interval, interval, interval, interval, boolean, integer, integer,
  integer, interval, interval, interval, text, text[]) is
  'Changes the given settings of a lambda; null leaves a setting as it is. Audited.';

-- Gives the lambda l, whose row the caller has locked, new settings.
create or replace function tuskline_core.save_settings(l tuskline.lambda, p_settings jsonb)
returns void language plpgsql as $$
declare
  v_now timestamptz := tuskline.clock();
  n     tuskline.lambda; -- new
begin
  perform tuskline_core.check_settings(p_settings);
  n := jsonb_populate_record(l, p_settings || jsonb_build_object('altered_at', v_now));
  update tuskline.lambda
     set attempt_timeout = n.attempt_timeout, max_attempts = n.max_attempts,
         max_crashes = n.max_crashes, retry_base = n.retry_base, retry_cap = n.retry_cap,
         retention = n.retention, dead_retention = n.dead_retention,
         cancelled_retention = n.cancelled_retention, dropped_retention = n.dropped_retention,
         fatal_retention = n.fatal_retention, archive = n.archive, direct = n.direct,
         max_payload_bytes = n.max_payload_bytes, max_backlog = n.max_backlog,
         altered_at = n.altered_at
   where name = l.name;
  update tuskline.queue set max_payload_bytes = n.max_payload_bytes where lambda = l.name;
  perform tuskline_core.note_backlogs(l.name);
  perform tuskline_core.update_policy_flags(l.name);
  if (n.retention, n.cancelled_retention, n.dropped_retention, n.archive)
     is distinct from (l.retention, l.cancelled_retention, l.dropped_retention, l.archive) then
    -- Lock and reset all segments, also where ripe_at is null: a segments_to_retire that runs now
    -- still uses the old settings. We wait for it and reset what it saved.
    update tuskline.segment set ripe_at = null
     where segment_no = any (array(
       select g.segment_no from tuskline.segment g order by g.segment_no for no key update));
  end if;
  insert into tuskline.audit (at, verb, subject, detail)
  values (v_now, 'alter_lambda', l.name, to_jsonb(n)::text);
end $$;
comment on function tuskline_core.save_settings(tuskline.lambda, jsonb) is
  'Checks and stores new settings of a lambda.';

create or replace function tuskline_core.check_settings(p_settings jsonb) returns void
language plpgsql stable as $$
declare
  s       jsonb := p_settings;
  v_wrong text  := (
    select format('%s must be %s, got %s', c.setting, c.range, coalesce(
             case c.setting when 'archive' then quote_literal(left(s ->> 'archive', 80))
                            else s ->> c.setting end, 'null'))
      from (values
        ('attempt_timeout', '10 ms to 7 days',
         (s ->> 'attempt_timeout')::interval between '10 milliseconds' and '7 days'),
        ('max_attempts', '1 to 32767', (s ->> 'max_attempts')::integer between 1 and 32767),
        ('max_crashes', '1 to 32767', (s ->> 'max_crashes')::integer between 1 and 32767),
        ('retry_base', '0 to 24 hours', (s ->> 'retry_base')::interval between '0' and '24 hours'),
        ('retry_cap', 'retry_base to 24 hours',
         (s ->> 'retry_cap')::interval between (s ->> 'retry_base')::interval and '24 hours'),
        ('retention', '0 to 3650 days', (s ->> 'retention')::interval between '0' and '3650 days'),
        ('dead_retention', '0 to 3650 days',
         (s ->> 'dead_retention')::interval between '0' and '3650 days'),
        ('cancelled_retention', '0 to 3650 days', coalesce(
         (s ->> 'cancelled_retention')::interval between '0' and '3650 days', true)),
        ('dropped_retention', '0 to 3650 days', coalesce(
         (s ->> 'dropped_retention')::interval between '0' and '3650 days', true)),
        ('fatal_retention', '0 to 3650 days', coalesce(
         (s ->> 'fatal_retention')::interval between '0' and '3650 days', true)),
        ('archive', 'none, table or file', s ->> 'archive' in ('none', 'table', 'file')),
        ('direct', 'true or false', s ->> 'direct' is not null),
        ('max_payload_bytes', '1 to 1048576',
         (s ->> 'max_payload_bytes')::integer between 1 and 1048576),
        ('max_backlog', '0 (none) or more', (s ->> 'max_backlog')::integer >= 0)
      ) as c (setting, range, is_right)
     where c.is_right is not true limit 1);
begin
  if v_wrong is not null then
    raise exception using errcode = 'TK009', message = tuskline_core.message_of('TK009',
      'invalid_setting: ' || v_wrong);
  end if;
end $$;
comment on function tuskline_core.check_settings(jsonb) is
  'Refuses (TK009) settings of a lambda that are out of range.';

create or replace function tuskline_core.add_queue(
  p_lambda text, p_priority tuskline.priority, p_direct boolean, p_max_payload_bytes integer)
returns integer language plpgsql as $$
declare
  v_queue integer;
begin
  insert into tuskline.queue (lambda, priority, direct, max_payload_bytes)
  values (p_lambda, p_priority, p_direct, p_max_payload_bytes) returning queue_id into v_queue;
  perform tuskline_core.make_leaf(v_queue);
  return v_queue;
end $$;
comment on function tuskline_core.add_queue(text, tuskline.priority, boolean, integer) is
  'Creates one queue with its leaf table. Returns its queue_id.';

-- Creates the leaf table of a queue, or the parts of it that are missing.
--
-- Each vacuum or analyze of a leaf that changes its statistics makes every backend look through all
-- of its plans. So a leaf is vacuumed from 2,000 dead rows on and a fifth of its rows, and not
-- because rows were inserted. It is never analyzed: no plan depends on its statistics. It keeps the
-- pages of its longest backlog and fills them again. V10 gives older leaves these options.
-- Locks: to attach a table does not wait for transactions that use other queues. To create it as a
-- partition would, also for prepared ones.
create or replace function tuskline_core.make_leaf(p_queue integer) returns void
language plpgsql as $$
declare
  v_leaf text := 'queue_' || p_queue;
  v_oid  oid := to_regclass('tuskline_core.' || v_leaf);
begin
  if v_oid is null then
    execute format('create unlogged table tuskline_core.%I'
      ' (like tuskline.queued including defaults, primary key (seq)) with ('
      'autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_insert_threshold = -1,'
      ' autovacuum_analyze_threshold = 2147483647, vacuum_truncate = off)', v_leaf);
    execute (select format('comment on table tuskline_core.%I is %L', v_leaf,
                      format('Ready tasks of lambda %s, priority %s.', q.lambda, q.priority))
               from tuskline.queue q where q.queue_id = p_queue);
    v_oid := to_regclass('tuskline_core.' || v_leaf);
  end if;
  if not exists (select from pg_inherits i where i.inhrelid = v_oid) then
    execute format(
      'alter table tuskline.queued attach partition tuskline_core.%I for values in (%s)',
      v_leaf, p_queue);
  end if;
  perform tuskline_core.make_key(v_oid, 'seq');
end $$;
comment on function tuskline_core.make_leaf(integer) is
  'Creates the leaf table of a queue, or the parts of it that are missing.';

-- Adds the primary key of a leaf or segment table if it is missing.
--
-- Both names are built by Tuskline from numbers and constants, so they are safe in SQL text.
create or replace function tuskline_core.make_key(p_table regclass, p_column text) returns void
language plpgsql as $$
begin
  if not exists (select from pg_index x where x.indrelid = p_table and x.indisprimary) then
    execute format('alter table %s add primary key (%I)', p_table, p_column);
  end if;
end $$;
comment on function tuskline_core.make_key(regclass, text) is
  'Adds the primary key of a leaf or segment table if it is missing.';
