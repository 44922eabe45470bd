-- start_bulk: one act on all tasks of a lambda that a filter names. It walks over the ids, a batch a call of
-- advance_bulk, and keeps how far it has come; tasks scheduled after it began are left alone.
create or replace function tuskline.start_bulk(
  p_action text, p_lambda text, p_value text default null, p_collection text default null, p_priority text default null,
  p_statuses text[] default null, p_created_from timestamptz default null, p_created_to timestamptz default null, p_reason text default null)
returns bigint language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now      timestamptz := tuskline.clock();
  v_statuses tuskline.status[] := tuskline.check_bulk(p_action, p_lambda, p_value, p_statuses);
  v_bulk     bigint;
begin
  insert into tuskline.bulk (action, value, lambda, collection, priority, statuses, created_from, created_to, reason, begun_at)
  values (p_action, p_value, p_lambda, p_collection, case when p_priority is not null then tuskline.priority_of(p_priority) end, v_statuses,
          p_created_from, least(p_created_to, v_now), p_reason, v_now) returning bulk_id into v_bulk;
  insert into tuskline.audit (at, verb, subject, detail)
  values (v_now, 'start_bulk', p_lambda, concat_ws(' ', 'bulk', v_bulk, p_action, p_value, 'of', p_collection, p_priority, v_statuses::text, p_reason));
  return v_bulk;
end $$;
comment on function tuskline.start_bulk(text, text, text, text, text, text[], timestamptz, timestamptz, text) is
  'Begins to cancel, retry, or give another priority or collection to all tasks of a lambda that the rest names; returns its number for advance_bulk(). Audited.';

create or replace function tuskline.check_bulk(p_action text, p_lambda text, p_value text, p_statuses text[]) returns tuskline.status[]
language plpgsql as $$
declare
  v_allowed text[] := case p_action when 'cancel' then '{new,enqueued,retriable_failure,claimed,processing}'::text[]
    when 'retry' then '{dead,fatal_failure,cancelled,dropped}' when 'priority' then '{new,enqueued,retriable_failure}' when 'collection' then '{new,enqueued,retriable_failure}' end;
begin
  if v_allowed is null then
    perform tuskline.refuse('TK029', format('invalid_bulk: action must be cancel, retry, priority or collection, got %L', left(p_action, 80)));
  elsif not exists (select from tuskline.lambda l where l.name = p_lambda) then
    perform tuskline.refuse('TK001', format('unknown_lambda: %L is not defined', left(p_lambda, 80)), 'define it: select tuskline.define_lambda(''...'')');
  elsif (p_action in ('priority', 'collection')) <> (p_value is not null) then
    perform tuskline.refuse('TK029', format('invalid_bulk: a new priority or collection, and nothing else, needs a value, got %s with %L', p_action, left(p_value, 80)));
  elsif not coalesce(p_statuses <@ v_allowed and cardinality(p_statuses) > 0, true) then
    perform tuskline.refuse('TK029', format('invalid_bulk: %s is for tasks that are %s, got %s', p_action, array_to_string(v_allowed, ', '), left(p_statuses::text, 200)));
  end if;
  if p_action = 'priority' then perform tuskline.priority_of(p_value); end if;
  if p_action = 'collection' then perform tuskline.check_name('collection', p_value); end if;
  return coalesce(p_statuses, case when p_action = 'retry' then '{dead,fatal_failure}' else v_allowed end);
end $$;
comment on function tuskline.check_bulk(text, text, text, text[]) is 'Refuses (TK029) what makes no bulk operation; returns the statuses it is for.';

create or replace function tuskline.is_in_bulk(
  b tuskline.bulk, p_lambda text, p_collection text, p_priority tuskline.priority, p_status tuskline.status, p_created_at timestamptz)
returns boolean language sql immutable as $$
  select p_lambda = b.lambda and p_collection is not distinct from coalesce(b.collection, p_collection) and p_priority = coalesce(b.priority, p_priority)
     and p_status = any (b.statuses) and p_created_at <= b.created_to and p_created_at >= coalesce(b.created_from, p_created_at)
     and case b.action when 'priority' then p_priority::text <> b.value when 'collection' then p_collection is distinct from b.value else true end
$$;
comment on function tuskline.is_in_bulk(tuskline.bulk, text, text, tuskline.priority, tuskline.status, timestamptz) is 'Whether a bulk operation is about such a task.';

-- preview_bulk: how many tasks it would change now, by status. Reads everything once.
create or replace function tuskline.preview_bulk(p_bulk bigint)
returns table (status text, tasks bigint) language sql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  select t.status::text, count(*) from tuskline.bulk b join tuskline.tasks t on tuskline.is_in_bulk(b, t.lambda, t.collection, t.priority, t.status, t.created_at)
   where b.bulk_id = p_bulk group by t.status order by t.status
$$;
comment on function tuskline.preview_bulk(bigint) is 'How many tasks a bulk operation would change now, by status.';

-- advance_bulk: a batch. What somebody has locked, or is on its way back from task_kept, is left for the next call,
-- so that nobody is waited for.
create or replace function tuskline.advance_bulk(p_bulk bigint, p_limit integer default 1000, out state text, out looked bigint, out changed bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now  timestamptz := tuskline.clock();
  b      tuskline.bulk;
  v_next bigint[];
  v_ids  bigint[];
  v_mine bigint[];
begin
  select * into b from tuskline.bulk where bulk_id = p_bulk for update;
  if not found then
    perform tuskline.refuse('TK029', format('invalid_bulk: there is no bulk operation %s', p_bulk));
  end if;
  if b.state = 'running' then
    -- Of both, as a segment that goes moves what is left of it to task_kept.
    v_next := array(select u.id from (
      (select t.id from tuskline.task t where t.id > b.mark order by t.id limit p_limit)
      union all (select k.id from tuskline.task_kept k where k.id > b.mark order by k.id limit p_limit)) u order by u.id limit p_limit);
    b.looked := b.looked + cardinality(v_next);
    b.mark := coalesce(v_next[cardinality(v_next)], b.mark);
    v_next := v_next || b.behind;
    v_ids := tuskline.those_in_bulk(b, v_next);
    v_mine := tuskline.lock_for_bulk(b, v_ids);
    if v_next = '{}' then b.state := 'done'; end if;
    b.behind := array(select id from unnest(v_ids) as id where id <> all (v_mine) order by id);
    b.changed := b.changed + tuskline.act_in_bulk(b, tuskline.those_in_bulk(b, v_mine), v_now);
    update tuskline.bulk u
       set mark = b.mark, behind = b.behind, looked = b.looked, changed = b.changed, state = b.state, ended_at = case when b.state = 'done' then v_now end
     where u.bulk_id = p_bulk;
  end if;
  state := b.state; looked := b.looked; changed := b.changed;
end $$;
comment on function tuskline.advance_bulk(bigint, integer) is 'Does a bulk operation to the next tasks; says whether it is done and how far it has come. Call until it is not running.';

create or replace function tuskline.those_in_bulk(b tuskline.bulk, p_ids bigint[]) returns bigint[]
language sql volatile as $$
  select array(select t.id from tuskline.tasks t
    where t.id = any (p_ids) and tuskline.is_in_bulk(b, t.lambda, t.collection, t.priority, t.status, t.created_at) order by t.id)
$$;
comment on function tuskline.those_in_bulk(tuskline.bulk, bigint[]) is 'Those of the tasks that a bulk operation is about.';

create or replace function tuskline.lock_for_bulk(b tuskline.bulk, p_ids bigint[]) returns bigint[]
language plpgsql as $$
begin
  if b.action = 'retry' then return tuskline.lock_to_revive(p_ids); end if;
  return array(select t.id from tuskline.task t where t.id = any (p_ids) order by t.id for update skip locked)
    || array(select k.id from tuskline.task_kept k where k.id = any (p_ids) order by k.id for update skip locked);
end $$;
comment on function tuskline.lock_for_bulk(tuskline.bulk, bigint[]) is 'Locks those of the tasks that nobody else has locked; returns them.';

create or replace function tuskline.act_in_bulk(b tuskline.bulk, p_ids bigint[], p_now timestamptz) returns bigint
language plpgsql as $$
declare
  v_changed bigint;
begin
  if p_ids = '{}' then return 0; end if;
  if b.action = 'retry' then return tuskline.revive(p_ids, p_now); end if;
  if b.action = 'cancel' then
    select count(*) filter (where tuskline.cancel(id, concat_ws(': ', 'bulk ' || b.bulk_id, b.reason)) in ('cancelled', 'requested')) into v_changed
      from (select id from unnest(p_ids) as id order by id) o;
    return v_changed;
  end if;
  update tuskline.task_kept k
     set priority = case when b.action = 'priority' then b.value::tuskline.priority else k.priority end,
         collection = case when b.action = 'collection' then b.value else k.collection end
   where k.id = any (p_ids);
  -- It leaves its queue and its lines, and comes due again at once: as what it is now.
  delete from tuskline.queued d where (d.queue_id, d.seq) in (
    select o.queue_id, o.seq from tuskline.queue q join tuskline.queued o on o.queue_id = q.queue_id
     where q.lambda = b.lambda and o.task_id = any (p_ids) for update of o skip locked);
  update tuskline.task t
     set priority = case when b.action = 'priority' then b.value::tuskline.priority else t.priority end,
         collection = case when b.action = 'collection' then b.value else t.collection end,
         status = case when t.status = 'enqueued' then 'new' else t.status end::tuskline.status,
         next_trigger_at = case when t.status = 'enqueued' then p_now else t.next_trigger_at end
   where t.id = any (p_ids);
  v_changed := cardinality(p_ids);
  if exists (select from tuskline.guarded where lambda = b.lambda) then
    delete from tuskline.parked k where k.task_id = any (p_ids);
    perform tuskline.quit_lines(p_ids, p_now, 100);
    perform tuskline.run_effects(tuskline.permit_holders(p_ids), '{}', p_now, 1000);
    update tuskline.task t set next_trigger_at = p_now
     where t.id = any (p_ids) and not exists (select from tuskline.timer m
       where m.task_id = t.id and m.due = t.next_trigger_at and m.kind = 'due');
  end if;
  perform tuskline.add_timers(array_agg(t.id), array_agg(t.next_trigger_at), 'due', p_now)
     from tuskline.task t where t.id = any (p_ids) and t.next_trigger_at <= p_now;
  return v_changed;
end $$;
comment on function tuskline.act_in_bulk(tuskline.bulk, bigint[], timestamptz) is 'What a bulk operation does to tasks that it has locked; returns how many it changed.';

create or replace function tuskline.stop_bulk(p_bulk bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  update tuskline.bulk set state = 'stopped', ended_at = tuskline.clock() where bulk_id = p_bulk and state = 'running';
  if not found then return false; end if;
  insert into tuskline.audit (at, verb, subject) values (tuskline.clock(), 'stop_bulk', 'bulk ' || p_bulk);
  return true;
end $$;
comment on function tuskline.stop_bulk(bigint) is 'Ends a bulk operation where it stands. False: it is not running. Audited.';
