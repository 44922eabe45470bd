-- Defines a schedule by its name, or changes the settings of an existing one.
--
-- Every deploy may call it: the same settings change nothing, and a paused schedule stays paused.
-- If cron, zone, starts_at or ends_at change, the schedule starts again from now. Ticks of the old
-- settings that are not fired by now are not owed any more.
-- A server calculates the ticks once this commits. A cron or a zone that servers cannot read is
-- refused here.
create or replace function tuskline.define_periodic(
  p_name        text,
  p_lambda      text,
  p_cron        text,
  p_payload     text        default null,
  p_zone        text        default null,
  p_collection  text        default null,
  p_priority    text        default null,
  p_missed      text        default null,
  p_missed_most integer     default null,
  p_grace       interval    default null,
  p_overlap     text        default null,
  p_starts_at   timestamptz default null,
  p_ends_at     timestamptz default null)
returns text language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now   timestamptz := tuskline.clock();
  v_said  text := 'defined';
  v_other boolean; -- the times of the ticks change
  o       tuskline.periodic; -- old
  n       tuskline.periodic; -- new
begin
  p_zone        := coalesce(p_zone, 'UTC');
  p_missed      := coalesce(p_missed, 'once');
  p_missed_most := coalesce(p_missed_most, 100);
  p_grace       := coalesce(p_grace, '1 minute');
  p_overlap     := coalesce(p_overlap, 'allow');
  perform tuskline_core.need(p_lambda, 'own');
  perform tuskline_core.check_name('schedule', p_name);
  perform tuskline_core.check_periodic(
    p_cron, p_zone, p_missed, p_missed_most, p_grace, p_overlap, p_starts_at, p_ends_at);
  n := (p_name, p_lambda, tuskline_core.spaced_cron(p_cron), p_zone,
        tuskline_core.json_of('payload', p_payload),
        p_collection, tuskline_core.priority_of(p_priority),
        p_missed, p_missed_most, p_grace, p_overlap, p_starts_at, p_ends_at,
        true, tuskline_core.caller(), v_now, nextval('tuskline.periodic_version_seq'),
        v_now, null, null, null, null);
  perform tuskline_core.check_first(n, v_now);
  loop
    insert into tuskline.periodic select n.* on conflict do nothing;
    exit when found;
    select * into o from tuskline.periodic where name = p_name for update;
    continue when not found; -- dropped between the two statements
    perform tuskline_core.need(o.lambda, 'own');
    v_other := (o.cron, o.zone, o.starts_at, o.ends_at)
               is distinct from (n.cron, n.zone, n.starts_at, n.ends_at);
    if not v_other
       and (o.lambda, o.payload::text, o.collection, o.priority,
            o.missed, o.missed_max, o.grace, o.overlap)
           is not distinct from
           (n.lambda, n.payload::text, n.collection, n.priority,
            n.missed, n.missed_max, n.grace, n.overlap) then
      return 'unchanged';
    end if;
    update tuskline.periodic s
       set lambda = n.lambda, cron = n.cron, zone = n.zone, payload = n.payload,
           collection = n.collection, priority = n.priority,
           missed = n.missed, missed_max = n.missed_max, grace = n.grace, overlap = n.overlap,
           starts_at = n.starts_at, ends_at = n.ends_at,
           author = n.author, set_at = n.set_at, version = n.version,
           done_until = case when v_other then v_now else s.done_until end,
           next_tick = case when not v_other then s.next_tick end,
           last_error = case when not v_other then s.last_error end
     where s.name = p_name;
    v_said := 'changed';
    exit;
  end loop;
  insert into tuskline.audit (at, verb, subject, detail)
  values (v_now, 'define_periodic', 'periodic ' || p_name,
          concat_ws(' ', v_said, p_lambda, n.cron, p_zone,
                    'missed', p_missed, 'overlap', p_overlap));
  perform tuskline_core.notify('tuskline_periodic');
  return v_said;
end $$;
comment on function tuskline.define_periodic(
  text, text, text, text, text, text, text, text, integer, interval, text,
  timestamptz, timestamptz) is
  'Defines or changes a schedule: a task of p_lambda at each tick of p_cron (5 fields, or 6 with '
  'seconds) in the time zone p_zone (default UTC). p_missed: skip, once (default) or all, the '
  'latest p_missed_most (default 100), of ticks later than p_grace (default 1 minute). p_overlap: '
  'allow (default), skip or queue. Returns defined, changed or unchanged. Audited.';
select tuskline_core.make_overloads();

create or replace function tuskline_core.check_periodic(
  p_cron text, p_zone text, p_missed text, p_missed_most integer, p_grace interval,
  p_overlap text, p_starts_at timestamptz, p_ends_at timestamptz)
returns void language plpgsql stable as $$
declare
  v_cron  text := tuskline_core.cron_error(p_cron);
  v_wrong text := case
    when v_cron is not null
      then 'cron must have ' || v_cron
    when not exists (select from tuskline_core.time_zone z where z.name = p_zone)
      then format('zone must be the name of a time zone, as Europe/Berlin, got %L',
                  left(p_zone, 80))
    when p_missed not in ('skip', 'once', 'all')
      then format('missed must be skip, once or all, got %L', left(p_missed, 80))
    when p_missed_most not between 1 and 1000
      then format('missed_max must be 1 to 1000, got %s', p_missed_most)
    when p_grace not between '1 second' and '1 hour'
      then format('grace must be 1 second to 1 hour, got %s', p_grace)
    when p_overlap not in ('allow', 'skip', 'queue')
      then format('overlap must be allow, skip or queue, got %L', left(p_overlap, 80))
    when not isfinite(p_starts_at) or not isfinite(p_ends_at) or p_ends_at <= p_starts_at
      then format('starts_at and ends_at must be finite, and in this order, got %s, %s',
                  coalesce(p_starts_at::text, 'null'), coalesce(p_ends_at::text, 'null'))
  end;
begin
  if v_wrong is not null then
    raise exception using errcode = 'TK023', message = tuskline_core.message_of('TK023',
      'invalid_periodic: ' || v_wrong);
  end if;
end $$;
comment on function tuskline_core.check_periodic(
  text, text, text, integer, interval, text, timestamptz, timestamptz) is
  'Refuses (TK023) settings of a schedule that are out of range.';

-- Refuses a schedule if a task of it, scheduled now, would be refused for a mistake.
--
-- A later refusal, such as a full backlog, cannot be known here.
create or replace function tuskline_core.check_first(s tuskline.periodic, p_now timestamptz)
returns void language plpgsql as $$
declare
  v_largest integer := (select q.max_payload_bytes from tuskline.queue q
                         where q.lambda = s.lambda and q.priority = s.priority);
  v_mistake text;
  v_said    text[];
  t         tuskline.task;
begin
  t.lambda := coalesce(s.lambda, '');
  t.collection := s.collection;
  t.payload := s.payload;
  t.fence := 0; t.attempt := 0; t.crashes := 0; t.status := 'new';
  t.scheduled_at := p_now;
  t.next_trigger_at := p_now;
  v_mistake := tuskline_core.mistake_in(t, v_largest, p_now);
  if v_mistake is not null then
    v_said := tuskline_core.refusal_of(v_mistake, t, '');
    raise exception using errcode = v_said[1], message = v_said[2], hint = v_said[3];
  end if;
end $$;
comment on function tuskline_core.check_first(tuskline.periodic, timestamptz) is
  'Refuses a schedule whose tasks would be refused: unknown lambda, payload too large and so on.';
