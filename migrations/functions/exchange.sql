-- exchange: the results of the last batch and the claim of the next, in one statement and one commit.
-- A synchronous commit costs as much as 50-100 row transitions, so a busy controller lives on this.
-- held: results of rows that somebody else has locked for more than 200 ms; not recorded, their leases
-- kept: send them again with a later exchange.
create or replace function tuskline.exchange(
  p_executor bigint, p_tasks bigint[], p_fences bigint[], p_notes json, p_done_leases bigint[],
  p_queues integer[], p_marks bigint[], p_groups smallint[], p_budgets integer[],
  out refused bigint[],
  out alive boolean, out lease_id bigint, out popped integer[], out first_seq bigint[], out last_seq bigint[],
  out ended_before bigint, out xid bigint,
  out task_id bigint[], out queue_index smallint[], out attempt smallint[], out crashes smallint[],
  out waited_ms integer[], out collection text[], out payload json[], out held bigint[])
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off set lock_timeout = '200ms' as $$
begin
  if cardinality(p_tasks) > 0 or p_notes is not null then
    select s.refused, s.held into refused, held
      from tuskline.set_or_hold(p_executor, p_tasks, p_fences, p_notes, p_done_leases) s;
  else
    refused := tuskline.set_results(p_executor, p_tasks, p_fences, p_notes, p_done_leases);
  end if;
  select c.alive, c.lease_id, c.popped, c.first_seq, c.last_seq, c.ended_before, c.xid,
         c.task_id, c.queue_index, c.attempt, c.crashes, c.waited_ms, c.collection, c.payload
    into alive, lease_id, popped, first_seq, last_seq, ended_before, xid,
         task_id, queue_index, attempt, crashes, waited_ms, collection, payload
    from tuskline.claim(p_executor, p_queues, p_marks, p_groups, p_budgets) c;
end $$;
comment on function tuskline.exchange(bigint, bigint[], bigint[], json, bigint[], integer[], bigint[], smallint[], integer[]) is
  'set_results and claim in one commit.';
