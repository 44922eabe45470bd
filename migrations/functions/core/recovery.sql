-- Two facts are checked before executor numbers and fences are drawn:
--
-- * The queue rows are complete: tuskline_core.queues_complete has its row. It is unlogged, so it is
--   empty after a crash and on a promoted standby, as the queues are.
-- * This database is the one that issued the last numbers: tuskline_core.incarnation names it by the
--   start of the server (another one after every restart, and in a cold copy that was put back),
--   by the oid of the database (another one in a copy from a template), and by the transaction
--   that wrote the row (another one where the row was restored from a dump or came by logical
--   replication).
--
-- Otherwise numbers of a future that this database does not know could be issued again, and a
-- stale result would be accepted. rebuild_queues() raises them and writes the row anew.

-- The path of a relation's file names the database: memory only, where pg_database would be read.
-- No index covers the columns, so each of the two tables costs a claim one page.
create or replace view tuskline_core.verified_incarnation as
  select i.verified_at, i.claims_from
    from tuskline_core.incarnation i, tuskline_core.queues_complete q
   where q.since > '-infinity'
     and i.started_at = pg_postmaster_start_time() and i.written_by = i.xmin
     and i.database_oid = split_part(pg_relation_filepath(i.tableoid), '/', -2)::oid;
comment on view tuskline_core.verified_incarnation is
  'One row while the queues are complete and this is the database that issued the last numbers; else none. Internal.';
comment on column tuskline_core.verified_incarnation.verified_at is 'Names this life of the database.';
comment on column tuskline_core.verified_incarnation.claims_from is 'Nothing is claimed before.';

create or replace function tuskline_core.refuse_unverified() returns void language plpgsql as $$
begin
  perform tuskline_core.refuse('TK011',
    'queues_not_rebuilt: the server was restarted or promoted, or this database is a copy',
    'select tuskline.rebuild_queues()');
end $$;
comment on function tuskline_core.refuse_unverified() is
  'Refuses (TK011): rebuild_queues() must be called before this database issues numbers.';

-- system_identifier: null where the owner may not read it.
create or replace function tuskline_core.system_identifier() returns bigint
language plpgsql volatile as $$
begin
  return (select c.system_identifier from pg_control_system() c);
exception when insufficient_privilege or feature_not_supported or undefined_function then
  return null;
end $$;
comment on function tuskline_core.system_identifier() is
  'Names the cluster from its initdb on, also in its standbys and base backups; null: not readable.';

-- is_copy: whether this database was restored, copied or replicated from another one, or from an
-- earlier state of itself, as far as the row can tell. A restart alone is none.
create or replace function tuskline_core.is_copy() returns boolean language sql volatile as $$
  select coalesce(bool_or(
           i.written_by <> i.xmin
           or i.database_oid <> split_part(pg_relation_filepath(i.tableoid), '/', -2)::oid
           or i.system_identifier is distinct from tuskline_core.system_identifier()), true)
    from tuskline_core.incarnation i
$$;
comment on function tuskline_core.is_copy() is
  'Whether another database wrote tuskline_core.incarnation, or nothing did.';

-- verify: this database has issued the last numbers from now on. The second statement reads the
-- number of the transaction, or of its subtransaction, off the row itself.
create or replace function tuskline.verify(p_claims_from timestamptz default '-infinity')
returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  insert into tuskline_core.incarnation as i
    (started_at, database_oid, system_identifier, verified_at, claims_from)
  select pg_postmaster_start_time(), split_part(pg_relation_filepath(c.oid), '/', -2)::oid,
         tuskline_core.system_identifier(), tuskline.clock(), p_claims_from
    from pg_class c where c.oid = 'tuskline_core.incarnation'::regclass
  on conflict (is_only) do update
     set started_at = excluded.started_at, database_oid = excluded.database_oid,
         system_identifier = excluded.system_identifier, verified_at = excluded.verified_at,
         claims_from = greatest(excluded.claims_from,
           least(i.claims_from, excluded.verified_at + tuskline_core.longest_lease()));
  update tuskline_core.incarnation set written_by = xmin;
end $$;
comment on function tuskline.verify(timestamptz) is
  'Writes tuskline_core.incarnation for this life of this database. Nothing is claimed before p_claims_from.';

-- longest_lease: also of those that a recovery or an adoption has ended, because they may work for the
-- original.
create or replace function tuskline_core.longest_lease() returns interval language sql stable as $$
  select coalesce(max(e.lease), '20 seconds') from tuskline.executor e
   where e.ended_at is null or e.end_reason in ('copied', 'adopted')
$$;
comment on function tuskline_core.longest_lease() is
  'Longest lease of the executors that have not ended or work for the original of a copy; 20 s if there are none.';

-- delay_claims: a worker knows more of its heartbeats than this database does. Other workers may
-- run bodies of a future that is lost. They have ended one lease after the recovery, which came
-- later than that loss. So a worker that comes back late, or a caller that lies, delays nothing.
create or replace function tuskline_core.delay_claims(p_now timestamptz) returns void
language plpgsql as $$
declare
  v_known timestamptz;
  v_until timestamptz;
begin
  perform from tuskline_core.incarnation for no key update;
  v_known := (select v.verified_at from tuskline_core.verified_incarnation v);
  v_until := coalesce(v_known, p_now) + tuskline_core.longest_lease();
  update tuskline_core.incarnation set claims_from = v_until
   where claims_from < v_until and v_until > p_now;
  -- A row that was not verified stays so.
  if found and v_known is not null then
    update tuskline_core.incarnation set written_by = xmin;
  end if;
end $$;
comment on function tuskline_core.delay_claims(timestamptz) is
  'Nothing is claimed until one lease after the recovery: a heartbeat found that this database is of the past.';
