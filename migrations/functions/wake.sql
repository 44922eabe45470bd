-- Reads a setting that is on or off. Another text is refused: a misspelt one would show at night.
create or replace function tuskline.boolean_setting(p_name text) returns boolean
language plpgsql stable as $$
begin
  return current_setting(p_name)::boolean;
exception when invalid_text_representation then
  perform tuskline.refuse('TK009', format('invalid_setting: %s must be on or off, got %L',
    p_name, left(current_setting(p_name), 80)), format('set %s = on', p_name));
end $$;
comment on function tuskline.boolean_setting(text) is
  'Value of a setting that is on or off; refuses (TK009) another text.';

-- Tells whether the caller may prepare its transaction (PREPARE TRANSACTION, XA): the setting
-- tuskline.two_phase.
--
-- PostgreSQL refuses to prepare a transaction that has sent a notification, and a prepared
-- transaction keeps its advisory locks. With the setting on, no verb sends a notification or takes a
-- wake lock. The workers then find the task at their safety poll, within a second.
-- An empty text counts as off: a session reads that after the end of a SET LOCAL.
create or replace function tuskline.is_two_phase() returns boolean language sql stable as $$
  select case coalesce(current_setting('tuskline.two_phase', true), '')
         when '' then false when 'off' then false when 'on' then true
         else tuskline.boolean_setting('tuskline.two_phase') end
$$;
comment on function tuskline.is_two_phase() is
  'Whether tuskline.two_phase is on: this transaction sends no notification and may be prepared.';

create or replace function tuskline.notify(p_channel text) returns void language sql as $$
  select pg_notify(p_channel, '') where not tuskline.is_two_phase()
$$;
comment on function tuskline.notify(text) is
  'Sends a notification without a payload, unless the transaction may be prepared (two_phase).';

-- wake: wakes only the sleeping. A controller about to wait holds its queue's exclusive session lock
-- and looks once more before it sleeps; we take the shared transaction lock. If we get it, nobody
-- sleeps, and nobody can fall asleep past our uncommitted rows until we end: no NOTIFY needed. A
-- NOTIFY takes a database-wide lock at commit (60-86 % of the insert rate), so a busy system must
-- send none. It is only ever a hint: without it tasks start within the safety poll (1 s).
create or replace function tuskline.is_watched(p_queue integer) returns boolean language sql as $$
  select case when tuskline.is_two_phase() then false
              else not pg_try_advisory_xact_lock_shared(1953854315, p_queue) end
$$;
comment on function tuskline.is_watched(integer) is 'Whether somebody sleeps on this queue (0: timers). If not, nobody can before this transaction ends.';

create or replace function tuskline.wake(p_queues integer[]) returns void
language plpgsql as $$
declare
  v_queue integer;
begin
  if cardinality(p_queues) > 16 then
    perform tuskline.notify('tuskline_queue');
    return;
  end if;
  foreach v_queue in array coalesce(p_queues, '{}') loop
    if tuskline.is_watched(v_queue) then
      perform pg_notify('tuskline_queue_' || v_queue, '');
    end if;
  end loop;
end $$;
comment on function tuskline.wake(integer[]) is 'Notifies the controllers that sleep on these queues, if any.';

-- wake_timer: the same for the store consumer. It naps at most 1 s, so only a timer due sooner than
-- that needs to wake it.
create or replace function tuskline.wake_timer(p_due timestamptz, p_now timestamptz) returns void
language plpgsql as $$
begin
  if p_due < p_now + interval '1 second' and tuskline.is_watched(0) then
    perform pg_notify('tuskline_timer', '');
  end if;
end $$;
comment on function tuskline.wake_timer(timestamptz, timestamptz) is 'Notifies a sleeping store consumer of a timer that is due within a second.';

-- doze: a controller's half. It holds the exclusive session lock of the queues it found empty, looks
-- once more, and sleeps. held: ours, whoever inserts from now on must notify. taken: another
-- controller holds it, and its notifications reach us too. busy: a producer is in the middle of a
-- transaction; poll. Session locks: on a direct connection only, never through a transaction pooler.
create or replace function tuskline.doze(p_queues integer[]) returns text[]
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_queue integer;
  v_said  text[] := '{}';
begin
  foreach v_queue in array p_queues loop
    if pg_try_advisory_lock(1953854315, v_queue) then
      v_said := v_said || 'held'::text;
    elsif pg_try_advisory_lock_shared(1953854315, v_queue) then
      perform pg_advisory_unlock_shared(1953854315, v_queue);
      v_said := v_said || 'busy'::text;
    else
      v_said := v_said || 'taken'::text;
    end if;
  end loop;
  return v_said;
end $$;
comment on function tuskline.doze(integer[]) is 'Before sleeping on empty queues (0: timers): held, taken or busy for each.';

create or replace function tuskline.rouse(p_queues integer[]) returns void
language sql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  select pg_advisory_unlock(1953854315, queue) from unnest(p_queues) as queue
$$;
comment on function tuskline.rouse(integer[]) is 'After waking: gives up the locks that doze answered held for.';
