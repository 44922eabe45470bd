-- Registers the locks, intervals and limits that functions share.
--
-- Advisory lock: one, the watch lock. A worker or store consumer that sleeps holds it (session), a
-- transaction that enqueues tries it (shared). pg_locks shows the class as classid, the bell as
-- objid: 1 to 256 for queues (bell_of), 0 for timers.
--
--   lock_timeout   functions                           after it
--   100ms          enqueue_due rescue run_policies     skip the row, return to it
--   100ms          fold_statistics purge_statistics    leave it to a later call
--   100ms          report_attempts                     lose the report
--   200ms          claim exchange release              skip the row
--   10s            lock_guard repair                   refuse, name the holder
--
--   p_limit        functions
--   50             key_holders
--   100            due_periodic rescue
--   1000           advance_operation enqueue_due run_policies
--   5000           archive_segment kept_to_file purge purge_history purge_keys purge_kept
--   5000           purge_statistics
--
-- Effects of ends that one call runs: 100 in a verb (run_effects), 1000 in a batch of an operation
-- and in find_stalled. A call takes 10000 tasks at most (TK004): schedule_many, schedule_chain, ids
-- of an operation. tests/it/surface/registry.rs compares both tables with the functions.
--
-- Planner: each function of a number or interval is one constant, so a plan contains the constant.

create or replace function tuskline_core.watch_class() returns integer
language sql immutable parallel safe as 'select 1953854315';
comment on function tuskline_core.watch_class() is
  'Class of the watch locks: pg_locks.classid of the only advisory locks.';

create or replace function tuskline_core.recheck_after() returns interval
language sql immutable parallel safe as $$ select interval '20 milliseconds' $$;
comment on function tuskline_core.recheck_after() is
  '20 ms: time until a task checks its permit or its parents again, because another transaction '
  'had locked them.';

create or replace function tuskline_core.relock_after() returns interval
language sql immutable parallel safe as $$ select interval '200 milliseconds' $$;
comment on function tuskline_core.relock_after() is
  '200 ms: time until a store consumer tries to lock a task again, or continues effects that were '
  'left.';

create or replace function tuskline_core.stalled_after() returns interval
language sql immutable parallel safe as $$ select interval '10 minutes' $$;
comment on function tuskline_core.stalled_after() is
  '10 minutes: time without a change after which a due task is checked (next_trigger_at). The '
  'column default of task has the same.';

create or replace function tuskline_core.max_delay() returns interval
language sql immutable parallel safe as $$ select interval '10 years' $$;
comment on function tuskline_core.max_delay() is
  '10 years: longest delay of a task, and longest period of a unique key.';

create or replace function tuskline_core.clock_lag() returns interval
language sql immutable parallel safe as $$ select interval '10 seconds' $$;
comment on function tuskline_core.clock_lag() is
  '10 s: a verb reads the clock when it begins, and may see rows that were committed later. If two '
  'times differ by less than this, their order is unknown.';

-- Guard locks: each is held by one transaction at a time.
--
-- A guard is a table without rows that only the owner of the schema may lock. Every login may take
-- every advisory lock, without any privilege. Therefore no verb may wait for an advisory lock. The
-- watch lock is only a hint.
--
--   guard                          waits    held by
--   tuskline_core.segment_guard    10 s     the transaction that makes segments and their functions
--   tuskline_core.queue_guard      10 s     the transaction that makes queues and their verbs, or
--                                           changes rights
--   tuskline_core.recovery_guard   10 s     the transaction that rebuilds the queues
--   tuskline_core.policy_guard     not      the store consumer that checks backlogs and breakers
--
-- SHARE ROW EXCLUSIVE conflicts with itself and lets readers pass. It needs no transaction number
-- and keeps no snapshot. So a guard that is held for an hour does not hold up vacuum.

create or replace function tuskline_core.lock_guard(p_guard text) returns void
language plpgsql set lock_timeout = '10s' as $$
begin
  case p_guard
    when 'segment' then lock table tuskline_core.segment_guard in share row exclusive mode;
    when 'queue' then lock table tuskline_core.queue_guard in share row exclusive mode;
    when 'recovery' then lock table tuskline_core.recovery_guard in share row exclusive mode;
  end case;
exception when lock_not_available then -- the code is kept: callers try again
  raise exception using errcode = 'lock_not_available',
    message = format('guard_held: %s by one transaction at a time; waited 10 s for %s',
      case p_guard when 'segment' then 'segments are made' when 'queue' then 'a lambda is defined'
                   else 'the queues are rebuilt' end,
      coalesce(tuskline_core.lock_holders(
                 to_regclass('tuskline_core.' || p_guard || '_guard'), '{ShareRowExclusiveLock}'),
               'one that has ended')),
    hint = 'Commit or end that transaction, then try again.';
end $$;
comment on function tuskline_core.lock_guard(text) is
  'Takes the guard lock segment, queue or recovery until the end of the transaction. Waits 10 s, '
  'then raises 55P03 and names the holder.';

create or replace function tuskline_core.lock_policies() returns boolean
language plpgsql as $$
begin
  lock table tuskline_core.policy_guard in share row exclusive mode nowait;
  return true;
exception when lock_not_available then
  return false;
end $$;
comment on function tuskline_core.lock_policies() is
  'Lets one store consumer at a time check backlogs and breakers. False: another one holds the '
  'lock.';

-- Describes a transaction: a session by pid, role, application and begin, or a prepared
-- transaction.
--
-- Returns null if the transaction is younger than p_age. A role without the right to read the
-- statistics of other roles sees no begin. Then p_age is ignored.
create or replace function tuskline_core.name_transaction(
  p_transaction text, p_age interval default '0')
returns text language sql stable as $$
  select case
           when a.pid is not null then
             format('pid %s (role %s, application %s) since %s', a.pid, coalesce(a.usename, '?'),
               coalesce(nullif(a.application_name, ''), '?'), coalesce(a.xact_start::text, '?'))
           else
             format('prepared transaction %L of role %s since %s', x.gid, x.owner, x.prepared) end
    from (select l.pid, max(l.transactionid::text) as number from pg_locks l
           where l.virtualtransaction = p_transaction and l.granted group by l.pid) l
         left join pg_stat_activity a on a.pid = l.pid
         left join pg_prepared_xacts x on l.pid is null and x.transaction::text = l.number
   where coalesce(coalesce(a.xact_start, x.prepared) <= clock_timestamp() - p_age, true) limit 1
$$;
comment on function tuskline_core.name_transaction(text, interval) is
  'Describes the session or prepared transaction of a pg_locks.virtualtransaction, if it began at '
  'least p_age ago.';

-- Lists the holders of a table's lock, for messages to a person.
--
-- p_modes: as pg_locks.mode. p_age: only transactions that began at least so long ago.
create or replace function tuskline_core.lock_holders(
  p_table regclass, p_modes text[], p_age interval default '0') returns text
language sql stable as $$
  select string_agg(h.holder, ', ')
    from (select distinct tuskline_core.name_transaction(l.virtualtransaction, p_age) as holder
            from pg_locks l
           where l.locktype = 'relation' and l.relation = p_table and l.granted
             and l.mode = any (p_modes) and l.pid is distinct from pg_backend_pid()
             and l.database = (select d.oid from pg_database d
                                where d.datname = current_database())) h
$$;
comment on function tuskline_core.lock_holders(regclass, text[], interval) is
  'Sessions and prepared transactions that hold a lock of a table in one of these modes.';
