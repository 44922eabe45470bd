-- enqueue_due: the store consumer's verb. Moves due timers into their queues, FOR UPDATE SKIP
-- LOCKED, so that any number of store consumers share the work. Rides timer_pkey (due, task_id).
-- A task row that somebody's open transaction has locked must not hold up the others: the straight
-- way gives up after 100 ms, and the careful one puts those timers off: of a thousand whose tasks one transaction
-- holds, every look would else find the same, and nobody who is due after them.
-- p_mark: nothing due at or before it is left (a hint of the caller's; null: look at everything).
create or replace function tuskline.enqueue_due(
  p_mark timestamptz default null, p_limit integer default 1000,
  p_installation text default 'default',
  out moved integer, out looked_until timestamptz, out next_due_ms bigint, out ended_before bigint, out xid bigint, out gates boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off set lock_timeout = '100ms' set plan_cache_mode = force_generic_plan
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_now  timestamptz := tuskline.clock();
  v_mark timestamptz := coalesce(p_mark, '-infinity');
  v_ids  bigint[];
  v_due  timestamptz[];
  v_free bigint[];
  v_held bigint[] := '{}';
  v_last timestamptz;
begin
  perform tuskline.check_installation(p_installation);
  ended_before := tuskline.ended_before('tuskline.timer');
  select array_agg(d.task_id), array_agg(d.due), max(d.due) into v_ids, v_due, v_last
    from (select task_id, due from tuskline.timer where due > v_mark and due <= v_now
           order by due, task_id limit p_limit for update skip locked) d;
  moved := coalesce(cardinality(v_ids), 0);
  -- Others may be due at the same instant as the last one within the limit.
  looked_until := case when moved < p_limit then v_now else v_last - interval '1 microsecond' end;
  xid := pg_current_xact_id_if_assigned()::text::bigint;
  if moved > 0 then
    begin
      perform tuskline.enqueue_timed(v_ids, v_due, v_now);
    exception when lock_not_available then
      v_free := array(select t.id from tuskline.task t where t.id = any (v_ids) order by t.id for update skip locked);
      v_held := array(select u.id from unnest(v_ids) as u (id) where u.id <> all (v_free) and exists (select from tuskline.task t where t.id = u.id));
      delete from tuskline.timer t using unnest(v_due, v_ids) as d (due, id) where t.due = d.due and t.task_id = d.id and d.id = any (v_held);
      insert into tuskline.timer (due, task_id) select v_now + interval '200 milliseconds', id from unnest(v_held) as id on conflict do nothing;
      select array_agg(u.id), array_agg(u.due) into v_ids, v_due from unnest(v_ids, v_due) as u (id, due) where u.id <> all (v_held);
      perform tuskline.enqueue_timed(v_ids, v_due, v_now);
    end;
  end if;
  gates := exists (select from tuskline.gate) or exists (select from tuskline.rule where dropped_at is not null)
    or exists (select from tuskline.lambda where max_backlog > 0) or exists (select from tuskline.queue where is_full) or exists (select from tuskline.redrive where ended_at is null)
    or exists (select from tuskline.breaker);
  -- 0 after a full look, also one that put off some: these do not count as moved.
  next_due_ms := case when moved >= p_limit then 0 else ceil(1000 * extract(epoch from (
    select t.due - v_now from tuskline.timer t where t.due > looked_until order by t.due limit 1))) end;
  moved := moved - cardinality(v_held);
end $$;
comment on function tuskline.enqueue_due(timestamptz, integer, text) is
  'Moves due tasks into their queues. Says how many, up to which due time, when the next is due (ms; null: none), and what its marks need.';

-- enqueue_timed: the timers go first: what enqueueing one task sets off may give another of them a timer anew,
-- for the very same moment. That of a task that is kept goes, too (time_returned gives it one): a thousand of
-- those would be all that a look ever sees.
create or replace function tuskline.enqueue_timed(p_ids bigint[], p_due timestamptz[], p_now timestamptz) returns void
language plpgsql as $$
begin
  delete from tuskline.timer t using unnest(p_due, p_ids) as d (due, id)
   where t.due = d.due and t.task_id = d.id;
  perform tuskline.enqueue(p_ids, p_now, true);
end $$;
comment on function tuskline.enqueue_timed(bigint[], timestamptz[], timestamptz) is 'Puts tasks that timers name into their queues, and forgets these timers.';

-- enqueue: waiting tasks (new, retriable_failure) become enqueued and get their queue row.
-- p_timed: timers brought them here. One that has a timer of its own still, for later, is not due then: the other
-- was left over, from a place in a line or from before somebody postponed it.
create or replace function tuskline.enqueue(p_ids bigint[], p_now timestamptz, p_timed boolean default false) returns void
language plpgsql as $$
declare
  v_first  bigint;
  v_last   bigint;
  v_queues integer[];
  v_ended  bigint[];
  v_rules  boolean;
  v_chains boolean;
begin
  select exists (select from tuskline.guarded), exists (select from tuskline.in_use) into v_rules, v_chains;
  if v_rules or v_chains then
    select min(id), max(id) into v_first, v_last from unnest(p_ids) as id;
    select array_agg(l.id) filter (where l.finished_at is not null) into v_ended
      from (select t.id, t.finished_at from tuskline.task t where t.id = any (p_ids) and t.id between v_first and v_last order by t.id for update) l;
    if v_ended is not null then perform tuskline.hand_on(v_ended, p_now); end if;
    if v_chains then p_ids := tuskline.heed_parents(p_ids, p_now); end if;
    if v_rules and p_timed then p_ids := tuskline.without_early(p_ids, p_now); end if;
    if v_rules then p_ids := tuskline.enter(tuskline.hold_gated(p_ids, p_now), p_now); end if;
  end if;
  with u as (
    update tuskline.task t set status = 'enqueued', next_trigger_at = p_now + interval '10 minutes'
      from (select distinct id from unnest(p_ids) as id order by id) d
     where t.id = d.id and t.status in ('new', 'retriable_failure')
       and (not p_timed or t.next_trigger_at <= p_now or not exists (select from tuskline.timer m where m.due = t.next_trigger_at and m.task_id = t.id))
    returning t.id, t.lambda, t.priority, tuskline.payload_bytes(t.payload) as bytes
  ), i as (
    insert into tuskline.queued (queue_id, bytes, task_id)
    select q.queue_id, u.bytes, u.id from u join tuskline.queue q on q.lambda = u.lambda and q.priority = u.priority
    returning queue_id)
  select array_agg(distinct queue_id) into v_queues from i;
  perform tuskline.wake(v_queues);
end $$;
comment on function tuskline.enqueue(bigint[], timestamptz, boolean) is 'Puts waiting tasks into their queues.';

-- without_early: a place that such a task could not give back when its attempt was over it gives back now.
create or replace function tuskline.without_early(p_ids bigint[], p_now timestamptz) returns bigint[]
language plpgsql as $$
declare
  v_early bigint[] := array(
    select t.id from tuskline.task t
     where t.id = any (p_ids) and t.id between (select min(id) from unnest(p_ids) as id) and (select max(id) from unnest(p_ids) as id)
       and t.next_trigger_at > p_now and exists (select from tuskline.timer m where m.due = t.next_trigger_at and m.task_id = t.id)
     order by t.id);
begin
  if v_early = '{}' then return p_ids; end if;
  perform tuskline.hand_on(v_early, p_now);
  return array(select id from unnest(p_ids) as id where id <> all (v_early) order by id);
end $$;
comment on function tuskline.without_early(bigint[], timestamptz) is 'Without those tasks that have a timer of their own for later.';

-- hand_on_later: for a task that ends in a transaction of somebody's own, which may stay open, and may see the
-- store as it was long ago: what its end sets off in others is left to the store consumer. So that transaction
-- holds nothing but its own row, and nobody is missed who joined a line, or waits for this task, since its snapshot.
create or replace function tuskline.hand_on_later(p_task bigint, p_now timestamptz) returns void
language plpgsql as $$
begin
  if exists (select from tuskline.guarded) or exists (select from tuskline.in_use)
     or current_setting('transaction_isolation') <> 'read committed' then
    insert into tuskline.timer (due, task_id) values (p_now, p_task) on conflict do nothing;
    perform tuskline.wake_timer(p_now, p_now);
  end if;
end $$;
comment on function tuskline.hand_on_later(bigint, timestamptz) is 'Leaves a timer for a task that has ended, so that the store consumer hands on what it held.';

-- hand_on: tasks whose attempts are over give back their places, and those that wait for them go on. Neither is
-- worth the results: where somebody's open transaction has locked a line, or the places of a rule that he drops,
-- the tasks get timers, and the store consumer comes again. (For a session that sets no lock_timeout: it waits.)
create or replace function tuskline.hand_on(p_ids bigint[], p_now timestamptz, p_go boolean default true) returns void
language plpgsql as $$
declare
  v_rules  boolean;
  v_chains boolean;
begin
  select exists (select from tuskline.guarded), exists (select from tuskline.in_use) into v_rules, v_chains;
  if p_ids = '{}' or not (v_rules or v_chains) then return; end if;
  begin
    if v_rules then perform tuskline.leave(p_ids, p_now); end if;
    if v_chains then perform tuskline.follow(p_ids, p_now, p_go); end if;
  exception when lock_not_available then
    insert into tuskline.timer (due, task_id) select distinct p_now + interval '200 milliseconds', id from unnest(p_ids) as id on conflict do nothing;
    perform tuskline.wake_timer(p_now, p_now);
  end;
end $$;
comment on function tuskline.hand_on(bigint[], timestamptz, boolean) is 'Tasks give back their places, and those that wait for them go on; later, if somebody has locked what that takes.';
