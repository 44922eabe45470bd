-- due_periodic: what a server asks: which schedules want their ticks calculated, and when to ask again. In
-- any order, so that servers share them. One that was done until later than now has seen the clock step
-- back: its ticks are owed again, and the key of tick tells which of them were fired.
-- p_after: all schedules after this name, due or not, for a server that starts: it may know other time zones
-- than the one before it.
create or replace function tuskline.due_periodic(
  p_limit integer default 100, p_after text default null,
  p_installation text default 'default',
  out until timestamptz, out next_due_ms bigint, out names text[], out versions bigint[], out crons text[], out zones text[],
  out sinces timestamptz[], out on_times timestamptz[], out max_ticks integer[], out ends timestamptz[], out troubles text[])
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now timestamptz := tuskline.clock();
begin
  perform tuskline.check_installation(p_installation);
  until := v_now;
  select array_agg(d.name), array_agg(d.version), array_agg(d.cron), array_agg(d.zone), array_agg(d.since), array_agg(d.on_time),
         array_agg(d.max_ticks), array_agg(d.ends_at), array_agg(d.trouble)
    into names, versions, crons, zones, sinces, on_times, max_ticks, ends, troubles
    from (select s.*, greatest(least(s.done_until, v_now), s.starts_at - interval '1 microsecond') as since, v_now - s.grace as on_time,
                 case s.missed when 'all' then s.missed_max else 1 end as max_ticks
            from tuskline.periodic s
           where s.enabled and case when p_after is null then s.next_tick is null or s.next_tick <= v_now or s.done_until > v_now else s.name > p_after end
           order by case when p_after is null then random() end, s.name limit p_limit) d;
  -- One in trouble is looked at when there is something else to do, or with the safety poll.
  select ceil(1000 * extract(epoch from min(greatest(coalesce(s.next_tick, v_now) - v_now, '0')))) into next_due_ms
    from tuskline.periodic s where s.enabled and s.trouble is null and s.next_tick is distinct from 'infinity';
end $$;
comment on function tuskline.due_periodic(integer, text, text) is
  'Schedules whose ticks up to now (until) are to be calculated: after when (sinces), from when on they are on time, how many of those missed are wanted at most. And how long until the next (ms; null: none).';

-- note_schedule_error: a server that cannot read a cron, does not know its zone, or meets an error when it fires, says
-- so, and leaves the rest as it is: another may be newer. Returns whether that is news.
create or replace function tuskline.note_schedule_error(p_name text, p_version bigint, p_trouble text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  update tuskline.periodic set trouble = left(p_trouble, 500)
   where name = p_name and version = p_version and trouble is distinct from left(p_trouble, 500);
  return found;
end $$;
comment on function tuskline.note_schedule_error(text, bigint, text) is 'Says of a schedule why its ticks cannot be calculated or fired. True: that is news.';
