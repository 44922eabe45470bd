-- Acquires permits for tasks that are about to be enqueued or claimed, limit by limit, always in the
-- same order. A task that gets its permit goes on to the next limit. One that does not joins the
-- wait list and keeps the permits that it has. The tasks are locked.
--
-- Returns (verdicts) go: the tasks that need wait for none. permits: those of them that hold permits.
-- due: other tasks, which were first in a wait list and hold a permit now.
-- Locks: permits are granted under a row lock of the limit. A limit whose row is locked is tried again
-- in 20 ms. As all tasks acquire in the same order, no two wait for each other; that holds only if a
-- task that waits for one limit holds no permit of a later one: see step_back.
-- Planner: rule_id + 0 keeps it on the index by task_id, whatever the statistics say. A join to
-- the wait
-- list, planned when that was empty, read all of it for each task.
create or replace function tuskline.acquire_permits(p_ids bigint[], p_now timestamptz)
returns tuskline.verdicts language plpgsql as $$
declare
  v       tuskline.verdicts;
  r       tuskline.rule;
  v_rule  tuskline.rule;
  v_first bigint := (select min(id) from unnest(p_ids) as id);
  v_last  bigint := (select max(id) from unnest(p_ids) as id);
  v_out   bigint[] := '{}';
  v_ids   bigint[];
  v_keys  text[];
  v_turns double precision[];
  v_given bigint[];
  v_behind bigint[];
begin
  v.due := '{}';
  for r in select u.* from (select distinct t.lambda from tuskline.task t
                             where t.id = any (p_ids) and t.id between v_first and v_last) d
                  join tuskline.rule u on u.lambda = d.lambda and u.dropped_at is null
           order by u.lambda, u.rank, u.rule_id loop
    select array_agg(c.id), array_agg(c.key), array_agg(c.turn) into v_ids, v_keys, v_turns
      from (select t.id, tuskline.key_under(r, t) as key,
                   tuskline.turn_of(r.kind, t.priority, p_now) as turn
              from tuskline.task t
             where t.id = any (p_ids) and t.id between v_first and v_last and t.id <> all (v_out)
               and not exists (select from tuskline.slot s
                                where s.task_id = t.id and s.rule_id + 0 = r.rule_id)) c
     where c.key is not null;
    continue when v_ids is null;
    select u.* into v_rule from tuskline.rule u
     where u.rule_id = r.rule_id for no key update skip locked;
    if not found then
      perform tuskline.add_timers(v_ids, array[p_now + interval '20 milliseconds'], 'due', p_now);
      v_out := v_out || v_ids;
      continue;
    end if;
    continue when v_rule.dropped_at is not null;
    r := v_rule; -- as it is now: settings may have changed since we listed the rules
    if r.fair then v_turns := tuskline.turns(r.rule_id, v_ids); end if;
    insert into tuskline.line (rule_id, key, turn, task_id)
    select r.rule_id, c.key, c.turn, c.id from unnest(v_ids, v_keys, v_turns) as c (id, key, turn)
     where (select l.task_id from tuskline.line l
             where l.task_id = c.id and l.rule_id + 0 = r.rule_id limit 1) is null
       -- Granted meanwhile, by a task that released it.
       and (select s.task_id from tuskline.slot s
             where s.task_id = c.id and s.rule_id + 0 = r.rule_id limit 1) is null;
    if r.kind = 'rate' then
      v_given := tuskline.give_turns(r, v_keys, v_ids, p_now);
    else
      v_given := tuskline.give_places(r, v_keys, p_now);
    end if;
    v_behind := array(select id from unnest(v_ids) as id where id <> all (v_given));
    v_out := v_out || v_behind;
    perform tuskline.step_back(r, v_behind, p_now);
    v.due := v.due || array(select id from unnest(v_given) as id where id <> all (p_ids));
  end loop;
  v.go := array(select id from unnest(p_ids) as id where id <> all (v_out) order by id);
  v.permits := tuskline.permit_holders(v.go);
  return v;
end $$;
comment on function tuskline.acquire_permits(bigint[], timestamptz) is
  'Permits for tasks that come due or are popped; returns those that need wait for none, and other new holders.';

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
  perform tuskline.add_timers(array(
      select distinct o.task_id from tuskline.slot o
       where o.task_id = any (p_ids) and (p_rules is null or o.rule_id + 0 = any (p_rules))),
    array[p_now + interval '20 milliseconds'], 'recheck', p_now);
  perform tuskline.look_again(u.rule_id, u.key, p_now, 100) from unnest(v_rules, v_keys) as u (rule_id, key);
end $$;
comment on function tuskline.give_up(bigint[], bigint[], timestamptz) is 'Tasks leave their places and lines under these rules, or all; those first in line ask.';
