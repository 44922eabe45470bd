-- Makes the unlogged tables that a platform has dropped.
--
-- Some platforms drop every unlogged table when they promote a standby, before or after the first
-- session has called rebuild_queues(). The view verified_incarnation keeps queues_complete from a
-- plain DROP. So the database may count as ready while the queues are gone.
--
-- All these tables are buffers: fill_queues() fills the queues from the task store. Counts that
-- were not folded yet, and recent failures, are lost, as in a crash.

-- Lists the unlogged tables that are missing.
--
-- to_regclass reads the catalogue of this moment, which is later than the snapshot of the queues.
-- So a queue that another transaction makes is never listed.
create or replace function tuskline_core.missing_tables() returns table (name text)
language sql stable as $$
  select t.name
    from unnest('{attempt_count,event_count,recent_failure}'::text[]) as t (name)
   where to_regclass('tuskline_core.' || t.name) is null
$$;
comment on function tuskline_core.missing_tables() is
  'Unlogged tables that are missing, without those of the queues.';

create or replace function tuskline_core.missing_leaves() returns setof integer
language sql stable as $$
  select q.queue_id from tuskline.queue q
   where to_regclass('tuskline_core.queue_' || q.queue_id) is null
   order by q.queue_id
$$;
comment on function tuskline_core.missing_leaves() is
  'Queues whose unlogged table is missing.';

create or replace function tuskline_core.lacks_tables() returns boolean language sql stable as $$
  select exists (select from tuskline_core.missing_tables())
      or exists (select from tuskline_core.missing_leaves())
$$;
comment on function tuskline_core.lacks_tables() is
  'Whether an unlogged table is missing: a platform may drop them at a promotion.';

-- Makes the unlogged tables that are missing, without rows. Returns the queues among them.
--
-- Locks: the guard of queues, if one is missing.
create or replace function tuskline_core.make_tables() returns integer[] language plpgsql as $$
declare
  v_queues integer[] := array(select tuskline_core.missing_leaves());
begin
  if not tuskline_core.lacks_tables() then return '{}'; end if;
  perform tuskline_core.lock_guard('queue');
  perform tuskline_core.make_leaf(q) from unnest(v_queues) q;
  if exists (select from tuskline_core.missing_tables()) then
    perform tuskline_core.make_counts();
    perform tuskline_core.make_recent_failure();
    perform tuskline_core.restart_marks();
  end if;
  return v_queues;
end $$;
comment on function tuskline_core.make_tables() is
  'Makes the unlogged tables that are missing: queues, counts and recent failures. Returns the '
  'queues.';

-- The tables of V8__statistics.sql. A test compares them.
create or replace function tuskline_core.make_counts() returns void language plpgsql
set client_min_messages = warning as $$
begin
  create unlogged table if not exists tuskline_core.attempt_count (
    seq         bigint generated always as identity primary key,
    at          timestamptz not null,
    executor_id bigint not null,
    queue_ids   integer[] not null,
    counters    smallint[] not null,
    amounts     bigint[] not null);
  comment on table tuskline_core.attempt_count is
    'Counts of attempts that workers have sent with report_attempts(), until they are folded.';
  create unlogged table if not exists tuskline_core.event_count (
    seq      bigint generated always as identity primary key,
    at       timestamptz not null,
    lambda   text not null,
    priority tuskline.priority,
    event    tuskline_core.counted_event not null,
    bucket   smallint,
    events   integer not null,
    total_ms bigint not null,
    max_ms   bigint);
  comment on table tuskline_core.event_count is
    'Counts of events that verbs have noted with count_ends() and count_waits(), until they are '
    'folded.';
end $$;
comment on function tuskline_core.make_counts() is
  'Makes the tables of counts that wait to be folded, if they are missing.';

-- The table of V6__dead_letters.sql. A test compares them.
create or replace function tuskline_core.make_recent_failure() returns void language plpgsql
set client_min_messages = warning as $$
begin
  create unlogged table if not exists tuskline_core.recent_failure (
    lambda      text not null,
    failed_at   timestamptz not null,
    fingerprint text not null,
    attempts    integer not null,
    first_id    bigint not null,
    last_id     bigint not null,
    message     text not null);
  comment on table tuskline_core.recent_failure is
    'Failed attempts of lambdas with a breaker, one row per cause and id range in a batch of '
    'results. Rows older than the span of the breaker are deleted; a crash empties the table.';
  create index if not exists recent_failure_time
    on tuskline_core.recent_failure (lambda, failed_at);
end $$;
comment on function tuskline_core.make_recent_failure() is
  'Makes the table of the latest failures of lambdas with a breaker, if it is missing.';
