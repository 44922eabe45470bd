-- Enqueues the tasks whose timers are due. The store consumer calls it in a loop.
--
-- p_mark: no timer due at or before it is left (a hint of the caller); null: scan all timers.
-- Returns moved, the timers it has handled; looked_until, the due time up to which none is left;
-- next_due_ms, the time until the next timer (0: call again; null: there is none).
-- oldest_writer_xid and xid let the caller advance its mark. xid is null if nothing was written.
-- gates is true if there may be work for run_policies.
--
-- Locks: timers FOR UPDATE SKIP LOCKED, so any number of store consumers share the work. An open
-- transaction that has locked a task must not delay the remaining tasks. After 100 ms on one lock
-- the call locks the free tasks and enqueues these. It postpones the timers of the locked tasks by
-- 200 ms. Otherwise a thousand timers whose tasks one transaction has locked would fill every scan,
-- and no later timer would be found.
-- Planner: it scans timer_pkey (due, task_id, kind).
create or replace function tuskline.enqueue_due(
  p_mark timestamptz default null, p_limit integer default 1000,
  p_installation text default 'default',
  out moved integer, out looked_until timestamptz, out next_due_ms bigint,
  out oldest_writer_xid bigint, out xid bigint, out gates boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off set lock_timeout = '100ms'
set plan_cache_mode = force_generic_plan set enable_hashjoin = off set enable_mergejoin = off
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_now   timestamptz := tuskline.clock();
  v_mark  timestamptz := coalesce(p_mark, '-infinity');
  v_ids   bigint[];
  v_due   timestamptz[];
  v_kinds tuskline_core.timer_kind[];
  v_tasks bigint[];         -- tasks of all timers except those of effects
  v_held  bigint[] := '{}'; -- tasks that another transaction has locked
  v_last  timestamptz;
  v       tuskline_core.verdicts;
begin
  perform tuskline.check_installation(p_installation);
  oldest_writer_xid := tuskline_core.oldest_writer_xid('tuskline.timer');
  select array_agg(d.task_id), array_agg(d.due), array_agg(d.kind), max(d.due),
         array_agg(d.task_id) filter (where d.kind <> 'effects')
    into v_ids, v_due, v_kinds, v_last, v_tasks
    from (select task_id, due, kind from tuskline.timer where due > v_mark and due <= v_now
           order by due, task_id limit p_limit for update skip locked) d;
  moved := coalesce(cardinality(v_ids), 0);
  -- More timers may be due at the same instant as the last one within p_limit.
  looked_until := case when moved < p_limit then v_now else v_last - interval '1 microsecond' end;
  xid := pg_current_xact_id_if_assigned()::text::bigint;
  if moved > 0 then
    -- The timer of a task in task_kept goes as well; time_returned adds another one. A thousand
    -- such timers would fill every scan.
    delete from tuskline.timer t using unnest(v_due, v_ids, v_kinds) as d (due, id, kind)
     where t.due = d.due and t.task_id = d.id and t.kind = d.kind;
    begin
      v := tuskline_core.enqueue(v_tasks, v_now);
    exception when lock_not_available then
      v_held := tuskline_core.locked_tasks(v_tasks);
      perform tuskline_core.add_timers(
        v_held, array[v_now + tuskline_core.relock_after()], 'due', v_now);
      v := tuskline_core.enqueue(
        array(select id from unnest(v_tasks) as id where id <> all (v_held)), v_now);
    end;
    perform tuskline_core.run_effects(
      v.again || array(select u.id from unnest(v_ids, v_kinds) as u (id, kind)
                        where u.kind = 'effects' order by u.id),
      v.due, v_now, p_limit);
  end if;
  gates := exists (select from tuskline.gate) or exists (select from tuskline_core.flagged_queue)
    or exists (select from tuskline.task_limit where coalesce(dropped_at, until) is not null)
    or exists (select from tuskline.operation where ended_at is null and not writes_files)
    or exists (select from tuskline.breaker)
    or tuskline_core.backlogs_in_use();
  -- 0 after a full scan, even if some timers were postponed: these do not count as moved.
  next_due_ms := case
    when moved >= p_limit then 0
    else ceil(1000 * extract(epoch from (
      select t.due - v_now from tuskline.timer t where t.due > looked_until
       order by t.due limit 1)))
  end;
  moved := moved - cardinality(v_held);
end $$;
comment on function tuskline.enqueue_due(timestamptz, integer, text) is
  'Enqueues due tasks. Returns how many, up to which due time, when the next is due '
  '(ms; null: none), and the transaction numbers for the caller''s mark.';

-- Locks the free ones of these tasks, in id order.
--
-- Returns the tasks that another transaction has locked.
create or replace function tuskline_core.locked_tasks(p_ids bigint[]) returns bigint[]
language plpgsql as $$
declare
  v_free bigint[] := array(select t.id from tuskline.task t where t.id = any (p_ids)
                            order by t.id for update skip locked);
begin
  return array(select u.id from unnest(p_ids) as u (id) where u.id <> all (v_free)
    and exists (select from tuskline.task t where t.id = u.id));
end $$;
comment on function tuskline_core.locked_tasks(bigint[]) is
  'Returns the tasks that another transaction has locked, and locks the rest.';
