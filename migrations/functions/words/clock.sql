-- Reads the only clock that decides what is due.
--
-- It may step (NTP, a moved machine, a failover), so it does not decide whether a worker is dead:
-- see rescue. Tests replace this function to read a pinned time. A production database has no pin.
--
-- Planner: read it once per verb, into a variable. A volatile call in a WHERE clause would prevent
-- the use of an index.
create or replace function tuskline.clock() returns timestamptz
language sql volatile as 'select clock_timestamp()';
comment on function tuskline.clock() is
  'The only clock that decides what is due. Every time in a table comes from it.';
