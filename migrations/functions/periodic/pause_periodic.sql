-- Pauses a schedule. No tick is fired once the transaction has committed.
--
-- The schedule gets a new version, so fire_periodic refuses ticks that a server has calculated
-- before. Ticks of the pause are not owed, nor is a tick that was due but not fired when it began.
create or replace function tuskline.pause_periodic(p_name text, p_reason text default null)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  return tuskline_core.set_enabled(p_name, false, 'pause_periodic', p_reason);
end $$;
comment on function tuskline.pause_periodic(text, text) is
  'Pauses a schedule immediately. False: no schedule has that name. Audited.';

create or replace function tuskline.resume_periodic(p_name text, p_reason text default null)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  return tuskline_core.set_enabled(p_name, true, 'resume_periodic', p_reason);
end $$;
comment on function tuskline.resume_periodic(text, text) is
  'Resumes a paused schedule with its next tick. False: no schedule has that name. Audited.';

create or replace function tuskline_core.set_enabled(
  p_name text, p_enabled boolean, p_verb text, p_reason text)
returns boolean language plpgsql as $$
declare
  v_now timestamptz := tuskline.clock();
begin
  perform tuskline_core.need(s.lambda, 'operate') from tuskline.periodic s where s.name = p_name;
  update tuskline.periodic
     set enabled = p_enabled, version = nextval('tuskline.periodic_version_seq'),
         done_until = v_now, next_tick = null, last_error = null
   where name = p_name and enabled <> p_enabled;
  if not found then return exists (select from tuskline.periodic where name = p_name); end if;
  insert into tuskline.audit (at, verb, subject, detail)
  values (v_now, p_verb, 'periodic ' || p_name, p_reason);
  perform tuskline_core.notify('tuskline_periodic');
  return true;
end $$;
comment on function tuskline_core.set_enabled(text, boolean, text, text) is
  'Enables or disables a schedule. Changes nothing if it is in that state already.';

-- Schedules the task of a schedule once, due now, besides its ticks. Also of a paused one.
--
-- A person asks, so the policy for overlaps does not count, and the task is not its last_task.
-- The right to schedule is checked by schedule().
create or replace function tuskline.run_periodic(p_name text, p_reason text default null)
returns bigint language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_task bigint;
  s      tuskline.periodic;
begin
  select * into s from tuskline.periodic where name = p_name;
  if not found then return null; end if;
  v_task := tuskline.schedule(s.lambda, s.payload, s.priority::text, s.collection);
  insert into tuskline.audit (at, verb, subject, detail)
  values (tuskline.clock(), 'run_periodic', 'periodic ' || p_name,
          concat_ws(' ', 'task', v_task, p_reason));
  return v_task;
end $$;
comment on function tuskline.run_periodic(text, text) is
  'Schedules the task of a schedule once, due now. Returns it; null: no schedule has that name. '
  'Audited.';

create or replace function tuskline.drop_periodic(p_name text, p_reason text default null)
returns boolean language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_detail text;
begin
  perform tuskline_core.need(s.lambda, 'own') from tuskline.periodic s where s.name = p_name;
  delete from tuskline.periodic where name = p_name
  returning concat_ws(' ', lambda, cron, zone, p_reason) into v_detail;
  if not found then return false; end if;
  insert into tuskline.audit (at, verb, subject, detail)
  values (tuskline.clock(), 'drop_periodic', 'periodic ' || p_name, v_detail);
  perform tuskline_core.notify('tuskline_periodic');
  return true;
end $$;
comment on function tuskline.drop_periodic(text, text) is
  'Deletes a schedule. Tasks that it has scheduled remain. False: no schedule has that name. '
  'Audited.';
