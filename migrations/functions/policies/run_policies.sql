-- promote: the store consumer's third verb, asked for only while there are gates, flagged queues,
-- throttles, dropped rules, operations, breakers, or backlogs to be looked at. Opens gates and ends
-- throttles whose time is over; sorts flagged queues; lets the parked of opened gates go, and the
-- tasks in the wait lists of a dropped rule. A batch of each a call, SKIP LOCKED, so that a million
-- of them hold nothing up.
-- Call again at once while moved reaches the limit.
create or replace function tuskline.run_policies(
  p_limit integer default 1000, p_installation text default 'default',
  out moved integer, out next_due_ms bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off set lock_timeout = '100ms' set plan_cache_mode = force_generic_plan
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_now   timestamptz := tuskline.clock();
  v_limit_id  bigint;
  v_again timestamptz;
  v_seen  bigint;
  f       tuskline_core.flagged_queue;
  v_gate  bigint;
begin
  perform tuskline.check_installation(p_installation);
  moved := 0;
  -- One store consumer at a time: these lock lambdas and flagged queues.
  if tuskline_core.lock_policies() then
    perform tuskline_core.note_backlogs();
    if exists (select from tuskline.breaker) then perform tuskline_core.check_breakers(v_now); end if;
    perform tuskline_core.open_gate(o.gate_id, v_now, 'its time was over')
       from (select s.gate_id from tuskline.gate s join tuskline.lambda l on l.name = s.lambda
              where s.until <= v_now and s.opened_at is null order by s.gate_id for update of l skip locked) o;
    perform tuskline_core.end_rule(o.limit_id, v_now, 'its time was over')
       from (select s.limit_id from tuskline.task_limit s join tuskline.lambda l on l.name = s.lambda
              where s.until <= v_now and s.dropped_at is null
              order by s.limit_id for update of l skip locked) o;
    for f in select s.* from tuskline_core.flagged_queue s
              where s.unsorted order by s.queue_id for update skip locked loop
      if f.paused @> v_now then
        moved := moved + tuskline_core.empty_of_permits(f, v_now, p_limit);
      else
        moved := moved + tuskline_core.sort_queue(f, v_now, p_limit);
      end if;
    end loop;
  end if;
  for v_gate in select s.gate_id from tuskline.gate s
                 where s.opened_at is not null order by s.gate_id loop
    moved := moved + tuskline_core.release_parked(v_gate, v_now, p_limit);
  end loop;
  for v_limit_id in select r.limit_id from tuskline.task_limit r where r.dropped_at is not null order by r.limit_id loop
    moved := moved + tuskline_core.release_wait_list(v_limit_id, v_now, p_limit);
  end loop;
  if exists (select from tuskline.operation where ended_at is null) then
    select a.looked, a.next_at into v_seen, v_again from tuskline_core.advance_operations(v_now, p_limit) a;
    moved := moved + v_seen;
  end if;
  next_due_ms := case when moved >= p_limit then 0 else ceil(1000 * extract(epoch from (
    select min(d.due) - v_now
      from (select v_again as due
            union all
            select s.until from tuskline.gate s where s.until is not null and s.opened_at is null
            union all
            select r.until from tuskline.task_limit r
             where r.until is not null and r.dropped_at is null) d))) end;
end $$;
comment on function tuskline.run_policies(integer, text) is
  'Does what gates ask for: opens those that are over, sorts flagged queues, lets the parked go; '
  'carries operations out and looks at breakers. Says how many rows it looked at and when to look '
  'again (ms).';

-- A batch of what is parked behind an open gate. One store consumer at a time for each gate. The
-- search
-- begins above a mark, as what was let go before may be dead rows still; tasks below it, parked
-- since, are
-- found by looking at all before the gate's row is deleted.
create or replace function tuskline_core.release_parked(p_gate bigint, p_now timestamptz, p_limit integer)
returns integer language plpgsql as $$
declare
  v_mark bigint;
  v_ids  bigint[];
begin
  select g.mark into v_mark from tuskline.gate g
   where g.gate_id = p_gate for no key update skip locked;
  if not found then return 0; end if;
  v_ids := tuskline_core.lock_parked(p_gate, v_mark, p_limit);
  if v_ids = '{}' then v_ids := tuskline_core.lock_parked(p_gate, 0, p_limit); end if;
  if v_ids = '{}' then
    delete from tuskline.parked k where k.gate_id = p_gate
       and not exists (select from tuskline.tasks t where t.id = k.task_id and t.status in ('new', 'retriable_failure'));
    if exists (select from tuskline.parked k where k.gate_id = p_gate) then return 0; end if;
    delete from tuskline.gate where gate_id = (
      select s.gate_id from tuskline.gate s where s.gate_id = p_gate for update skip locked);
    return 0;
  end if;
  delete from tuskline.parked k where k.gate_id = p_gate and k.task_id = any (v_ids);
  update tuskline.gate set mark = v_ids[cardinality(v_ids)] where gate_id = p_gate;
  perform tuskline_core.run_effects('{}', v_ids, p_now, p_limit);
  return cardinality(v_ids);
end $$;
comment on function tuskline_core.release_parked(bigint, timestamptz, integer) is
  'Lets a batch go of what an open gate has parked; forgets the gate when it holds nothing more.';

-- lock_parked: locks the tasks that nobody else has locked, in id order.
create or replace function tuskline_core.lock_parked(p_gate bigint, p_mark bigint, p_limit integer) returns bigint[]
language sql as $$
  select array(
    select t.id from tuskline.task t
     where t.id = any (array(select k.task_id from tuskline.parked k
                              where k.gate_id = p_gate and k.task_id > p_mark order by k.task_id limit p_limit))
     order by t.id for update skip locked)
$$;
comment on function tuskline_core.lock_parked(bigint, bigint, integer) is 'Locks the first tasks behind a gate, above a mark.';

create or replace function tuskline_core.release_wait_list(p_limit_id bigint, p_now timestamptz, p_limit integer) returns integer
language plpgsql as $$
declare
  v_ids   bigint[];
  v_known text[];
  v_late  text[];
begin
  v_ids := array(
    select t.id from tuskline.task t
     where t.id = any (array(select l.task_id from tuskline.wait_list l where l.limit_id = p_limit_id limit p_limit))
     order by t.id for update skip locked);
  delete from tuskline.wait_list l where l.task_id = any (v_ids) and l.limit_id + 0 = p_limit_id;
  perform tuskline_core.run_effects('{}', v_ids, p_now, p_limit);
  if v_ids <> '{}' then return cardinality(v_ids); end if;
  select r.late_joiners into v_known from tuskline.task_limit r
   where r.limit_id = p_limit_id for no key update skip locked;
  if not found then return 0; end if;
  v_late := tuskline_core.late_joiners(v_known);
  if v_late = '{}' then
    delete from tuskline.wait_list l where l.limit_id = p_limit_id
       and not exists (select from tuskline.tasks t where t.id = l.task_id and t.status in ('new', 'retriable_failure'));
    delete from tuskline.task_limit r where r.limit_id = p_limit_id and not exists (select from tuskline.wait_list l where l.limit_id = p_limit_id);
  elsif v_late is distinct from v_known then
    update tuskline.task_limit r set late_joiners = v_late where r.limit_id = p_limit_id;
  end if;
  return 0;
end $$;
comment on function tuskline_core.release_wait_list(bigint, timestamptz, integer) is 'Lets a batch go of who stands in line for a dropped rule; forgets the rule after the last.';

-- late_joiners: transactions that may have read a rule before it was dropped, and still join its
-- wait lists. Each holds the lock of the table of wait lists to its end. The first look after the drop
-- notes them; one that began later reads the rule as dropped. A prepared transaction has another name
-- after a restart (-1/...), so each of these counts. Asked before the look at the wait lists.
create or replace function tuskline_core.late_joiners(p_known text[]) returns text[]
language sql volatile as $$
  select array(
    select distinct l.virtualtransaction from pg_locks l
     where l.locktype = 'relation' and l.relation = 'tuskline.wait_list'::regclass and l.granted
       and l.mode = 'RowExclusiveLock' and l.pid is distinct from pg_backend_pid()
       and l.database = (select d.oid from pg_database d where d.datname = current_database())
       and (p_known is null or l.virtualtransaction = any (p_known)
            or l.virtualtransaction like '-1/%')
     order by 1)
$$;
comment on function tuskline_core.late_joiners(text[]) is
  'Open transactions that may still join wait lists; of those known before, which are left.';
