-- Finds the tasks of a lambda that wait with a key, hold a permit of it, or acquired it as their
-- unique key last. Other tasks with the key have no index.
--
-- It rides the primary keys of unique_key, permit and wait_list. A caller who may not inspect the
-- lambda gets no row, as the views show it no keys.
create or replace function tuskline.key_holders(
  p_lambda text, p_key text, p_limit integer default 50) returns setof bigint
language sql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  with m as materialized (
    select r.limit_id from tuskline.task_limit r
     where r.lambda = p_lambda and tuskline.may(p_lambda, 'inspect')
     order by r.limit_id limit 100)
  select u.task_id from tuskline.unique_key u
   where u.lambda = p_lambda and u.key = p_key and tuskline.may(p_lambda, 'inspect')
  union
  select h.task_id from m cross join lateral (
    select p.task_id from tuskline.permit p
     where p.limit_id = m.limit_id and p.key = p_key limit p_limit) h
  union
  select w.task_id from m cross join lateral (
    select l.task_id from tuskline.wait_list l
     where l.limit_id = m.limit_id and l.key = p_key limit p_limit) w
$$;
comment on function tuskline.key_holders(text, text, integer) is
  'Tasks of a lambda that wait with a key, hold a permit of it, or acquired it as their unique key '
  'last; at most p_limit of each list. No row without the right inspect.';
