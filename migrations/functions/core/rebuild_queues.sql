-- Makes the database ready after a restart, a crash or a promotion, and in a copy.
--
-- Until then no executor registers and no task is claimed (see the view verified_incarnation). The
-- first session that notices calls this. Each later caller waits for the lock and finds the work
-- done. The work depends on the case:
--
--   always               raises fences and executor numbers beyond those of a lost future
--   queue rows are lost  fills the queues from the task store, and raises task ids if no call has
--   it is a copy         raises task ids, ends all executors, and lets nothing be claimed for one
--                        lease, in which the workers of the original stop
--   tables are dropped   makes the unlogged tables that are missing (unlogged.sql)
--
-- Sealed segments are not read. A database that has issued no number yet raises none. If the
-- database is ready, this only queues the tasks of prepared transactions that have ended since,
-- and makes tables that were dropped.
create or replace function tuskline.rebuild_queues(
  out rebuilt boolean, out tasks bigint, out copied boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_from  timestamptz := '-infinity';
  v_fresh boolean;
begin
  if pg_is_in_recovery() then
    -- Otherwise the first read of an unlogged table fails, with a message that does not help an
    -- operator.
    raise exception using errcode = 'read_only_sql_transaction',
      message = 'cannot rebuild the queues of a standby',
      hint = 'Connect to the primary, or promote this server first.';
  end if;
  rebuilt := false;
  tasks := 0;
  copied := false;
  if to_regclass('tuskline_core.ids_raised') is null then
    perform tuskline_core.make_ids_raised();
  end if;
  if exists (select from tuskline_core.verified_incarnation) then
    rebuilt := tuskline_core.lacks_tables();
    tasks := case when rebuilt then tuskline_core.restore_tables()
                  else tuskline_core.queue_late_commits() end;
    return;
  end if;
  perform tuskline_core.lock_guard('recovery');
  if exists (select from tuskline_core.verified_incarnation) then return; end if;
  rebuilt := not exists (select from tuskline_core.queues_complete)
             or tuskline_core.lacks_tables();
  v_fresh := not exists (select from unnest('{task,future,fence,executor}'::text[]) as s (name)
    where pg_sequence_last_value(('tuskline.' || s.name || '_seq')::regclass) is not null);
  copied := tuskline_core.is_copy() and not v_fresh;
  if exists (select from tuskline_core.incarnation) or not v_fresh then
    perform tuskline_core.raise_numbers();
    if rebuilt or tuskline_core.is_copy() then perform tuskline_core.recover_ids(); end if;
  end if;
  if copied then
    v_from := tuskline.clock() + tuskline_core.longest_lease();
    perform tuskline_core.end_former_executors();
  end if;
  -- The previous life of the server may have lost heartbeats: silence seen in it does not count.
  update tuskline.executor set silent_ms = 0 where executor_id = any (array(
    select executor_id from tuskline.executor where ended_at is null and silent_ms > 0
     order by executor_id for update));
  if rebuilt then
    perform tuskline_core.make_tables();
    tasks := tuskline_core.fill_queues(null);
  end if;
  if not v_fresh then
    insert into tuskline.audit (at, verb, subject, detail)
    values (tuskline.clock(), 'recover', 'installation', format('after %s: %s tasks queued',
      case when copied then 'a restore or copy' when rebuilt then 'a crash or promotion'
           else 'a restart' end, tasks));
  end if;
  perform tuskline.verify(v_from);
  perform tuskline_core.notify('tuskline_queue');
end $$;
comment on function tuskline.rebuild_queues() is
  'Makes the database ready after a restart, crash, promotion or restore: raises numbers, and '
  'fills the queues from the task store if they or their tables were lost. Otherwise queues only '
  'late commits.';

-- Ends every executor: they work for the original of this copy.
--
-- A live executor may hold tasks that this copy knows as enqueued. Its next heartbeat finds that it
-- has ended. It then stops its bodies and registers again.
create or replace function tuskline_core.end_former_executors() returns void language plpgsql as $$
declare
  v_now timestamptz := tuskline.clock();
begin
  update tuskline.executor
     set ended_at = v_now, end_reason = 'copied', expires_at = v_now, draining = true
   where executor_id = any (array(
     select e.executor_id from tuskline.executor e where e.ended_at is null
      order by e.executor_id for update));
  delete from tuskline_core.live_executor;
end $$;
comment on function tuskline_core.end_former_executors() is
  'Ends every executor: they work for the original, and this database is a copy of it.';

-- Raises fences and executor numbers beyond those of a lost past.
--
-- The new number is the clock in microseconds. A lost past started at an earlier clock and cannot
-- have issued a million numbers a second since. Two lives of one copy start at different times and
-- so get different numbers; a fixed step would give them the same.
-- A number is beyond the clock only if the clock has stepped back. Then a random step of 1 to 2
-- billion goes far beyond that past.
create or replace function tuskline_core.raise_numbers() returns void language plpgsql as $$
declare
  v_clock_us bigint := 1000000 * extract(epoch from tuskline.clock());
  v_step     bigint := 1000000000 * (1 + random());
  v_name     text;
  v_next     bigint;
begin
  foreach v_name in array '{tuskline.fence_seq,tuskline.executor_seq}'::text[] loop
    v_next := nextval(v_name::regclass);
    perform setval(v_name::regclass,
      case when v_clock_us > v_next then v_clock_us else v_next + v_step end);
  end loop;
end $$;
comment on function tuskline_core.raise_numbers() is
  'Raises fences and executor numbers to the clock, or by a random step if they are beyond it.';

-- Makes the unlogged tables that were dropped in a database that is ready, and fills the queues
-- among them.
--
-- Other sessions claim and schedule in the other queues meanwhile. Until this commits, none can
-- enqueue a task in a queue whose table is missing. So each enqueued task of these queues needs a
-- row here, and has no other.
create or replace function tuskline_core.restore_tables() returns bigint language plpgsql as $$
declare
  v_made  integer[];
  v_tasks bigint := 0;
begin
  perform tuskline_core.lock_guard('recovery');
  v_made := tuskline_core.make_tables();
  if v_made <> '{}' then v_tasks := tuskline_core.fill_queues(v_made); end if;
  perform tuskline_core.notify('tuskline_queue');
  return v_tasks;
end $$;
comment on function tuskline_core.restore_tables() is
  'Makes the unlogged tables that are missing, and fills the queues among them. Returns the number '
  'of tasks.';

-- Fills all queues, or these, from the task store.
create or replace function tuskline_core.fill_queues(p_queues integer[])
returns bigint language plpgsql as $$
declare
  v_no    bigint;
  v_tasks bigint := 0;
begin
  perform tuskline_core.note_late_commits();
  if p_queues is null then
    -- Tasks scheduled since the loss have a row here. They are found again below.
    delete from tuskline.queued;
  end if;
  for v_no in
    select segment_no from tuskline.segment where sealed_at is null order by segment_no
  loop
    v_tasks := v_tasks + tuskline_core.queue_segment(v_no, false, null, p_queues);
  end loop;
  -- The queue rows have new numbers. A queue that needs sorting is sorted from its start.
  -- gate and ungate lock these rows in an order of their own, so they are waited for together.
  lock table tuskline_core.flagged_queue in exclusive mode;
  update tuskline_core.flagged_queue
     set passing = null, late = null, mark = 0, last = null, behind = null
   where p_queues is null or queue_id = any (p_queues);
  perform tuskline_core.restart_marks();
  insert into tuskline_core.queues_complete (since) values (tuskline.clock())
  on conflict do nothing;
  return v_tasks;
end $$;
comment on function tuskline_core.fill_queues(integer[]) is
  'Fills all queues, or these, from the task store. Returns the number of tasks.';

-- Saves which prepared transactions exist, and which segments they have written to.
--
-- A prepared transaction survives a crash; its rows in the queues do not. Its tasks are invisible
-- until COMMIT PREPARED. Its locks survive with it and name the segments.
create or replace function tuskline_core.note_late_commits() returns void language sql as $$
  insert into tuskline_core.late_commit (gid, prepared_at, segments)
  select x.gid, x.prepared, array_agg(distinct g.segment_no order by g.segment_no)
    from pg_prepared_xacts x
         join pg_locks o on o.locktype = 'transactionid' and o.transactionid = x.transaction
           and o.granted
         join pg_locks l on l.virtualtransaction = o.virtualtransaction and l.pid is null
           and l.locktype = 'relation' and l.mode = 'RowExclusiveLock'
         join tuskline.segment g on l.relation = to_regclass('tuskline_core.task_' || g.segment_no)
   where x.database = current_database() and o.pid is null
   group by x.gid, x.prepared
  on conflict do nothing
$$;
comment on function tuskline_core.note_late_commits() is
  'Saves the prepared transactions of this database and the segments that they have written to.';

-- Queues the tasks of saved prepared transactions that have ended.
--
-- Needs read committed: an older snapshot may not see these tasks.
create or replace function tuskline_core.queue_late_commits() returns bigint language plpgsql as $$
declare
  v_ended record;
  v_no    bigint;
  v_tasks bigint := 0;
begin
  if not exists (select from tuskline_core.late_commit)
     or current_setting('transaction_isolation') <> 'read committed' then return 0; end if;
  for v_ended in
    select l.gid, l.prepared_at, l.segments from tuskline_core.late_commit l
     where not exists (select from pg_prepared_xacts x
                        where x.gid = l.gid and x.prepared = l.prepared_at)
     order by l.gid, l.prepared_at for update skip locked
  loop
    foreach v_no in array v_ended.segments loop
      v_tasks := v_tasks + tuskline_core.queue_segment(v_no, true);
    end loop;
    delete from tuskline_core.late_commit l
     where l.gid = v_ended.gid and l.prepared_at = v_ended.prepared_at;
  end loop;
  if v_tasks > 0 then perform tuskline_core.notify('tuskline_queue'); end if;
  return v_tasks;
end $$;
comment on function tuskline_core.queue_late_commits() is
  'Queues the tasks of prepared transactions that have ended since the rebuild. Returns how many '
  'tasks.';
