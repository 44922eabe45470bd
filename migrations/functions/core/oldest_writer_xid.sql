-- Finds a transaction number below which no open transaction has written to a table.
--
-- Every transaction with a lower number has ended or has not touched the table. Rows still to come
-- have later numbers or dates than the rows there now. Thus the callers of claim and enqueue_due
-- can advance their low-water marks, so that no scan reads dead rows.
--
-- Usually the oldest running transaction is the answer: it is fewer than 200 numbers behind. One
-- that runs for long (a bulk load, an idle session) would hold every mark, and each claim would
-- scan all rows taken since. Then the locks tell which of the old transactions have written here.
-- To read them takes 90 µs.
--
-- Race: call it before the scan. Then the scan sees all rows of the transactions that have ended.
create or replace function tuskline_core.oldest_writer_xid(p_table regclass) returns bigint
language plpgsql as $$
declare
  v_snapshot pg_snapshot := pg_current_snapshot();
  v_oldest   bigint := pg_snapshot_xmin(v_snapshot)::text::bigint;
  v_next     bigint := pg_snapshot_xmax(v_snapshot)::text::bigint;
begin
  if v_next - v_oldest < 200 then return v_oldest; end if;
  with l as materialized (
    select l.virtualtransaction as who, l.relation, l.transactionid::text::bigint as number
      from pg_locks l
     where l.granted and (l.locktype = 'transactionid' and l.mode = 'ExclusiveLock'
                          or l.locktype = 'relation' and l.mode = 'RowExclusiveLock'
                             and l.database = (select d.oid from pg_database d
                                                where d.datname = current_database()))
  ), w as materialized (
    select n.number from l n where n.number is not null and exists (
      select from l r where r.who = n.who and (r.relation = p_table
        or r.relation in (select i.inhrelid from pg_inherits i where i.inhparent = p_table))))
  select min(x.number) into v_oldest
    from (select xip::text::bigint as number from pg_snapshot_xip(v_snapshot) as xip) x
   where x.number % 4294967296 in (select w.number from w);
  return coalesce(v_oldest, v_next);
end $$;
comment on function tuskline_core.oldest_writer_xid(regclass) is
  'Transactions below this number have ended or have not written to the table.';
