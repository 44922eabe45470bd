-- enter: asks the rules about tasks that are about to be enqueued, one rule after the other, always in the
-- same order. Who gets a place goes on to the next rule; who does not stands in line, keeping the places
-- it has. Returns those that have all they need, in id order. The caller has locked the tasks.
-- A rule's places are given by one at a time (its advisory lock), and given back by anybody (leave): a
-- place seen as taken may be given back while we look. So we lock what is taken: whoever gives it back
-- then waits for us, and sees who stands in line; a place that is locked is just being given back, and the
-- first in line looks again at once.
create or replace function tuskline.enter(p_ids bigint[], p_now timestamptz) returns bigint[]
language plpgsql as $$
declare
  r       tuskline.rule;
  v_out   bigint[] := '{}';
  v_ids   bigint[];
  v_keys  text[];
  v_turns double precision[];
  v_given bigint[];
begin
  for r in select u.* from tuskline.rule u
            where u.dropped_at is null and u.lambda in (select distinct t.lambda from tuskline.task t where t.id = any (p_ids))
            order by u.kind = 'rate', u.kind = 'concurrency', not u.by_key, u.collection is null, u.priority is null, u.rule_id loop
    select array_agg(c.id), array_agg(c.key), array_agg(c.turn) into v_ids, v_keys, v_turns
      from (select t.id, tuskline.key_under(r, t) as key,
                   case when r.kind = 'order' then 0 else extract(epoch from p_now)
                     + 20 * (array_position(enum_range(null::tuskline.priority), t.priority) - 1) end as turn
              from tuskline.task t
             where t.id = any (p_ids) and t.id <> all (v_out) and t.status in ('new', 'retriable_failure')
               and not exists (select from tuskline.slot s where s.task_id = t.id and s.rule_id = r.rule_id)) c
     where c.key is not null;
    continue when v_ids is null;
    if not pg_try_advisory_xact_lock(1953854316, r.rule_id::integer) then
      insert into tuskline.timer (due, task_id) select p_now + interval '20 milliseconds', id from unnest(v_ids) as id on conflict do nothing;
      v_out := v_out || v_ids;
      continue;
    end if;
    continue when not exists (select from tuskline.rule u where u.rule_id = r.rule_id and u.dropped_at is null);
    if r.fair then v_turns := tuskline.turns(r.rule_id, v_ids); end if;
    insert into tuskline.line (rule_id, key, turn, task_id)
    select r.rule_id, c.key, c.turn, c.id from unnest(v_ids, v_keys, v_turns) as c (id, key, turn)
     where not exists (select from tuskline.line l where l.rule_id = r.rule_id and l.task_id = c.id)
       -- Given to it meanwhile, by one who left.
       and not exists (select from tuskline.slot s where s.rule_id = r.rule_id and s.task_id = c.id);
    if r.kind = 'rate' then
      v_given := tuskline.give_turns(r, v_keys, p_now);
    else
      v_given := tuskline.give_places(r, v_keys, p_now);
    end if;
    v_out := v_out || array(select id from unnest(v_ids) as id where id <> all (v_given));
    -- Others were first in line: they go on from here by themselves.
    insert into tuskline.timer (due, task_id) select p_now, id from unnest(v_given) as id where id <> all (p_ids) on conflict do nothing;
  end loop;
  return array(select id from unnest(p_ids) as id where id <> all (v_out) order by id);
end $$;
comment on function tuskline.enter(bigint[], timestamptz) is 'Places under rules for tasks that come due; returns those that need wait for none.';

create or replace function tuskline.key_under(r tuskline.rule, t tuskline.task) returns text
language sql immutable as $$
  select case when t.lambda <> r.lambda or t.collection is distinct from coalesce(r.collection, t.collection)
                or t.priority <> coalesce(r.priority, t.priority) then null
              when r.kind = 'order' then t.ordering_key when r.by_key then t.limit_key else '' end
$$;
comment on function tuskline.key_under(tuskline.rule, tuskline.task) is 'What a rule counts a task by; empty: all together; null: not at all.';

-- admit: what stood in a queue before there was a rule meets it when it is claimed. Who gets a place stays in
-- the claim, the others leave the queue and stand in line.
create or replace function tuskline.admit(p_ids bigint[], p_now timestamptz) returns bigint[]
language plpgsql as $$
declare
  v_new bigint[];
  v_in  bigint[];
begin
  v_new := array(select t.id from tuskline.task t join tuskline.rule r on r.lambda = t.lambda and r.dropped_at is null
    where t.id = any (p_ids) and t.status = 'enqueued' and tuskline.key_under(r, t) is not null
      and not exists (select from tuskline.slot s where s.task_id = t.id and s.rule_id = r.rule_id)
    group by t.id order by t.id);
  if v_new = '{}' then return p_ids; end if;
  update tuskline.task t set status = 'new', next_trigger_at = p_now where t.id = any (v_new);
  v_in := tuskline.enter(v_new, p_now);
  update tuskline.task t set status = 'enqueued', next_trigger_at = p_now + interval '10 minutes' where t.id = any (v_in);
  return array(select id from unnest(p_ids) as id where id <> all (v_new) or id = any (v_in) order by id);
end $$;
comment on function tuskline.admit(bigint[], timestamptz) is 'Of enqueued tasks, those that have their places under the rules, or get them now.';
