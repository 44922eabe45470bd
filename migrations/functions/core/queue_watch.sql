-- queue_watch: who waits for the tasks of which queues, and who calls whom.
--
-- Queues share bells, so that the locks and the LISTENs of a worker are bounded however many
-- queues it serves. Bell 0 belongs to the store consumer's timers, which count as queue 0. The SDK
-- computes the same number (`queue_watch::bell_of`); a test compares the two.
create or replace function tuskline.bell_of(p_queue integer) returns integer
language sql immutable parallel safe as $$
  select 1 + (p_queue - 1) % 256
$$;
comment on function tuskline.bell_of(integer) is
  'The bell (0 to 256) that a queue shares: key of its watch lock and end of its channel''s name.';

-- is_watched: wakes only the sleeping. A controller about to wait holds the exclusive session lock
-- of its queue's bell and looks once more before it sleeps; we take the shared transaction lock.
-- If we get it, nobody sleeps, and nobody can fall asleep past our uncommitted rows until we end:
-- no NOTIFY needed. A NOTIFY takes a database-wide lock at commit (60-86 % of the insert rate), so
-- a busy system must send none. It is only ever a hint: without it tasks start within the safety
-- poll (1 s).
create or replace function tuskline_core.is_watched(p_queue integer) returns boolean language sql as $$
  select case when tuskline_core.is_two_phase() then false
              else not pg_try_advisory_xact_lock_shared(1953854315, tuskline.bell_of(p_queue)) end
$$;
comment on function tuskline_core.is_watched(integer) is
  'Whether a session sleeps on the bell of this queue (0: timers). If not, none can until our end.';

-- The notification for a queue that is watched. It names the queue, as the bell has others. A
-- paused
-- queue wakes no worker: it is notified when the pause ends.
create or replace function tuskline_core.notify_queue(p_queue integer) returns void
language plpgsql as $$
begin
  if not (exists (select from tuskline_core.flagged_queue) and tuskline_core.is_paused(p_queue)) then
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
  'Whether a queue is paused, and no task of it may pass.';

-- wake: asks once for each bell.
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
  'Notifies the controllers that sleep on these queues, if any.';

-- watch: a controller's half. It holds the exclusive session lock of the bells of the queues it found
-- empty, looks once more, and sleeps. held: ours, whoever inserts from now on must notify. taken:
-- another controller holds it, and its notifications reach us too. shared: the same, but it may hold
-- it for another queue, so that we peek at ours. busy: a producer is in the middle of a transaction;
-- poll. Session locks: on a direct connection only, never through a transaction pooler.
create or replace function tuskline.watch(p_bells integer[]) returns text[]
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_bell integer;
  v_said text[] := '{}';
begin
  foreach v_bell in array p_bells loop
    if pg_try_advisory_lock(1953854315, v_bell) then
      v_said := v_said || 'held'::text;
    elsif pg_try_advisory_lock_shared(1953854315, v_bell) then
      perform pg_advisory_unlock_shared(1953854315, v_bell);
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
  'Before sleeping on empty queues: held, taken, shared or busy for each bell (0: timers).';

create or replace function tuskline.unwatch(p_bells integer[]) returns void
language sql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  select pg_advisory_unlock(1953854315, bell) from unnest(p_bells) as bell
$$;
comment on function tuskline.unwatch(integer[]) is
  'After waking: gives up the locks of the bells for which watch answered held.';

-- peek: whether a queue holds anything above a mark. The safety poll of a sleeping controller: it
-- costs a fifth of a claim that finds nothing (26 µs a queue), takes no row and writes nothing. A
-- row that somebody is just taking counts as well. Before the recovery each is worth the claim
-- that says so. The leaf is named as in pop; index scans only, or a queue that looks small would
-- be read from its start.
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
    execute format('select exists (select from tuskline_core.queue_%s where seq > $1)', p_queues[v_at])
      into v_any using coalesce(p_marks[v_at], 0);
    v_found[v_at] := v_any;
  end loop;
  return v_found;
end $$;
comment on function tuskline.peek(integer[], bigint[]) is
  'Whether each of the queues holds a task above its mark.';

-- wake_timer: the same for the store consumer. It naps at most 1 s, so only a timer due sooner
-- than that needs to wake it.
create or replace function tuskline_core.wake_timer(p_due timestamptz, p_now timestamptz) returns void
language plpgsql as $$
begin
  if p_due < p_now + interval '1 second' and tuskline_core.is_watched(0) then
    perform pg_notify('tuskline_timer', '');
  end if;
end $$;
comment on function tuskline_core.wake_timer(timestamptz, timestamptz) is
  'Notifies a sleeping store consumer of a timer that is due within a second.';
