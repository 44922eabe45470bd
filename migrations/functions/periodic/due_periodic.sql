-- Returns the schedules whose ticks a server must calculate, and when to call again.
--
-- The schedules come in random order, so that several servers share them. A schedule with
-- done_until in the future has seen the clock step back. Its ticks are owed again, and the key of
-- tick tells which of them were fired.
--
-- With p_after it returns all schedules after that name, due or not. A server that starts reads
-- them all: it may know other time zones than its predecessor.
--
-- Returns one array element per schedule:
--   sinces     calculate ticks after this time, up to until
--   on_times   a tick before this time is missed
--   max_ticks  how many of the missed ticks to return at most
--   troubles   last_error (its former name, which servers of function sets 1 and 2 read)
-- and in next_due_ms the time to the next tick (null: none).
create or replace function tuskline.due_periodic(
  p_limit        integer default 100,
  p_after        text    default null,
  p_installation text    default 'default',
  out until       timestamptz,
  out next_due_ms bigint,
  out names       text[],
  out versions    bigint[],
  out crons       text[],
  out zones       text[],
  out sinces      timestamptz[],
  out on_times    timestamptz[],
  out max_ticks   integer[],
  out ends        timestamptz[],
  out troubles    text[])
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now timestamptz := tuskline.clock();
begin
  perform tuskline.check_installation(p_installation);
  until := v_now;
  select array_agg(d.name), array_agg(d.version), array_agg(d.cron), array_agg(d.zone),
         array_agg(d.since), array_agg(d.on_time), array_agg(d.max_ticks),
         array_agg(d.ends_at), array_agg(d.last_error)
    into names, versions, crons, zones, sinces, on_times, max_ticks, ends, troubles
    from (select s.*,
                 greatest(least(s.done_until, v_now),
                          s.starts_at - interval '1 microsecond') as since,
                 v_now - s.grace as on_time,
                 case s.missed when 'all' then s.missed_max else 1 end as max_ticks
            from tuskline.periodic s
           where s.enabled
             and case when p_after is null
                      then s.next_tick is null or s.next_tick <= v_now or s.done_until > v_now
                      else s.name > p_after end
           order by case when p_after is null then random() end, s.name limit p_limit) d;
  -- A schedule with an error waits for another schedule to come due, or for the safety poll.
  select ceil(1000 * extract(epoch from
           min(greatest(coalesce(s.next_tick, v_now) - v_now, '0'))))
    into next_due_ms
    from tuskline.periodic s
   where s.enabled and s.last_error is null and s.next_tick is distinct from 'infinity';
end $$;
comment on function tuskline.due_periodic(integer, text, text) is
  'Returns the schedules whose ticks up to until a server must calculate, '
  'and the time to the next tick (ms; null: none).';

-- Records why a server cannot calculate or fire the ticks of a schedule.
--
-- The server cannot read the cron, does not know the zone, or has met an error. The rest of the
-- schedule stays as it is: a newer server may succeed.
create or replace function tuskline.note_schedule_error(
  p_name text, p_version bigint, p_error text)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  update tuskline.periodic set last_error = left(p_error, 500)
   where name = p_name and version = p_version and last_error is distinct from left(p_error, 500);
  return found;
end $$;
comment on function tuskline.note_schedule_error(text, bigint, text) is
  'Records why the ticks of a schedule cannot be calculated or fired. True: the reason is new.';
