-- enter: asks the rules about tasks that are about to be enqueued, one rule after the other, always in the
-- same order. Who gets a place goes on to the next rule; who does not stands in line, keeping the places
-- it has. Returns those that have all they need, in id order. The caller has locked the tasks.
-- A rule's places are given by one at a time (the lock of its row), and given back by anybody (leave): a
-- place seen as taken may be given back while we look. So we lock what is taken: whoever gives it back
-- then waits for us, and sees who stands in line; a place that is locked is just being given back, and the
-- first in line looks again at once. (rule_id + 0: by the task's index, whatever the statistics say.)
-- As everybody takes his places in the same order, no two wait for each other; that holds only if nobody
-- waits for a rule with a place under a later one in his hands: see step_back.
create or replace function tuskline.enter(p_ids bigint[], p_now timestamptz) returns bigint[]
language plpgsql as $$
declare
  r        tuskline.rule;
  v_rule   tuskline.rule;
  v_first  bigint := (select min(id) from unnest(p_ids) as id);
  v_last   bigint := (select max(id) from unnest(p_ids) as id);
  v_out    bigint[] := '{}';
  v_ids    bigint[];
  v_keys   text[];
  v_turns  double precision[];
  v_given  bigint[];
  v_behind bigint[];
  v_others bigint[] := '{}';
begin
  for r in select u.* from (select distinct t.lambda from tuskline.task t where t.id = any (p_ids) and t.id between v_first and v_last) d
                  join tuskline.rule u on u.lambda = d.lambda and u.dropped_at is null
           order by u.lambda, u.rank, u.rule_id loop
    select array_agg(c.id), array_agg(c.key), array_agg(c.turn) into v_ids, v_keys, v_turns
      from (select t.id, tuskline.key_under(r, t) as key, tuskline.turn_of(r.kind, t.priority, p_now) as turn
              from tuskline.task t
             where t.id = any (p_ids) and t.id between v_first and v_last and t.id <> all (v_out) and t.status in ('new', 'retriable_failure')
               and not exists (select from tuskline.slot s where s.task_id = t.id and s.rule_id + 0 = r.rule_id)) c
     where c.key is not null;
    continue when v_ids is null;
    select u.* into v_rule from tuskline.rule u
     where u.rule_id = r.rule_id for no key update skip locked;
    if not found then
      insert into tuskline.timer (due, task_id) select p_now + interval '20 milliseconds', id from unnest(v_ids) as id on conflict do nothing;
      perform tuskline.wake_timer(p_now, p_now);
      v_out := v_out || v_ids;
      continue;
    end if;
    continue when v_rule.dropped_at is not null;
    r := v_rule; -- as it is now: settings may have changed since we listed the rules
    if r.fair then v_turns := tuskline.turns(r.rule_id, v_ids); end if;
    insert into tuskline.line (rule_id, key, turn, task_id)
    select r.rule_id, c.key, c.turn, c.id from unnest(v_ids, v_keys, v_turns) as c (id, key, turn)
     where not exists (select from tuskline.line l where l.task_id = c.id and l.rule_id + 0 = r.rule_id)
       -- Given to it meanwhile, by one who left.
       and not exists (select from tuskline.slot s where s.task_id = c.id and s.rule_id + 0 = r.rule_id);
    if r.kind = 'rate' then
      v_given := tuskline.give_turns(r, v_keys, v_ids, p_now);
    else
      v_given := tuskline.give_places(r, v_keys, p_now);
    end if;
    v_behind := array(select id from unnest(v_ids) as id where id <> all (v_given));
    v_out := v_out || v_behind;
    perform tuskline.step_back(r, v_behind, p_now);
    v_others := v_others || array(select id from unnest(v_given) as id where id <> all (p_ids));
  end loop;
  -- Others were first in line: they go on from here.
  perform tuskline.go_on(v_others, p_now);
  return array(select id from unnest(p_ids) as id where id <> all (v_out) order by id);
end $$;
comment on function tuskline.enter(bigint[], timestamptz) is 'Places under rules for tasks that come due; returns those that need wait for none.';

-- step_back: tasks that stand in line for a rule leave the places and the lines of those that come after it.
-- They have such if the rule was set when they had them already.
create or replace function tuskline.step_back(r tuskline.rule, p_ids bigint[], p_now timestamptz) returns void
language plpgsql as $$
declare
  v_later bigint[] := array(select u.rule_id from tuskline.rule u where u.lambda = r.lambda and (u.rank, u.rule_id) > (r.rank, r.rule_id));
begin
  if p_ids = '{}' or v_later = '{}' then return; end if;
  perform tuskline.give_up(p_ids, v_later, p_now);
end $$;
comment on function tuskline.step_back(tuskline.rule, bigint[], timestamptz) is 'Who waits for a rule gives up what he has of those after it.';

-- give_up: places and lines under these rules (null: all) are left. What somebody else has locked he is giving
-- or taking just now: its task asks again. Whoever is first in a line asks by a timer, not from here: this
-- transaction may stay open, and he may have to give up, too, and so may all behind him.
create or replace function tuskline.give_up(p_ids bigint[], p_rules bigint[], p_now timestamptz) returns void
language plpgsql as $$
declare
  v_rules bigint[];
  v_keys  text[];
begin
  with s as (
    delete from tuskline.slot d
     using (select o.rule_id, o.key, o.slot_no from tuskline.slot o
             where o.task_id = any (p_ids) and (p_rules is null or o.rule_id + 0 = any (p_rules)) for update skip locked) f
     where d.rule_id = f.rule_id and d.key = f.key and d.slot_no = f.slot_no returning d.rule_id, d.key
  ), l as (
    delete from tuskline.line d
     using (select o.rule_id, o.key, o.turn, o.task_id from tuskline.line o
             where o.task_id = any (p_ids) and (p_rules is null or o.rule_id + 0 = any (p_rules)) for update skip locked) f
     where d.rule_id = f.rule_id and d.key = f.key and d.turn = f.turn and d.task_id = f.task_id returning d.rule_id, d.key)
  select array_agg(u.rule_id), array_agg(u.key) into v_rules, v_keys
    from (select s.rule_id, s.key from s union select l.rule_id, l.key from l) u;
  insert into tuskline.timer (due, task_id)
  select distinct p_now + interval '20 milliseconds', o.task_id from tuskline.slot o
   where o.task_id = any (p_ids) and (p_rules is null or o.rule_id + 0 = any (p_rules)) on conflict do nothing;
  if found then perform tuskline.wake_timer(p_now, p_now); end if;
  perform tuskline.look_again(u.rule_id, u.key, p_now, 100) from unnest(v_rules, v_keys) as u (rule_id, key);
end $$;
comment on function tuskline.give_up(bigint[], bigint[], timestamptz) is 'Tasks leave their places and lines under these rules, or all; those first in line ask.';
