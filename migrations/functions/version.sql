-- version: which set of functions is installed, for programs that want to know before they speak.
create or replace function tuskline.version() returns integer
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select max(function_set) from tuskline.stamp
$$;
comment on function tuskline.version() is
  'Number of the installed function set. A program works with its own number and every later one; null: never installed.';
