-- Refuses an operation on a lambda on which the caller lacks the right: own for a purge or an
-- erase, else operate. A filter by key or field tells of contents, so it needs inspect as well.
--
-- An operation without a lambda may reach all: it needs the right on each closed lambda, or on
-- those of its ids. A task never changes its lambda, so no batch asks again. Returns the ids. An id
-- that names no task yet is left out: it might become that of another role's task.
create or replace function tuskline_core.need_operation(o tuskline.operation) returns bigint[]
language plpgsql as $$
declare
  v_right   text := case when o.action in ('purge', 'erase') then 'own' else 'operate' end;
  v_barred  text[] := tuskline.barred(v_right) || case
    when num_nonnulls(o.key, o.field) > 0 then tuskline.barred('inspect') else '{}' end;
  v_ids     bigint[];
  v_lambdas text[];
begin
  if v_barred = '{}' then return o.ids; end if;
  if o.lambda is null and o.ids is not null then
    select array_agg(u.id order by u.id), array_agg(u.lambda) into v_ids, v_lambdas
      from (select t.id, t.lambda from tuskline_core.all_tasks t where t.id = any (o.ids)
            union
            select a.id, a.lambda from tuskline.task_archive a where a.id = any (o.ids)) u;
    o.lambda := (select l from unnest(v_lambdas) as l where l = any (v_barred) limit 1);
    if o.lambda is null then return coalesce(v_ids, '{}'); end if;
  end if;
  if o.lambda is null or o.lambda = any (v_barred) then
    perform tuskline_core.refuse_right(o.lambda, array[v_right]);
  end if;
  return o.ids;
end $$;
comment on function tuskline_core.need_operation(tuskline.operation) is
  'Refuses (42501) an operation on a lambda on which the caller lacks the right. Returns the ids '
  'on which it may act.';
