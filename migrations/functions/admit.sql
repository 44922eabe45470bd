-- admit: what stood in a queue before there was a rule meets it when it is claimed. Who gets a place stays in
-- the claim, the others leave the queue and stand in line.
create or replace function tuskline.admit(p_ids bigint[], p_now timestamptz) returns bigint[]
language plpgsql as $$
declare
  v_first bigint := (select min(id) from unnest(p_ids) as id);
  v_last  bigint := (select max(id) from unnest(p_ids) as id);
  v_new   bigint[];
  v_in    bigint[];
begin
  v_new := array(select t.id from tuskline.task t join tuskline.rule r on r.lambda = t.lambda and r.dropped_at is null
    where t.id = any (p_ids) and t.id between v_first and v_last and t.status = 'enqueued' and tuskline.key_under(r, t) is not null
      and not exists (select from tuskline.slot s where s.task_id = t.id and s.rule_id + 0 = r.rule_id)
    group by t.id order by t.id);
  if v_new = '{}' then return p_ids; end if;
  update tuskline.task t set status = 'new', next_trigger_at = p_now where t.id = any (v_new) and t.id between v_first and v_last;
  v_in := tuskline.enter(v_new, p_now);
  update tuskline.task t set status = 'enqueued', next_trigger_at = p_now + interval '10 minutes' where t.id = any (v_in) and t.id between v_first and v_last;
  return array(select id from unnest(p_ids) as id where id <> all (v_new) or id = any (v_in) order by id);
end $$;
comment on function tuskline.admit(bigint[], timestamptz) is 'Of enqueued tasks, those that have their places under the rules, or get them now.';
