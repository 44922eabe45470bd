-- Fires the ticks of a schedule up to p_until: each becomes a task, or a row that says why not.
--
-- p_next is the first tick after p_until. Ticks that are missed or overlap are judged here, not by
-- the server that calculated them.
-- Returns the number of tasks. Null: nothing was fired, and the server reads the schedule again.
-- The schedule has another version, is paused, dropped or locked, or p_until is in the future.
--
-- Guarantees: a tick is fired once, by any number of servers without a leader. The tasks commit
-- together with the keys of their ticks (tick_pkey), under the row lock of the schedule.
--
-- Locks: the row of the schedule. The lock is only tried.
create or replace function tuskline.fire_periodic(
  p_name         text,
  p_version      bigint,
  p_until        timestamptz,
  p_ticks        timestamptz[],
  p_next         timestamptz,
  p_installation text default 'default')
returns integer language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now    timestamptz := tuskline.clock();
  v_ticks  timestamptz[]; -- ticks that no call has fired
  v_wanted timestamptz[]; -- missed ticks of v_ticks that still become tasks
  v_tick   timestamptz;
  v_task   bigint;
  v_reason text;
  v_fired  integer := 0;
  s        tuskline.periodic;
begin
  perform tuskline.check_installation(p_installation);
  select * into s from tuskline.periodic
   where name = p_name and version = p_version and enabled for update skip locked;
  if not found or coalesce(p_until > v_now, true) then return null; end if;
  perform tuskline_core.check_ticks(s, p_until, p_ticks, p_next);
  v_ticks := array(
    select u.tick from unnest(p_ticks) as u (tick)
     where not exists (select from tuskline.tick k where k.name = p_name and k.tick = u.tick)
     order by 1);
  if p_ticks = '{}' and s.last_error is null
     and s.next_tick is not distinct from coalesce(p_next, 'infinity')
     and s.done_until <= p_until then
    return 0;
  end if;
  v_wanted := array(
    select u.tick from unnest(v_ticks) as u (tick)
     where u.tick < v_now - s.grace order by 1 desc
     limit case s.missed when 'skip' then 0 when 'once' then 1 else s.missed_max end);
  foreach v_tick in array v_ticks loop
    v_task := null;
    if v_tick < v_now - s.grace and v_tick <> all (v_wanted) then
      v_reason := 'missed: ' || (v_now - v_tick) || ' late';
    else
      select t.task, t.reason into v_task, v_reason from tuskline_core.run_tick(s, v_tick) t;
    end if;
    insert into tuskline.tick (name, tick, task_id, reason, fired_at)
    values (p_name, v_tick, v_task, v_reason, v_now);
    continue when v_task is null;
    v_fired := v_fired + 1;
    s.last_task := v_task;
  end loop;
  update tuskline.periodic
     set version = nextval('tuskline.periodic_version_seq'), done_until = p_until,
         next_tick = coalesce(p_next, 'infinity'),
         last_tick = greatest(last_tick, v_ticks[cardinality(v_ticks)]),
         last_task = s.last_task, last_error = null
   where name = p_name;
  return v_fired;
end $$;
comment on function tuskline.fire_periodic(
  text, bigint, timestamptz, timestamptz[], timestamptz, text) is
  'Fires the ticks of a schedule up to p_until; p_next is the first tick after that. '
  'Returns the number of tasks; null: read the schedule again.';

create or replace function tuskline_core.check_ticks(
  s tuskline.periodic, p_until timestamptz, p_ticks timestamptz[], p_next timestamptz)
returns void language plpgsql immutable as $$
declare
  v_wrong timestamptz;
begin
  if cardinality(p_ticks) > 1000 then
    raise exception using errcode = 'TK024', message = tuskline_core.message_of('TK024',
      format('invalid_tick: at most 1000 a call, got %s', cardinality(p_ticks)));
  end if;
  select u.tick into v_wrong from unnest(p_ticks) as u (tick)
   where u.tick is null or not isfinite(u.tick)
      or u.tick > p_until or u.tick < s.starts_at or u.tick >= s.ends_at limit 1;
  if found or p_next <= p_until or p_next >= s.ends_at then
    raise exception using errcode = 'TK024', message = tuskline_core.message_of('TK024',
      format('invalid_tick: ticks of %s must be at most %s, the next after that, and all between '
             'its start and its end, got %s, next %s',
             s.name, p_until, coalesce(v_wrong::text, 'none wrong'),
             coalesce(p_next::text, 'none')));
  end if;
end $$;
comment on function tuskline_core.check_ticks(
  tuskline.periodic, timestamptz, timestamptz[], timestamptz) is
  'Refuses (TK024) ticks that the schedule cannot have.';

-- Schedules the task of one tick, due at the time of the tick.
--
-- Returns the task, or the reason why there is none. A refusal of the store (TK...) is a reason as
-- well, so it does not stop the schedule. Examples are a full backlog, a payload that is too large
-- by now, and a chain of more than 1000 tasks.
create or replace function tuskline_core.run_tick(
  s tuskline.periodic, p_tick timestamptz, out task bigint, out reason text)
language plpgsql as $$
declare
  v_busy boolean := s.overlap <> 'allow' and exists (
    select from tuskline_core.all_tasks t where t.id = s.last_task and t.finished_at is null);
begin
  if v_busy and s.overlap = 'skip' then
    reason := format('overlap: task %s has not ended', s.last_task);
    return;
  end if;
  if v_busy then
    select c.ids[1] into task
      from tuskline.schedule_chain(json_build_array(json_build_object(
             'lambda', s.lambda, 'payload', s.payload, 'collection', s.collection,
             'priority', s.priority, 'scheduled_at', p_tick,
             'after', json_build_array(json_build_object(
                        'task', s.last_task, 'on', 'always'))))) c;
  else
    task := tuskline.schedule(s.lambda, s.payload, s.priority::text, s.collection, p_tick);
  end if;
exception when others then
  if sqlstate !~ '^TK' then raise; end if;
  task := null;
  reason := sqlerrm;
end $$;
comment on function tuskline_core.run_tick(tuskline.periodic, timestamptz) is
  'Schedules the task of a tick, or returns the reason why there is none.';

-- Deletes ticks older than 7 days, but none from the last tick of its schedule on.
create or replace function tuskline_core.purge_ticks(p_limit integer, p_now timestamptz)
returns bigint language plpgsql as $$
declare
  v_name text := (select min(k.name) from tuskline.tick k);
  v_gone bigint := 0;
  v_rows bigint;
begin
  while v_name is not null and v_gone < p_limit loop
    delete from tuskline.tick t where t.name = v_name and t.tick = any (array(
      select k.tick from tuskline.tick k
       where k.name = v_name
         and k.tick < least(p_now - interval '7 days',
                            (select s.last_tick from tuskline.periodic s where s.name = v_name))
       order by k.tick limit p_limit - v_gone for update skip locked));
    get diagnostics v_rows = row_count;
    v_gone := v_gone + v_rows;
    v_name := (select min(k.name) from tuskline.tick k where k.name > v_name);
  end loop;
  return v_gone;
end $$;
comment on function tuskline_core.purge_ticks(integer, timestamptz) is
  'Deletes a batch of old ticks. Returns how many.';
