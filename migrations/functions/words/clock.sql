-- clock: the only clock that decides what is due. It may step (NTP, a moved machine, a failover), so it
-- does not decide whether a worker is dead: see rescue. Read it once per verb, into a variable: inside
-- a WHERE a volatile call would cost the index. Test databases replace this function by one that reads
-- a pinned time; a production database has no pin at all.
create or replace function tuskline.clock() returns timestamptz
language sql volatile as 'select clock_timestamp()';
comment on function tuskline.clock() is
  'The only clock that decides what is due, and the one that every time in a table is of. Read once per verb.';
