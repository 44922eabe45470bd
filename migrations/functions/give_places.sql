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
    if r.kind = 'order' then
      v_next := array(select l.task_id from tuskline.line l where l.task_id = any (v_first) and l.rule_id + 0 = r.rule_id
        order by l.turn, l.task_id for update skip locked);
    else -- who is free goes before one that somebody has locked
      v_next := array(select l.task_id from tuskline.line l where l.rule_id = r.rule_id and l.key = v_key
        order by l.turn, l.task_id limit cardinality(v_first) for update skip locked);
    end if;
    if v_next <> '{}' then
      insert into tuskline.slot (rule_id, key, slot_no, task_id, taken_at)
      select r.rule_id, v_key, f.slot_no, n.id, p_now
        from unnest(v_next) with ordinality as n (id, nth)
             join (select i as slot_no, row_number() over (order by i) as nth
                     from generate_series(1, v_most) as i where i <> all (v_taken)) f using (nth);
      delete from tuskline.line l where l.task_id = any (v_next) and l.rule_id + 0 = r.rule_id;
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
language plpgsql as $$
begin
  perform tuskline.add_timers(array(
      select l.task_id from tuskline.line l where l.rule_id = p_rule and l.key = p_key
       order by l.turn, l.task_id limit p_first),
    array[p_now + interval '20 milliseconds'], 'recheck', p_now);
end $$;
comment on function tuskline.look_again(bigint, text, timestamptz, integer) is 'The first in a line asks for its place again, in a moment.';

-- give_turns: as many of the first in line as a rate allows by now. Those who went before may be dead rows
-- still, so the look begins where the line began last time, or with those who ask: everybody who joins asks,
-- or somebody before him does. Each 10 s it begins at the start. A fair line has no such mark: its rounds
-- begin anew.
create or replace function tuskline.give_turns(r tuskline.rule, p_keys text[], p_ids bigint[], p_now timestamptz) returns bigint[]
language plpgsql as $$
declare
  v_given bigint[] := '{}';
  v_key   text;
  v_at    timestamptz;
  v_from  double precision;
  v_above bigint;
  v_next  bigint[];
  v_turn  double precision;
  v_left  bigint;
begin
  for v_key in select distinct k from unnest(p_keys) as k order by 1 loop
    insert into tuskline.pace (rule_id, key, next_at) values (r.rule_id, v_key, '-infinity') on conflict do nothing;
    select greatest(p.next_at, p_now - (r.burst - 1) / r.per_second * interval '1 second'), f.turn, f.id into v_at, v_from, v_above
      from tuskline.pace p cross join lateral (
           select '-infinity'::double precision as turn, 0 as id where r.fair or p.swept_at <= p_now - interval '10 seconds'
           union all select p.mark, p.mark_id
           union all select l.turn, l.task_id - 1 from tuskline.line l where l.task_id = any (p_ids) and l.rule_id + 0 = r.rule_id and l.key = v_key
           order by 1, 2 limit 1) f
     where p.rule_id = r.rule_id and p.key = v_key;
    v_next := array(select l.task_id from tuskline.line l
      where l.rule_id = r.rule_id and l.key = v_key and (l.turn, l.task_id) > (v_from, v_above) order by l.turn, l.task_id
      limit case when v_at > p_now then 0 else 1 + floor(extract(epoch from p_now - v_at) * r.per_second + 1e-6) end for update skip locked);
    v_at := v_at + cardinality(v_next) / r.per_second * interval '1 second';
    v_turn := (select l.turn from tuskline.line l where l.task_id = v_next[cardinality(v_next)] and l.rule_id + 0 = r.rule_id);
    insert into tuskline.slot (rule_id, key, slot_no, task_id, taken_at) select r.rule_id, v_key, id, id, p_now from unnest(v_next) as id;
    delete from tuskline.line l where l.task_id = any (v_next) and l.rule_id + 0 = r.rule_id;
    select coalesce(l.turn, v_turn), coalesce(l.task_id - 1, v_next[cardinality(v_next)]), l.task_id into v_turn, v_above, v_left
      from (select) one left join lateral (select s.turn, s.task_id from tuskline.line s
             where s.rule_id = r.rule_id and s.key = v_key and (s.turn, s.task_id) > (v_from, v_above) order by s.turn, s.task_id limit 1) l on true;
    update tuskline.pace p
       set next_at = v_at, mark = coalesce(v_turn, p.mark), mark_id = coalesce(v_above, p.mark_id),
           swept_at = case when v_from = '-infinity' then p_now else p.swept_at end
     where p.rule_id = r.rule_id and p.key = v_key and (v_next <> '{}' or v_from = '-infinity' or (v_turn, v_above) < (p.mark, p.mark_id));
    if v_left is not null then
      perform tuskline.add_timers(array[v_left],
        array[greatest(v_at, p_now + interval '50 milliseconds')], 'recheck', p_now);
    end if;
    v_given := v_given || v_next;
  end loop;
  return v_given;
end $$;
comment on function tuskline.give_turns(tuskline.rule, text[], bigint[], timestamptz) is 'Lets as many first in line go as a rate allows by now.';
