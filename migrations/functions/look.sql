-- look: whether a queue holds anything above a mark. The safety poll of a sleeping controller: it costs a
-- fifth of a claim that finds nothing (26 µs a queue), takes no row and writes nothing. A row that somebody
-- is just taking counts as well. Before the recovery each is worth the claim that says so.
-- The leaf is named as in pop; index scans only, or a queue that looks small would be read from its start.
create or replace function tuskline.look(p_queues integer[], p_marks bigint[]) returns boolean[]
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_from  timestamptz := (select c.claims_from from tuskline.verified c);
  v_any   boolean;
  v_found boolean[] := array_fill(v_from is null, array[cardinality(p_queues)]);
begin
  if v_from is null or v_from > tuskline.clock() then return v_found; end if;
  for v_at in 1..cardinality(p_queues) loop
    execute format('select exists (select from tuskline.queue_%s where seq > $1)', p_queues[v_at])
      into v_any using coalesce(p_marks[v_at], 0);
    v_found[v_at] := v_any;
  end loop;
  return v_found;
end $$;
comment on function tuskline.look(integer[], bigint[]) is 'Whether each of the queues holds a task above its mark.';
