-- Acquires permits for tasks that are about to be enqueued or claimed, limit by limit, always in the
-- same order. A task that gets its permit goes on to the next limit. One that does not joins the
-- wait list and keeps the permits that it has. The tasks are locked.
--
-- Returns (verdicts) go: the tasks that need wait for none. permits: those of them that hold permits.
-- due: other tasks, which were first in a wait list and hold a permit now.
-- Locks: permits are granted under a row lock of the limit. A limit whose row is locked is tried again
-- in 20 ms. As all tasks acquire in the same order, no two wait for each other; that holds only if a
-- task that waits for one limit holds no permit of a later one: see release_later_permits.
-- Planner: limit_id + 0 keeps it on the index by task_id, whatever the statistics say. A join to
-- the wait
-- list, planned when that was empty, read all of it for each task.
create or replace function tuskline_core.acquire_permits(p_ids bigint[], p_now timestamptz)
returns tuskline_core.verdicts language plpgsql as $$
declare
  v       tuskline_core.verdicts;
  r       tuskline.task_limit;
  v_limit  tuskline.task_limit;
  v_first bigint := (select min(id) from unnest(p_ids) as id);
  v_last  bigint := (select max(id) from unnest(p_ids) as id);
  v_out   bigint[] := '{}';
  v_ids   bigint[];
  v_keys  text[];
  v_positions double precision[];
  v_given bigint[];
  v_behind bigint[];
begin
  v.due := '{}';
  for r in select u.* from (select distinct t.lambda from tuskline.task t
                             where t.id = any (p_ids) and t.id between v_first and v_last) d
                  join tuskline.task_limit u on u.lambda = d.lambda and u.dropped_at is null
           order by u.lambda, u.rank, u.limit_id loop
    select array_agg(c.id), array_agg(c.key), array_agg(c.position) into v_ids, v_keys, v_positions
      from (select t.id, tuskline_core.counting_key(r, t) as key,
                   tuskline_core.arrival_position(r.kind, t.priority, p_now) as position
              from tuskline.task t
             where t.id = any (p_ids) and t.id between v_first and v_last and t.id <> all (v_out)
               and not exists (select from tuskline.permit s
                                where s.task_id = t.id and s.limit_id + 0 = r.limit_id)) c
     where c.key is not null;
    continue when v_ids is null;
    select u.* into v_limit from tuskline.task_limit u
     where u.limit_id = r.limit_id for no key update skip locked;
    if not found then
      perform tuskline_core.add_timers(v_ids, array[p_now + interval '20 milliseconds'], 'due', p_now);
      v_out := v_out || v_ids;
      continue;
    end if;
    continue when v_limit.dropped_at is not null;
    r := v_limit; -- as it is now: settings may have changed since we listed the rules
    if r.fair then v_positions := tuskline_core.fair_positions(r.limit_id, v_ids); end if;
    insert into tuskline.wait_list (limit_id, key, position, task_id)
    select r.limit_id, c.key, c.position, c.id from unnest(v_ids, v_keys, v_positions) as c (id, key, position)
     where (select l.task_id from tuskline.wait_list l
             where l.task_id = c.id and l.limit_id + 0 = r.limit_id limit 1) is null
       -- Granted meanwhile, by a task that released it.
       and (select s.task_id from tuskline.permit s
             where s.task_id = c.id and s.limit_id + 0 = r.limit_id limit 1) is null;
    if r.kind = 'rate' then
      v_given := tuskline_core.grant_rate(r, v_keys, v_ids, p_now);
    else
      v_given := tuskline_core.grant_concurrency(r, v_keys, p_now);
    end if;
    v_behind := array(select id from unnest(v_ids) as id where id <> all (v_given));
    v_out := v_out || v_behind;
    perform tuskline_core.release_later_permits(r, v_behind, p_now);
    v.due := v.due || array(select id from unnest(v_given) as id where id <> all (p_ids));
  end loop;
  v.go := array(select id from unnest(p_ids) as id where id <> all (v_out) order by id);
  v.permits := tuskline_core.permit_holders(v.go);
  return v;
end $$;
comment on function tuskline_core.acquire_permits(bigint[], timestamptz) is
  'Permits for tasks that come due or are popped; returns those that need wait for none, and other new holders.';

-- release_later_permits: tasks that stand in line for a rule leave the places and the lines of those that come after it.
-- They have such if the rule was set when they had them already.
create or replace function tuskline_core.release_later_permits(r tuskline.task_limit, p_ids bigint[], p_now timestamptz) returns void
language plpgsql as $$
declare
  v_later bigint[] := array(select u.limit_id from tuskline.task_limit u where u.lambda = r.lambda and (u.rank, u.limit_id) > (r.rank, r.limit_id));
begin
  if p_ids = '{}' or v_later = '{}' then return; end if;
  perform tuskline_core.withdraw(p_ids, v_later, p_now);
end $$;
comment on function tuskline_core.release_later_permits(tuskline.task_limit, bigint[], timestamptz) is 'Who waits for a rule gives up what he has of those after it.';

-- give_up: places and lines under these rules (null: all) are left. What somebody else has locked he is giving
-- or taking just now: its task asks again. Whoever is first in a line asks by a timer, not from here: this
-- transaction may stay open, and he may have to give up, too, and so may all behind him.
create or replace function tuskline_core.withdraw(p_ids bigint[], p_limits bigint[], p_now timestamptz) returns void
language plpgsql as $$
declare
  v_limits bigint[];
  v_keys  text[];
begin
  with s as (
    delete from tuskline.permit d
     using (select o.limit_id, o.key, o.permit_no from tuskline.permit o
             where o.task_id = any (p_ids) and (p_limits is null or o.limit_id + 0 = any (p_limits)) for update skip locked) f
     where d.limit_id = f.limit_id and d.key = f.key and d.permit_no = f.permit_no returning d.limit_id, d.key
  ), l as (
    delete from tuskline.wait_list d
     using (select o.limit_id, o.key, o.position, o.task_id from tuskline.wait_list o
             where o.task_id = any (p_ids) and (p_limits is null or o.limit_id + 0 = any (p_limits)) for update skip locked) f
     where d.limit_id = f.limit_id and d.key = f.key and d.position = f.position and d.task_id = f.task_id returning d.limit_id, d.key)
  select array_agg(u.limit_id), array_agg(u.key) into v_limits, v_keys
    from (select s.limit_id, s.key from s union select l.limit_id, l.key from l) u;
  perform tuskline_core.add_timers(array(
      select distinct o.task_id from tuskline.permit o
       where o.task_id = any (p_ids) and (p_limits is null or o.limit_id + 0 = any (p_limits))),
    array[p_now + interval '20 milliseconds'], 'recheck', p_now);
  perform tuskline_core.recheck_head(u.limit_id, u.key, p_now, 100) from unnest(v_limits, v_keys) as u (limit_id, key);
end $$;
comment on function tuskline_core.withdraw(bigint[], bigint[], timestamptz) is 'Tasks leave their places and lines under these rules, or all; those first in line ask.';
