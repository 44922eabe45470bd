-- Maps a queue to its bell: the watch lock and the notification channel that it shares.
--
-- Queues share 256 bells. So a worker has a bounded number of locks and LISTENs, however many
-- queues it serves. Bell 0 belongs to the timers of the store consumer, which count as queue 0. The
-- SDK computes the same number (queue_watch::bell_of); a test compares the two.
create or replace function tuskline.bell_of(p_queue integer) returns integer
language sql immutable parallel safe as $$
  select 1 + (p_queue - 1) % 256
$$;
comment on function tuskline.bell_of(integer) is
  'Bell of a queue (0 to 256): the key of its watch lock and the end of its channel''s name.';

-- Tells whether the caller must notify the controllers of a queue.
--
-- A NOTIFY takes a database-wide lock at commit. One per insert cost 60-86 % of the insert rate, so
-- a busy system must send none. A notification is only a hint: without it a task starts within the
-- safety poll (1 s).
--
-- Race: a controller goes to sleep while a task is inserted.
--   controller                                 transaction that inserts
--   takes the watch lock (exclusive, session)  inserts the queue row
--   checks the queue once more                 tries the watch lock (shared, transaction)
--   sleeps                                     commits, and notifies if it did not get the lock
-- If the transaction gets the lock, no controller sleeps. None can fall asleep past the uncommitted
-- rows until the transaction ends. So no NOTIFY is needed.
-- A transaction that may be prepared (two_phase) takes no lock and sends none: always false.
create or replace function tuskline_core.is_watched(p_queue integer) returns boolean
language sql as $$
  select case when tuskline_core.is_two_phase() then false
              else not pg_try_advisory_xact_lock_shared(
                tuskline_core.watch_class(), tuskline.bell_of(p_queue)) end
$$;
comment on function tuskline_core.is_watched(integer) is
  'Whether a session sleeps on the bell of this queue (0: timers). If false, none can begin to '
  'sleep until the caller''s transaction ends.';

-- Notifies the controllers that listen to the bell of a queue.
--
-- The payload names the queue, because other queues share the bell. A paused queue wakes no worker:
-- it is notified when the pause ends.
create or replace function tuskline_core.notify_queue(p_queue integer) returns void
language plpgsql as $$
begin
  if not (exists (select from tuskline_core.flagged_queue)
          and tuskline_core.is_paused(p_queue)) then
    perform pg_notify('tuskline_bell_' || tuskline.bell_of(p_queue), p_queue::text);
  end if;
end $$;
comment on function tuskline_core.notify_queue(integer) is
  'Notifies the controllers that listen to the bell of this queue, at commit.';

create or replace function tuskline_core.is_paused(p_queue integer) returns boolean
language plpgsql as $$
begin
  return exists (select from tuskline_core.flagged_queue f
                  where f.queue_id = p_queue and f.paused @> tuskline.clock()
                    and f.passing is null);
end $$;
comment on function tuskline_core.is_paused(integer) is
  'Whether a queue is paused and no task of it may pass.';

-- Notifies the controllers that sleep on queues, if any.
--
-- Each bell is checked once. For more than 16 queues, one notification on tuskline_queue replaces
-- these and no bell is checked.
create or replace function tuskline_core.wake(p_queues integer[]) returns void
language plpgsql as $$
declare
  v_queue   integer;
  v_free    integer[] := '{}';
  v_watched integer[] := '{}';
begin
  if cardinality(p_queues) > 16 then
    perform tuskline_core.notify('tuskline_queue');
    return;
  end if;
  foreach v_queue in array coalesce(p_queues, '{}') loop
    continue when tuskline.bell_of(v_queue) = any (v_free);
    if tuskline.bell_of(v_queue) = any (v_watched) or tuskline_core.is_watched(v_queue) then
      v_watched := v_watched || tuskline.bell_of(v_queue);
      perform tuskline_core.notify_queue(v_queue);
    else
      v_free := v_free || tuskline.bell_of(v_queue);
    end if;
  end loop;
end $$;
comment on function tuskline_core.wake(integer[]) is
  'Notifies the controllers that sleep on these queues. For over 16 queues it notifies all.';

-- Takes the watch locks of empty queues' bells before a controller sleeps.
--
-- With the locks held, the controller checks its queues once more, and then sleeps.
-- Returns, for each bell:
--
--   held    the caller holds the lock: each transaction that inserts from now on must notify
--   taken   another controller holds the lock; its notifications reach the caller, too
--   shared  as taken, but it may hold the lock for another queue: the caller must also peek
--   busy    a transaction that inserts is open: the caller must poll
--
-- Locks: session locks. Use a direct connection, never a transaction pooler.
create or replace function tuskline.watch(p_bells integer[]) returns text[]
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_bell integer;
  v_said text[] := '{}';
begin
  foreach v_bell in array p_bells loop
    if pg_try_advisory_lock(tuskline_core.watch_class(), v_bell) then
      v_said := v_said || 'held'::text;
    elsif pg_try_advisory_lock_shared(tuskline_core.watch_class(), v_bell) then
      perform pg_advisory_unlock_shared(tuskline_core.watch_class(), v_bell);
      v_said := v_said || 'busy'::text;
    elsif v_bell > 0 and exists (select from tuskline.queue q where q.queue_id > 256) then
      v_said := v_said || 'shared'::text;
    else
      v_said := v_said || 'taken'::text;
    end if;
  end loop;
  return v_said;
end $$;
comment on function tuskline.watch(integer[]) is
  'Takes the watch locks of bells (0: timers) before a controller sleeps. Returns held, taken, '
  'shared or busy for each.';

create or replace function tuskline.unwatch(p_bells integer[]) returns void
language sql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  select pg_advisory_unlock(tuskline_core.watch_class(), bell) from unnest(p_bells) as bell
$$;
comment on function tuskline.unwatch(integer[]) is
  'Releases the watch locks of the bells for which watch returned held.';

-- Tells whether queues hold a row above the caller's marks: the safety poll of a sleeping
-- controller.
--
-- It costs a fifth of a claim that finds nothing (26 µs a queue), locks no row and writes nothing.
-- A row that another transaction is just taking counts as well. Before the recovery every queue
-- counts as non-empty: the claim that follows reports the error.
-- A paused queue counts as empty, and each queue while claims are delayed.
--
-- Planner: the statement names its leaf, as in pop. Only index scans are allowed: a queue
-- that seems small would be read from its start.
create or replace function tuskline.peek(p_queues integer[], p_marks bigint[]) returns boolean[]
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_from  timestamptz := (select c.claims_from from tuskline_core.verified_incarnation c);
  v_flags boolean := exists (select from tuskline_core.flagged_queue);
  v_any   boolean;
  v_found boolean[] := array_fill(v_from is null, array[cardinality(p_queues)]);
begin
  if v_from is null or v_from > tuskline.clock() then return v_found; end if;
  for v_at in 1..cardinality(p_queues) loop
    continue when v_flags and tuskline_core.is_paused(p_queues[v_at]);
    execute format('select exists (select from tuskline_core.queue_%s where seq > $1)',
                   p_queues[v_at])
      into v_any using coalesce(p_marks[v_at], 0);
    v_found[v_at] := v_any;
  end loop;
  return v_found;
end $$;
comment on function tuskline.peek(integer[], bigint[]) is
  'Whether each of the queues holds a task above its mark.';

-- Notifies a sleeping store consumer of a timer.
--
-- It sleeps at most 1 s, so only a timer that is due sooner needs to wake it.
create or replace function tuskline_core.wake_timer(p_due timestamptz, p_now timestamptz)
returns void language plpgsql as $$
begin
  if p_due < p_now + interval '1 second' and tuskline_core.is_watched(0) then
    perform pg_notify('tuskline_timer', '');
  end if;
end $$;
comment on function tuskline_core.wake_timer(timestamptz, timestamptz) is
  'Notifies a sleeping store consumer of a timer that is due within a second.';
