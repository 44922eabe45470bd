-- Returns which function set is installed: a program may check this first.
create or replace function tuskline.version() returns integer
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select max(schema_version) from tuskline_core.stamp
$$;
comment on function tuskline.version() is
  'Number of the installed function set. A program works with its own number and every later one. '
  'Null: never installed.';

-- Answers a health check in one round trip.
--
-- A standby refuses even to plan a statement on an unlogged table, so that one is skipped there.
create or replace function tuskline.readiness(
  out schema_version integer, out queues_rebuilt boolean)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  schema_version := tuskline.version();
  queues_rebuilt := false;
  if not pg_is_in_recovery() then
    queues_rebuilt := exists (select from tuskline_core.verified_incarnation);
  end if;
end $$;
comment on function tuskline.readiness() is
  'Installed function set, and whether the queues are complete. queues_rebuilt is false after a '
  'restart, crash, promotion or restore, until rebuild_queues().';
