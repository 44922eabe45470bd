-- oldest_writer_xid: every transaction with a lower number has ended, or has not touched this table: the rows
-- it may still bring are numbered, or dated, later than those that are there now. From this the callers
-- of claim and enqueue_due learn where the next look may start, so that nobody walks over dead rows.
-- Usually the oldest running transaction says it. One that runs for long (a bulk load, a session that
-- somebody left open) would hold every mark where it is, and each claim would walk over all the rows
-- taken since: then the locks say who of the old ones has written here. Reading them takes 90 µs.
-- Asked before the look, so that the look sees what the ended ones have left.
create or replace function tuskline_core.oldest_writer_xid(p_table regclass) returns bigint
language plpgsql as $$
declare
  v_snapshot pg_snapshot := pg_current_snapshot();
  v_oldest   bigint := pg_snapshot_xmin(v_snapshot)::text::bigint;
  v_next     bigint := pg_snapshot_xmax(v_snapshot)::text::bigint;
begin
  if v_next - v_oldest < 200 then return v_oldest; end if;
  with l as materialized (
    select l.virtualtransaction as who, l.relation, l.transactionid::text::bigint as number from pg_locks l
     where l.granted and (l.locktype = 'transactionid' and l.mode = 'ExclusiveLock'
                          or l.locktype = 'relation' and l.mode = 'RowExclusiveLock'
                             and l.database = (select d.oid from pg_database d where d.datname = current_database()))
  ), w as materialized (
    select n.number from l n where n.number is not null and exists (
      select from l r where r.who = n.who and (r.relation = p_table
        or r.relation in (select i.inhrelid from pg_inherits i where i.inhparent = p_table))))
  select min(x.number) into v_oldest
    from (select xip::text::bigint as number from pg_snapshot_xip(v_snapshot) as xip) x
   where x.number % 4294967296 in (select w.number from w);
  return coalesce(v_oldest, v_next);
end $$;
comment on function tuskline_core.oldest_writer_xid(regclass) is 'Transactions below this number have ended, or have not written to the table.';
