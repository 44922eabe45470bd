-- Guards: what only one may do at a time is guarded by a table without rows that only the owner of
-- the schema may lock. Every login may take every advisory lock, whatever it was granted, so no verb
-- may wait for one. (The watch lock stays one: it is a hint.)
-- SHARE ROW EXCLUSIVE conflicts with itself and lets readers pass. It needs no transaction number and
-- keeps no snapshot, so that a guard held for an hour does not hold up vacuum.

-- lock_segments: the caller may make segments and their functions, until its transaction ends.
create or replace function tuskline_core.lock_segments() returns void
language plpgsql set lock_timeout = '10s' as $$
begin
  lock table tuskline_core.segment_guard in share row exclusive mode;
exception when lock_not_available then
  perform tuskline_core.refuse_guard('segments are made', 'tuskline_core.segment_guard');
end $$;
comment on function tuskline_core.lock_segments() is
  'Lets one transaction at a time make segments. Waits 10 s; then refuses and names the holder.';

-- lock_queues: the same for queues and their functions.
create or replace function tuskline_core.lock_queues() returns void
language plpgsql set lock_timeout = '10s' as $$
begin
  lock table tuskline_core.queue_guard in share row exclusive mode;
exception when lock_not_available then
  perform tuskline_core.refuse_guard('a lambda is defined', 'tuskline_core.queue_guard');
end $$;
comment on function tuskline_core.lock_queues() is
  'Lets one transaction at a time make queues. Waits 10 s; then refuses and names the holder.';

-- lock_recovery: the same for a rebuild of the queues.
create or replace function tuskline_core.lock_recovery() returns void
language plpgsql set lock_timeout = '10s' as $$
begin
  lock table tuskline_core.recovery_guard in share row exclusive mode;
exception when lock_not_available then
  perform tuskline_core.refuse_guard('the queues are rebuilt', 'tuskline_core.recovery_guard');
end $$;
comment on function tuskline_core.lock_recovery() is
  'Lets one transaction at a time rebuild the queues. Waits 10 s; then refuses and names the holder.';

-- refuse_guard: 55P03, as of every lock that was not granted, so that callers try again.
create or replace function tuskline_core.refuse_guard(p_what text, p_guard regclass) returns void
language plpgsql as $$
begin
  raise exception using errcode = 'lock_not_available',
    message = format('guard_held: %s by one transaction at a time; waited 10 s for %s', p_what,
      coalesce(tuskline_core.lock_holders(p_guard, '{ShareRowExclusiveLock}'), 'one that has ended')),
    hint = 'Commit or end that transaction, then try again.';
end $$;
comment on function tuskline_core.refuse_guard(text, regclass) is
  'Raises 55P03: a guard is held; says by which session.';

-- lock_policies: a session that has it keeps it until its transaction ends.
create or replace function tuskline_core.lock_policies() returns boolean
language plpgsql as $$
begin
  lock table tuskline_core.policy_guard in share row exclusive mode nowait;
  return true;
exception when lock_not_available then
  return false;
end $$;
comment on function tuskline_core.lock_policies() is
  'Lets one store consumer at a time look at backlogs and breakers; false: another one is at it.';

-- name_transaction: a session by pid, role, application and begin; a prepared transaction by its name.
-- A role that may not read the statistics of others sees no begin: then the age is not asked.
create or replace function tuskline_core.name_transaction(p_transaction text, p_age interval default '0')
returns text language sql stable as $$
  select case
           when a.pid is not null then
             format('pid %s (role %s, application %s) since %s', a.pid, coalesce(a.usename, '?'),
               coalesce(nullif(a.application_name, ''), '?'), coalesce(a.xact_start::text, '?'))
           else format('prepared transaction %L of role %s since %s', x.gid, x.owner, x.prepared) end
    from (select l.pid, max(l.transactionid::text) as number from pg_locks l
           where l.virtualtransaction = p_transaction and l.granted group by l.pid) l
         left join pg_stat_activity a on a.pid = l.pid
         left join pg_prepared_xacts x on l.pid is null and x.transaction::text = l.number
   where coalesce(coalesce(a.xact_start, x.prepared) <= clock_timestamp() - p_age, true) limit 1
$$;
comment on function tuskline_core.name_transaction(text, interval) is
  'Which session or prepared transaction this is, if it began so long ago; as pg_locks names it.';

-- lock_holders: for people. Modes as pg_locks names them; only transactions that began so long ago.
create or replace function tuskline_core.lock_holders(
  p_table regclass, p_modes text[], p_age interval default '0') returns text
language sql stable as $$
  select string_agg(h.holder, ', ')
    from (select distinct tuskline_core.name_transaction(l.virtualtransaction, p_age) as holder
            from pg_locks l
           where l.locktype = 'relation' and l.relation = p_table and l.granted
             and l.mode = any (p_modes) and l.pid is distinct from pg_backend_pid()
             and l.database = (select d.oid from pg_database d where d.datname = current_database())) h
$$;
comment on function tuskline_core.lock_holders(regclass, text[], interval) is
  'Sessions and prepared transactions that hold a lock of a table in one of these modes.';
