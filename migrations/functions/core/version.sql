-- version: which set of functions is installed, for programs that want to know before they speak.
create or replace function tuskline.version() returns integer
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select max(schema_version) from tuskline_core.stamp
$$;
comment on function tuskline.version() is
  'Number of the installed function set. A program works with its own number and every later one; null: never installed.';

-- readiness: what a health check asks, in one round trip. A standby has no unlogged tables, and refuses
-- even to plan a statement with one.
create or replace function tuskline.readiness(out schema_version integer, out queues_rebuilt boolean)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  schema_version := tuskline.version();
  queues_rebuilt := false;
  if not pg_is_in_recovery() then queues_rebuilt := exists (select from tuskline_core.verified_incarnation); end if;
end $$;
comment on function tuskline.readiness() is
  'Installed function set, and whether tasks may be claimed (false after a restart, crash, promotion or restore, until rebuild_queues).';
