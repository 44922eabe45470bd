-- Checks two facts before executor numbers and fences are issued:
--
-- * The queue rows are complete: tuskline_core.queues_complete has its row. The table is unlogged,
--   as the queues are. So it is empty after a crash and on a promoted standby.
-- * This database issued the last numbers. tuskline_core.incarnation identifies it by three marks:
--     the start of the server          differs after a restart, and in a cold copy put back
--     the oid of the database          differs in a copy from a template
--     the transaction of the row       differs after a restore from a dump, or logical replication
--
-- Otherwise this database could issue numbers again that an unknown future has used. It would then
-- accept a stale result. The function rebuild_queues() raises the numbers and writes the row again.

-- Shows a row while both facts hold.
--
-- Planner: the path of a relation's file contains the oid of the database, and is in memory. A look
-- into pg_database would read a page. No index covers the columns, so each of the two tables costs
-- a claim one page.
create or replace view tuskline_core.verified_incarnation as
  select i.verified_at, i.claims_from, i.first_executor
    from tuskline_core.incarnation i, tuskline_core.queues_complete q
   where q.since > '-infinity'
     and i.started_at = pg_postmaster_start_time() and i.written_by = i.xmin
     and i.database_oid = split_part(pg_relation_filepath(i.tableoid), '/', -2)::oid;
comment on view tuskline_core.verified_incarnation is
  'One row while the queues are complete and this database issued the last numbers, else none. '
  'Internal.';
comment on column tuskline_core.verified_incarnation.verified_at is
  'Identifies this life of the database.';
comment on column tuskline_core.verified_incarnation.claims_from is
  'No task is claimed before this time.';
comment on column tuskline_core.verified_incarnation.first_executor is
  'First executor number that this life of the database can issue.';

create or replace function tuskline_core.refuse_unverified() returns void language plpgsql as $$
begin
  perform tuskline_core.refuse('TK011',
    'queues_not_rebuilt: the server was restarted or promoted, or this database is a copy',
    'select tuskline.rebuild_queues()');
end $$;
comment on function tuskline_core.refuse_unverified() is
  'Refuses (TK011): rebuild_queues() must be called before this database issues numbers.';

create or replace function tuskline_core.system_identifier() returns bigint
language plpgsql volatile as $$
begin
  return (select c.system_identifier from pg_control_system() c);
exception when insufficient_privilege or feature_not_supported or undefined_function then
  return null;
end $$;
comment on function tuskline_core.system_identifier() is
  'Identifies the cluster since its initdb, also in standbys and base backups. Null if the owner '
  'may not read it.';

-- Tells whether this database was restored, copied or replicated.
--
-- The source is another database, or an earlier state of this one. The row tells as far as it can.
-- A restart alone is no copy.
create or replace function tuskline_core.is_copy() returns boolean language sql volatile as $$
  select coalesce(bool_or(
           i.written_by <> i.xmin
           or i.database_oid <> split_part(pg_relation_filepath(i.tableoid), '/', -2)::oid
           or i.system_identifier is distinct from tuskline_core.system_identifier()), true)
    from tuskline_core.incarnation i
$$;
comment on function tuskline_core.is_copy() is
  'Whether another database wrote tuskline_core.incarnation, or nothing did.';

-- Marks this database as the issuer of the numbers from now on.
--
-- former_lease is fixed here. A worker that registers later says nothing about the lost future, and
-- may register with a lease of an hour. A copy ends the workers that it knows and waits for their
-- leases; in all other cases a worker that is not known may have the usual lease of 20 s.
--
-- The second statement copies the number of the transaction (or subtransaction) from the row
-- itself.
create or replace function tuskline.verify(p_claims_from timestamptz default '-infinity')
returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  insert into tuskline_core.incarnation as i
    (started_at, database_oid, system_identifier, verified_at, claims_from, first_executor,
     former_lease)
  select pg_postmaster_start_time(), split_part(pg_relation_filepath(c.oid), '/', -2)::oid,
         tuskline_core.system_identifier(), tuskline.clock(), p_claims_from,
         s.last_value + s.is_called::integer,
         greatest(tuskline_core.longest_lease(),
                  case when p_claims_from = '-infinity' then interval '20 seconds' end)
    from tuskline.executor_seq s cross join pg_class c
   where c.oid = 'tuskline_core.incarnation'::regclass
  on conflict (is_only) do update
     set started_at = excluded.started_at, database_oid = excluded.database_oid,
         system_identifier = excluded.system_identifier, verified_at = excluded.verified_at,
         first_executor = excluded.first_executor, former_lease = excluded.former_lease,
         claims_from = greatest(excluded.claims_from,
           least(i.claims_from, excluded.verified_at + excluded.former_lease));
  update tuskline_core.incarnation set written_by = xmin;
end $$;
comment on function tuskline.verify(timestamptz) is
  'Writes tuskline_core.incarnation for this life of the database. No task is claimed before '
  'p_claims_from.';

-- Counts executors that a recovery or an adoption has ended, too: they may work for the original.
create or replace function tuskline_core.longest_lease() returns interval language sql stable as $$
  select coalesce(max(e.lease), '20 seconds') from tuskline.executor e
   where e.ended_at is null or e.end_reason in ('copied', 'adopted')
$$;
comment on function tuskline_core.longest_lease() is
  'Longest lease of the executors that are live, or were ended by a copy or an adoption. 20 s if '
  'there are none.';

-- Tells whether this life of the database cannot have issued an executor number.
--
-- Before the recovery it has issued none.
create or replace function tuskline_core.is_of_another_life(p_executor bigint) returns boolean
language sql stable as $$
  select coalesce((select p_executor < v.first_executor or p_executor > s.last_value
                     from tuskline_core.verified_incarnation v cross join tuskline.executor_seq s),
                  true)
$$;
comment on function tuskline_core.is_of_another_life(bigint) is
  'Whether this life of the database cannot have issued this executor number.';

-- Delays all claims until one lease after the recovery.
--
-- Called when a worker knows of more heartbeats than this database. Then this database has lost a
-- future, and other workers of that future may still run bodies. They end at the latest one lease
-- after the recovery, which came later than the loss.
-- The end is fixed by the recovery: a worker that returns late, or a false caller, delays nothing.
create or replace function tuskline_core.delay_claims(p_now timestamptz) returns void
language plpgsql as $$
declare
  v_known timestamptz;
  v_until timestamptz;
begin
  perform from tuskline_core.incarnation for no key update;
  v_known := (select v.verified_at from tuskline_core.verified_incarnation v);
  v_until := coalesce(v_known + (select i.former_lease from tuskline_core.incarnation i),
                      p_now + greatest(tuskline_core.longest_lease(), interval '20 seconds'));
  update tuskline_core.incarnation set claims_from = v_until
   where claims_from < v_until and v_until > p_now;
  -- An update of an unverified row must not verify it.
  if found and v_known is not null then
    update tuskline_core.incarnation set written_by = xmin;
  end if;
end $$;
comment on function tuskline_core.delay_claims(timestamptz) is
  'Lets no task be claimed until one lease after the recovery: a heartbeat showed that this '
  'database has lost a future.';
