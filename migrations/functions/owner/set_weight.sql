-- Sets how many tasks of a tenant run in one round of a fair limit. The default is 1.
--
-- A tenant is a fairness_key; the empty key is for tasks without one. The weight applies to
-- tasks that join the wait list from now on. It stays until the limit is dropped.
create or replace function tuskline.set_weight(
  p_limit_id bigint, p_fairness_key text, p_weight double precision)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  perform tuskline_core.need(r.lambda, 'own')
     from tuskline.task_limit r where r.limit_id = p_limit_id;
  if not exists (select from tuskline.task_limit
                  where limit_id = p_limit_id and fair and dropped_at is null) then
    perform tuskline_core.refuse('TK018', format(
      'invalid_limit: %s is not the number of a fair limit', coalesce(p_limit_id::text, 'null')));
  elsif p_weight is null or not (p_weight between 0.001 and 1000) then
    perform tuskline_core.refuse('TK018', format(
      'invalid_limit: weight must be 0.001 to 1000, got %s', coalesce(p_weight::text, 'null')));
  elsif p_fairness_key is null or octet_length(p_fairness_key) > 256 then
    perform tuskline_core.refuse('TK019',
      format('invalid_key: fairness_key must have at most 256 bytes, got %s',
             coalesce(octet_length(p_fairness_key)::text, 'null')),
      'the empty key stands for tasks without one');
  end if;
  insert into tuskline.tenant (limit_id, fairness_key, weight, has_weight, last_position)
  values (p_limit_id, p_fairness_key, p_weight, true, 0)
  on conflict (limit_id, fairness_key) do update
     set weight = excluded.weight, has_weight = true;
  insert into tuskline.audit (at, verb, subject, detail)
  values (tuskline.clock(), 'set_weight', 'limit ' || p_limit_id,
          p_fairness_key || ' ' || p_weight);
end $$;
comment on function tuskline.set_weight(bigint, text, double precision) is
  'Sets how many tasks of a tenant (fairness_key) run in one round of a fair limit. Audited.';

-- Computes the positions of tasks that join the wait list of a fair limit.
--
-- A position is a round. The tasks of a tenant are 1 / weight rounds apart, starting in the round
-- that is being served. So a tenant with one task waits one round, however many tasks another
-- tenant has in the wait list. When the wait list was empty, rounds start at 0 again, and tenants
-- without a weight are forgotten.
-- Returns the positions in the order of p_ids. The caller holds the row lock of the limit.
create or replace function tuskline_core.fair_positions(p_limit_id bigint, p_ids bigint[])
returns double precision[] language plpgsql as $$
declare
  v_base      double precision := (
    select min(l.position) from tuskline.wait_list l where l.limit_id = p_limit_id and l.key = '');
  v_positions double precision[];
begin
  if v_base is null then
    v_base := 0;
    delete from tuskline.tenant where limit_id = p_limit_id and not has_weight;
    update tuskline.tenant set last_position = 0
     where limit_id = p_limit_id and last_position > 0;
  end if;
  with n as materialized (
    select u.id, u.nth, coalesce(t.fairness_key, '') as fairness_key
      from unnest(p_ids) with ordinality as u (id, nth)
           cross join lateral ( -- one look-up each: as a join, a plan read all tasks for each
             select t.fairness_key from tuskline.task t where t.id = u.id limit 1) t
  ), b as materialized (
    select n.nth, n.fairness_key, coalesce(e.weight, 1) as weight,
           greatest(v_base, coalesce(e.last_position, 0)) as position,
           row_number() over (partition by n.fairness_key order by n.id) as k,
           count(*) over (partition by n.fairness_key) as tasks
      from n left join lateral (
             select e.weight, e.last_position from tuskline.tenant e
              where e.limit_id = p_limit_id and e.fairness_key = n.fairness_key limit 1) e on true
  ), w as (
    insert into tuskline.tenant (limit_id, fairness_key, weight, has_weight, last_position)
    select p_limit_id, b.fairness_key, b.weight, false, b.position + b.tasks / b.weight
      from b where b.k = 1
    on conflict (limit_id, fairness_key) do update set last_position = excluded.last_position)
  select array_agg(b.position + b.k / b.weight order by b.nth) into v_positions from b;
  return v_positions;
end $$;
comment on function tuskline_core.fair_positions(bigint, bigint[]) is
  'Computes the positions (rounds) of tasks that join the wait list of a fair limit.';
