-- Refuses a process that belongs to another installation.
--
-- A copy of a database contains everything of the original, also its tasks. A worker or server that
-- reaches the copy by mistake would execute them: a staging copy would send production's mails.
-- Therefore register_executor and the server's verbs check the name that the process was given.
-- Scheduling and reading need no name. The default name of a database and of a process is
-- 'default'.
create or replace function tuskline.check_installation(p_name text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_name text := (select i.name from tuskline.installation i);
begin
  if v_name = coalesce(p_name, 'default') then return; end if;
  if v_name is null then
    perform tuskline_core.refuse('TK041', 'wrong_installation: tuskline.installation has no row',
      'run: tuskline repair');
  end if;
  perform tuskline_core.refuse('TK041', format(
    'wrong_installation: this database is installation %L, the process says %L',
    v_name, left(coalesce(p_name, 'default'), 80)),
    format('set TUSKLINE_INSTALLATION=%s if the process belongs here', v_name));
end $$;
comment on function tuskline.check_installation(text) is
  'Refuses (TK041) a worker or server that has the name of another installation.';

-- Names this installation, ends every worker of the old name, and on request pauses every lambda.
--
-- p_hold: a pause replaces each drop or divert of a whole lambda. No task of a paused queue starts.
-- Returns the old name.
-- Locks: the row of the installation. A worker that registers at the same time holds it FOR SHARE:
-- either it is ended here, or it reads the new name and is refused.
create or replace function tuskline.adopt(
  p_name text, p_hold boolean default false, p_reason text default null)
returns text language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now    timestamptz := tuskline.clock();
  v_old    text;
  v_reason text := coalesce(p_reason, format('held when the installation became %s', p_name));
  v_ids    bigint[];
  g        record;
begin
  perform tuskline_core.check_name('installation', p_name);
  select i.name into v_old from tuskline.installation i for no key update;
  update tuskline.installation
     set name = p_name, named_by = tuskline_core.caller(), named_at = v_now;
  if v_old <> p_name then
    v_ids := array(select e.executor_id from tuskline.executor e
                    where e.ended_at is null order by e.executor_id for update);
    update tuskline.executor set ended_at = v_now, end_reason = 'adopted', expires_at = v_now
     where executor_id = any (v_ids);
    delete from tuskline_core.live_executor where executor_id = any (v_ids);
  end if;
  if p_hold then
    for g in select * from tuskline.gate w
              where w.opened_at is null and w.action <> 'pause'
                and w.collection is null and w.priority is null
              order by w.lambda, w.gate_id loop
      perform tuskline.ungate(g.gate_id);
      perform tuskline.gate(g.lambda, 'pause', g.collection, g.priority::text,
        p_reason => v_reason, p_unseen => true);
    end loop;
    perform tuskline.gate(l.name, 'pause', p_reason => v_reason)
       from (select name from tuskline.lambda order by name) l
      where not exists (select from tuskline.gate w where w.lambda = l.name
                          and w.opened_at is null and w.collection is null and w.priority is null);
  end if;
  insert into tuskline.audit (at, verb, subject, detail)
  values (v_now, 'adopt', 'installation ' || p_name,
          concat_ws(' ', 'was', v_old, case when p_hold then 'every lambda paused' end, p_reason));
  return v_old;
end $$;
comment on function tuskline.adopt(text, boolean, text) is
  'Names this installation and ends the workers of its old name; p_hold pauses every lambda. '
  'Returns the old name. Audited.';
