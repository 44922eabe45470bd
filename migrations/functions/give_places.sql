-- give_places: the free places of some keys of a limit, or of an order, to those first in line. Nobody is
-- overtaken in an order because somebody else has just locked his place in line: then all look again.
create or replace function tuskline.give_places(r tuskline.rule, p_keys text[], p_now timestamptz) returns bigint[]
language plpgsql as $$
declare
  v_most  integer := case when r.kind = 'order' then 1 else r.most end;
  v_given bigint[] := '{}';
  v_key   text;
  v_taken bigint[];
  v_still bigint[];
  v_first bigint[];
  v_next  bigint[];
begin
  for v_key in select distinct k from unnest(p_keys) as k order by 1 loop
    v_taken := array(select s.slot_no from tuskline.slot s where s.rule_id = r.rule_id and s.key = v_key);
    v_first := array(select l.task_id from tuskline.line l where l.rule_id = r.rule_id and l.key = v_key
      order by l.turn, l.task_id limit greatest(0, v_most - cardinality(v_taken)));
    v_next := array(select l.task_id from tuskline.line l where l.rule_id = r.rule_id and l.key = v_key and l.task_id = any (v_first)
      order by l.turn, l.task_id for update skip locked);
    if v_next <> '{}' then
      insert into tuskline.slot (rule_id, key, slot_no, task_id, taken_at)
      select r.rule_id, v_key, f.slot_no, n.id, p_now
        from unnest(v_next) with ordinality as n (id, nth)
             join (select i as slot_no, row_number() over (order by i) as nth
                     from generate_series(1, v_most) as i where i <> all (v_taken)) f using (nth);
      delete from tuskline.line l where l.rule_id = r.rule_id and l.key = v_key and l.task_id = any (v_next);
      v_given := v_given || v_next;
    end if;
    continue when not exists (select from tuskline.line l where l.rule_id = r.rule_id and l.key = v_key);
    v_still := array(select s.slot_no from tuskline.slot s where s.rule_id = r.rule_id and s.key = v_key and s.slot_no = any (v_taken)
      order by s.slot_no for update skip locked);
    if cardinality(v_still) < cardinality(v_taken) or cardinality(v_next) < cardinality(v_first) then
      perform tuskline.look_again(r.rule_id, v_key, p_now);
    end if;
  end loop;
  return v_given;
end $$;
comment on function tuskline.give_places(tuskline.rule, text[], timestamptz) is 'Gives the free places of some keys to those first in line.';

create or replace function tuskline.look_again(p_rule bigint, p_key text, p_now timestamptz, p_first integer default 1) returns void
language sql as $$
  insert into tuskline.timer (due, task_id)
  select p_now + interval '20 milliseconds', l.task_id from tuskline.line l where l.rule_id = p_rule and l.key = p_key
   order by l.turn, l.task_id limit p_first on conflict do nothing
$$;
comment on function tuskline.look_again(bigint, text, timestamptz, integer) is 'The first in a line asks for its place again, in a moment.';

create or replace function tuskline.give_turns(r tuskline.rule, p_keys text[], p_now timestamptz) returns bigint[]
language plpgsql as $$
declare
  v_given bigint[] := '{}';
  v_key   text;
  v_at    timestamptz;
  v_next  bigint[];
begin
  for v_key in select distinct k from unnest(p_keys) as k order by 1 loop
    insert into tuskline.pace (rule_id, key, next_at) values (r.rule_id, v_key, '-infinity') on conflict do nothing;
    select greatest(p.next_at, p_now - (r.burst - 1) / r.per_second * interval '1 second') into v_at
      from tuskline.pace p where p.rule_id = r.rule_id and p.key = v_key;
    v_next := array(select l.task_id from tuskline.line l where l.rule_id = r.rule_id and l.key = v_key order by l.turn, l.task_id
      limit case when v_at > p_now then 0 else 1 + floor(extract(epoch from p_now - v_at) * r.per_second + 1e-6) end for update skip locked);
    v_at := v_at + cardinality(v_next) / r.per_second * interval '1 second';
    update tuskline.pace p set next_at = v_at where p.rule_id = r.rule_id and p.key = v_key and v_next <> '{}';
    insert into tuskline.slot (rule_id, key, slot_no, task_id, taken_at) select r.rule_id, v_key, id, id, p_now from unnest(v_next) as id;
    delete from tuskline.line l where l.rule_id = r.rule_id and l.key = v_key and l.task_id = any (v_next);
    insert into tuskline.timer (due, task_id)
    select greatest(v_at, p_now + interval '50 milliseconds'), l.task_id from tuskline.line l where l.rule_id = r.rule_id and l.key = v_key
     order by l.turn, l.task_id limit 1 on conflict do nothing;
    v_given := v_given || v_next;
  end loop;
  return v_given;
end $$;
comment on function tuskline.give_turns(tuskline.rule, text[], timestamptz) is 'Lets as many first in line go as a rate allows by now.';
