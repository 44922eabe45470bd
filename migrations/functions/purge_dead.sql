-- purge_dead: dead letters go before their retention is over, for good, with their history. A batch a call.
-- Who is in some redrive's or retry's hands just then stays. A key that one of them blocked goes on. They are
-- archived first, if that is asked of their lambda; but nobody here writes files.
create or replace function tuskline.purge_dead(
  p_lambda text, p_fingerprint text default null, p_before timestamptz default null, p_limit integer default 5000)
returns bigint language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now timestamptz := tuskline.clock();
  v_ids bigint[];
begin
  if p_lambda is null then perform tuskline.refuse('TK025', 'invalid_redrive: give a lambda'); end if;
  perform tuskline.check_dead(p_lambda, null, p_limit);
  if exists (select from tuskline.lambda l where l.name = p_lambda and l.archive = 'file') then
    perform tuskline.refuse('TK030', format('invalid_purge: tasks of %s are archived to files first', p_lambda),
      format('tuskline purge --lambda %s --status dead --status fatal_failure --archive-dir ...', p_lambda));
  end if;
  v_ids := array(select d.task_id from tuskline.dead_letter d
    where d.lambda = p_lambda and (p_fingerprint is null or d.fingerprint = p_fingerprint) and (p_before is null or d.died_at <= p_before)
    order by d.fingerprint, d.task_id limit p_limit);
  v_ids := array(select t.id from tuskline.task t where t.id = any (v_ids) and t.status in ('dead', 'fatal_failure') order by t.id for update skip locked)
    || array(select k.id from tuskline.task_kept k where k.id = any (v_ids) and k.status in ('dead', 'fatal_failure') order by k.id for update skip locked);
  if v_ids = '{}' then return 0; end if;
  if exists (select from tuskline.guarded) then perform tuskline.give_up(v_ids, null, v_now); end if;
  perform tuskline.delete_tasks(v_ids, v_now);
  insert into tuskline.audit (at, verb, subject, detail)
  values (v_now, 'purge_dead', p_lambda, concat_ws(' ', cardinality(v_ids), 'tasks', 'fingerprint ' || p_fingerprint, 'died before ' || p_before));
  return cardinality(v_ids);
end $$;
comment on function tuskline.purge_dead(text, text, timestamptz, integer) is
  'Deletes a batch of the dead letters of a lambda: all, of one fingerprint, or of those that had died by then. Call until 0. Audited.';
