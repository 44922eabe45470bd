-- Bounds the lease with which a worker may register.
--
-- The tasks of a dead worker start elsewhere after its lease. So a worker that names a long lease
-- and dies keeps its tasks for so long. Workers that are registered keep their leases.
-- Returns the bound before.
create or replace function tuskline.set_max_lease(p_max_lease interval) returns interval
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_before interval;
begin
  if p_max_lease is null or p_max_lease not between '1 second' and '1 day' then
    perform tuskline_core.refuse('TK010', format(
      'invalid_lease: the longest lease must be 1 s to 1 day, got %s',
      coalesce(p_max_lease::text, 'null')));
  end if;
  select i.max_lease into v_before from tuskline.installation i for no key update;
  update tuskline.installation set max_lease = p_max_lease;
  insert into tuskline.audit (at, verb, subject, detail)
  values (tuskline.clock(), 'set_max_lease', 'installation',
          format('%s, was %s', p_max_lease, v_before));
  return v_before;
end $$;
comment on function tuskline.set_max_lease(interval) is
  'Sets the longest lease with which a worker may register, 1 hour by default. Returns the one '
  'before. For the owner of the schema. Audited.';
