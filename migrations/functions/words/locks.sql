-- Defines the guard locks, each held by one transaction at a time.
--
-- A guard is a table without rows that only the owner of the schema may lock. Every login may take
-- every advisory lock, without any privilege. Therefore no verb may wait for an advisory lock. (The
-- watch lock is one: it is only a hint.)
--
--   guard                          waits    held by
--   tuskline_core.segment_guard    10 s     the transaction that makes segments and their functions
--   tuskline_core.queue_guard      10 s     the transaction that makes queues and their functions
--   tuskline_core.recovery_guard   10 s     the transaction that rebuilds the queues
--   tuskline_core.policy_guard     not      the store consumer that checks backlogs and breakers
--
-- SHARE ROW EXCLUSIVE conflicts with itself and lets readers pass. It needs no transaction number
-- and keeps no snapshot. So a guard that is held for an hour does not hold up vacuum.

create or replace function tuskline_core.lock_segments() returns void
language plpgsql set lock_timeout = '10s' as $$
begin
  lock table tuskline_core.segment_guard in share row exclusive mode;
exception when lock_not_available then
  perform tuskline_core.refuse_guard('segments are made', 'tuskline_core.segment_guard');
end $$;
comment on function tuskline_core.lock_segments() is
  'Lets one transaction at a time make segments. Waits 10 s, then refuses and names the holder.';

create or replace function tuskline_core.lock_queues() returns void
language plpgsql set lock_timeout = '10s' as $$
begin
  lock table tuskline_core.queue_guard in share row exclusive mode;
exception when lock_not_available then
  perform tuskline_core.refuse_guard('a lambda is defined', 'tuskline_core.queue_guard');
end $$;
comment on function tuskline_core.lock_queues() is
  'Lets one transaction at a time make queues. Waits 10 s, then refuses and names the holder.';

create or replace function tuskline_core.lock_recovery() returns void
language plpgsql set lock_timeout = '10s' as $$
begin
  lock table tuskline_core.recovery_guard in share row exclusive mode;
exception when lock_not_available then
  perform tuskline_core.refuse_guard('the queues are rebuilt', 'tuskline_core.recovery_guard');
end $$;
comment on function tuskline_core.lock_recovery() is
  'Lets one transaction at a time rebuild the queues. Waits 10 s, then refuses and names the '
  'holder.';

-- Refuses with 55P03, like every lock that was not granted in time: callers try again.
create or replace function tuskline_core.refuse_guard(p_what text, p_guard regclass) returns void
language plpgsql as $$
begin
  raise exception using errcode = 'lock_not_available',
    message = format('guard_held: %s by one transaction at a time; waited 10 s for %s', p_what,
      coalesce(tuskline_core.lock_holders(p_guard, '{ShareRowExclusiveLock}'),
               'one that has ended')),
    hint = 'Commit or end that transaction, then try again.';
end $$;
comment on function tuskline_core.refuse_guard(text, regclass) is
  'Raises 55P03 for a guard that is held, and names the sessions that hold it.';

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
