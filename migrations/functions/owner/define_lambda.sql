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
  v_priority tuskline.priority;
begin
  perform tuskline_core.check_name('lambda', p_name);
  perform tuskline_core.check_settings(
    p_attempt_timeout, p_max_attempts, p_retry_base, p_retry_cap, p_retention, p_dead_retention,
    p_direct, p_max_payload_bytes, p_max_crashes, p_max_backlog);
  perform tuskline_core.check_retention(
    p_cancelled_retention, p_dropped_retention, p_fatal_retention, p_archive);
  -- Read before the lock: a worker that starts does not wait while another lambda is defined.
  if exists (select from tuskline.lambda where name = p_name) then return false; end if;
  perform tuskline_core.lock_guard('queue');
  insert into tuskline.lambda (name, attempt_timeout, max_attempts, max_crashes,
                               retry_base, retry_cap, retention, dead_retention,
                               cancelled_retention, dropped_retention, fatal_retention, archive,
                               direct, max_payload_bytes, max_backlog, created_at, altered_at)
  values (p_name, p_attempt_timeout, p_max_attempts, p_max_crashes,
          p_retry_base, p_retry_cap, p_retention, p_dead_retention,
          p_cancelled_retention, p_dropped_retention, p_fatal_retention, p_archive,
          p_direct, p_max_payload_bytes, p_max_backlog, v_now, v_now)
  on conflict do nothing;
  if not found then return false; end if;
  foreach v_priority in array enum_range(null::tuskline.priority) loop
    perform tuskline_core.add_queue(p_name, v_priority, p_direct, p_max_payload_bytes);
  end loop;
  insert into tuskline.audit (at, verb, subject) values (v_now, 'define_lambda', p_name);
  return true;
end $$;
comment on function tuskline.define_lambda(
  text, interval, integer, interval, interval, interval, interval, boolean, integer, integer,
  integer, interval, interval, interval, text) is
  'Defines a lambda and creates its queues. True: it is new; one that exists is left as it is.';

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
  'Creates one queue with its leaf table and its function. Returns its queue_id.';

-- Creates the leaf table of a queue and its function pop_<n>, or the parts that are missing.
--
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
      ' (like tuskline.queued including defaults, primary key (seq))', v_leaf);
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
  if to_regproc('tuskline_core.pop_' || p_queue) is null
     or to_regproc('tuskline_core.pop_free_' || p_queue) is null then
    perform tuskline_core.make_pop(p_queue);
  end if;
end $$;
comment on function tuskline_core.make_leaf(integer) is
  'Creates the leaf table of a queue and its function pop_<n>, or the parts that are missing.';

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

create or replace function tuskline_core.check_settings(
  p_attempt_timeout interval, p_max_attempts integer, p_retry_base interval, p_retry_cap interval,
  p_retention interval, p_dead_retention interval, p_direct boolean, p_max_payload_bytes integer,
  p_max_crashes integer, p_max_backlog integer)
returns void language plpgsql immutable as $$
declare
  v_wrong text := case
    when p_attempt_timeout is null or p_attempt_timeout not between '10 milliseconds' and '7 days'
      then format('attempt_timeout must be 10 ms to 7 days, got %s',
                  coalesce(p_attempt_timeout::text, 'null'))
    when p_max_attempts is null or p_max_attempts not between 1 and 32767
      then format('max_attempts must be 1 to 32767, got %s',
                  coalesce(p_max_attempts::text, 'null'))
    when p_max_crashes is null or p_max_crashes not between 1 and 32767
      then format('max_crashes must be 1 to 32767, got %s',
                  coalesce(p_max_crashes::text, 'null'))
    when p_retry_base is null or p_retry_base not between '0' and '24 hours'
      then format('retry_base must be 0 to 24 hours, got %s',
                  coalesce(p_retry_base::text, 'null'))
    when p_retry_cap is null or p_retry_cap not between p_retry_base and '24 hours'
      then format('retry_cap must be retry_base to 24 hours, got %s',
                  coalesce(p_retry_cap::text, 'null'))
    when p_retention is null or p_retention not between '0' and '3650 days'
      then format('retention must be 0 to 3650 days, got %s',
                  coalesce(p_retention::text, 'null'))
    when p_dead_retention is null or p_dead_retention not between '0' and '3650 days'
      then format('dead_retention must be 0 to 3650 days, got %s',
                  coalesce(p_dead_retention::text, 'null'))
    when p_direct is null
      then 'direct must be true or false, got null'
    when p_max_payload_bytes is null or p_max_payload_bytes not between 1 and 1048576
      then format('max_payload_bytes must be 1 to 1048576, got %s',
                  coalesce(p_max_payload_bytes::text, 'null'))
    when p_max_backlog is null or p_max_backlog < 0
      then format('max_backlog must be 0 (none) or more, got %s',
                  coalesce(p_max_backlog::text, 'null'))
  end;
begin
  if v_wrong is not null then
    raise exception using errcode = 'TK009', message = tuskline_core.message_of('TK009',
      'invalid_setting: ' || v_wrong);
  end if;
end $$;
comment on function tuskline_core.check_settings(
  interval, integer, interval, interval, interval, interval, boolean, integer, integer,
  integer) is
  'Refuses (TK009) settings of a lambda that are out of range.';

create or replace function tuskline_core.check_retention(
  p_cancelled_retention interval, p_dropped_retention interval, p_fatal_retention interval,
  p_archive text)
returns void language plpgsql immutable as $$
declare
  v_wrong text := (
    select format('%s_retention must be 0 to 3650 days, got %s', o.status, o.retention)
      from (values ('cancelled', p_cancelled_retention), ('dropped', p_dropped_retention),
                   ('fatal', p_fatal_retention)) as o (status, retention)
     where o.retention not between '0' and '3650 days' limit 1);
begin
  if p_archive is null or p_archive not in ('none', 'table', 'file') then
    v_wrong := format('archive must be none, table or file, got %s',
                      coalesce(quote_literal(left(p_archive, 80)), 'null'));
  end if;
  if v_wrong is not null then
    raise exception using errcode = 'TK009', message = tuskline_core.message_of('TK009',
      'invalid_setting: ' || v_wrong);
  end if;
end $$;
comment on function tuskline_core.check_retention(interval, interval, interval, text) is
  'Refuses (TK009) a retention per status or an archive setting that is invalid.';
