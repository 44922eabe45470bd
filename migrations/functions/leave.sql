-- leave: tasks whose attempt has ended give their places back, each to whoever is first in its line. Says by
-- the tasks' own state what they keep: a retry keeps its place in the order, a failure blocks its key if the
-- rule says so.
create or replace function tuskline.leave(p_ids bigint[], p_now timestamptz) returns void
language plpgsql as $$
declare
  s       record;
  v_low   bigint := (select min(id) from unnest(p_ids) as id);
  v_high  bigint := (select max(id) from unnest(p_ids) as id);
  v_ids   bigint[];
  v_is    tuskline.status[];
  v_ended boolean[];
  v_first bigint;
  v_next  bigint[] := '{}';
begin
  v_ids := array(select distinct d.task_id from tuskline.slot d where d.task_id = any (p_ids) order by 1);
  if v_ids = '{}' then return; end if;
  select array_agg(t.status order by t.id), array_agg(t.finished_at is not null order by t.id) into v_is, v_ended
    from tuskline.task t where t.id = any (v_ids) and t.id between v_low and v_high;
  if cardinality(v_is) is distinct from cardinality(v_ids) then -- some are of segments that have gone
    select array_agg(t.id order by t.id), array_agg(t.status order by t.id), array_agg(t.finished_at is not null order by t.id)
      into v_ids, v_is, v_ended from tuskline.tasks t where t.id = any (v_ids);
  end if;
  for s in delete from tuskline.slot d using tuskline.rule r, unnest(v_ids, v_is, v_ended) as t (id, status, ended)
            where d.task_id = t.id and r.rule_id = d.rule_id and case
              when t.ended then not (r.kind = 'order' and r.on_failure = 'block' and t.status in ('fatal_failure', 'dead'))
              else t.status in ('new', 'retriable_failure') and r.kind <> 'order' end
          returning d.rule_id, d.key, d.slot_no, d.task_id, t.status, r.kind, r.most, r.on_failure loop
    continue when s.kind = 'rate';
    if s.kind = 'order' and s.on_failure = 'dead' and s.status in ('fatal_failure', 'dead') then
      perform tuskline.end_line(s.rule_id, s.key, s.task_id, p_now);
    end if;
    -- A limit that was lowered: this place is none any more, and the first in line looks whether there is another.
    if s.kind = 'concurrency' and s.slot_no > s.most then
      perform tuskline.look_again(s.rule_id, s.key, p_now);
      continue;
    end if;
    v_first := (select l.task_id from tuskline.line l where l.rule_id = s.rule_id and l.key = s.key order by l.turn, l.task_id limit 1);
    continue when v_first is null;
    -- Under a limit whoever is free goes before one that somebody has locked; in an order all wait for that one.
    if s.kind = 'concurrency' then
      v_first := coalesce((select l.task_id from tuskline.line l where l.rule_id = s.rule_id and l.key = s.key
        order by l.turn, l.task_id limit 1 for update skip locked), v_first);
    end if;
    delete from tuskline.line l where l.task_id = (
      select m.task_id from tuskline.line m where m.task_id = v_first and m.rule_id + 0 = s.rule_id for update skip locked) and l.rule_id + 0 = s.rule_id;
    if found then
      insert into tuskline.slot (rule_id, key, slot_no, task_id, taken_at) values (s.rule_id, s.key, s.slot_no, v_first, p_now);
      v_next := v_next || v_first;
    else
      perform tuskline.look_again(s.rule_id, s.key, p_now);
    end if;
  end loop;
  perform tuskline.go_on(v_next, p_now);
end $$;
comment on function tuskline.leave(bigint[], timestamptz) is 'Tasks give back the places that they need no more, each to the first in line.';

-- go_on: tasks that were given a place go into their queues, or to their next rule, at once: the claim of
-- this very exchange may find them. Those that somebody else has locked, or that gates are to be asked
-- about, go by way of the store consumer.
create or replace function tuskline.go_on(p_ids bigint[], p_now timestamptz) returns void
language plpgsql as $$
declare
  v_first bigint := (select min(id) from unnest(p_ids) as id);
  v_last  bigint := (select max(id) from unnest(p_ids) as id);
  v_free  bigint[] := '{}';
  v_rest  bigint[];
begin
  if p_ids = '{}' then return; end if;
  if not exists (select from tuskline.gate) then
    v_free := array(select t.id from tuskline.task t where t.id = any (p_ids) and t.id between v_first and v_last
      order by t.id for update skip locked);
    if v_free <> '{}' then perform tuskline.enqueue(v_free, p_now); end if;
  end if;
  v_rest := array(select unnest(p_ids) except select unnest(v_free)); -- hashed: a parent may have thousands of children
  insert into tuskline.timer (due, task_id) select p_now, id from unnest(v_rest) as id on conflict do nothing;
  if found then perform tuskline.wake_timer(p_now, p_now); end if;
end $$;
comment on function tuskline.go_on(bigint[], timestamptz) is 'Lets tasks that were given a place go on, some by way of the store consumer.';

create or replace function tuskline.end_line(p_rule bigint, p_key text, p_task bigint, p_now timestamptz) returns void
language plpgsql as $$
declare
  v_ids bigint[];
begin
  with l as (delete from tuskline.line where rule_id = p_rule and key = p_key returning task_id)
  select array_agg(task_id order by task_id) into v_ids from l;
  if v_ids is null then return; end if;
  with u as (
    update tuskline.task t set status = 'dead', finished_at = p_now, next_trigger_at = null
     where t.id = any (array(select o.id from tuskline.task o where o.id = any (v_ids) order by o.id for update))
       and t.status in ('new', 'retriable_failure') returning t.id, t.attempt, t.lambda)
  insert into tuskline.task_failure (task_id, fence, attempt, executor_id, error_class, message, fingerprint, failed_at)
  select u.id, nextval('tuskline.fence_seq'), u.attempt, 0, 'order', format('task %s before it, of the same ordering key, has failed', p_task),
         tuskline.fingerprint('order', u.lambda), p_now from u;
  perform tuskline.bury(v_ids);
  if exists (select from tuskline.in_use) then perform tuskline.follow(v_ids, p_now, false); end if;
end $$;
comment on function tuskline.end_line(bigint, text, bigint, timestamptz) is 'on_failure => dead: all that wait behind a failed task end.';
