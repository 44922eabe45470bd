-- claim: enqueued -> claimed, for one batch over several queues of one worker: one fence, one lease
-- row, one commit. Queues are tried in the order given, so the caller puts the higher priority first;
-- p_groups names each queue's budget in p_budgets, so that the queues of one lambda share its free slots.
-- p_marks: low-water marks, nothing at or below them is left (hints of the caller's).
-- Returns arrays, one element per task, in id order, and per queue (in the order of p_queues) how many
-- rows were popped and the first and last number, with the number of this transaction (null if it wrote
-- nothing) and ended_before: from these the caller advances its marks.
-- The settings pin the plan: index scans in id order whatever the statistics say, and no JIT, which
-- compiles for 40 ms as soon as many segments make a plan look dear.
create or replace function tuskline.claim(
  p_executor bigint, p_queues integer[], p_marks bigint[], p_groups smallint[], p_budgets integer[],
  out alive boolean, out lease_id bigint, out popped integer[], out first_seq bigint[], out last_seq bigint[],
  out ended_before bigint, out xid bigint,
  out task_id bigint[], out queue_index smallint[], out attempt smallint[], out crashes smallint[],
  out waited_ms integer[], out collection text[], out payload json[])
language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off set lock_timeout = '200ms' set plan_cache_mode = force_generic_plan
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_now     timestamptz := tuskline.clock();
  v_expires timestamptz;
  v_ids     bigint[] := '{}';
  v_index   smallint[] := '{}';
  v_free    bigint[];
  p         record;
begin
  select v_now + e.lease into v_expires from tuskline.executor e
   where e.executor_id = p_executor and e.ended_at is null;
  alive := found;
  if not alive then return; end if;
  if not exists (select from tuskline.boot) then
    perform tuskline.refuse('TK011', 'queues_not_rebuilt: the server restarted after a crash or was promoted',
      'select tuskline.rebuild_queues()');
  end if;
  popped := array_fill(null::integer, array[cardinality(p_queues)]);
  first_seq := array_fill(null::bigint, array[cardinality(p_queues)]);
  last_seq := first_seq;
  ended_before := tuskline.ended_before('tuskline.queued');
  for v_at in 1..cardinality(p_queues) loop
    continue when coalesce(p_budgets[p_groups[v_at]], 0) <= 0;
    select * into p from tuskline.pop(p_queues[v_at], p_marks[v_at], p_budgets[p_groups[v_at]]);
    popped[v_at] := coalesce(cardinality(p.task_ids), 0);
    first_seq[v_at] := p.first_seq;
    last_seq[v_at] := p.last_seq;
    v_ids := v_ids || p.task_ids;
    p_budgets[p_groups[v_at]] := p_budgets[p_groups[v_at]] - popped[v_at];
    v_index := v_index || array_fill(v_at::smallint, array[popped[v_at]]);
  end loop;
  xid := pg_current_xact_id_if_assigned()::text::bigint;
  if cardinality(v_ids) = 0 then return; end if;
  lease_id := nextval('tuskline.fence_seq');
  begin
    select * into p from tuskline.take(lease_id, v_ids, v_index, v_now, v_expires);
  exception when lock_not_available then
    v_free := tuskline.put_back_locked(v_ids);
    select array_agg(s.id), array_agg(s.index) into v_ids, v_index
      from unnest(v_ids, v_index) as s (id, index) where s.id = any (v_free);
    select * into p from tuskline.take(lease_id, v_ids, v_index, v_now, v_expires);
  end;
  task_id := p.task_id; queue_index := p.queue_index; attempt := p.attempt; crashes := p.crashes;
  waited_ms := p.waited_ms; collection := p.collection; payload := p.payload;
  if task_id is null then return; end if;
  insert into tuskline.lease (executor_id, lease_id, task_ids) values (p_executor, claim.lease_id, claim.task_id);
end $$;
comment on function tuskline.claim(bigint, integer[], bigint[], smallint[], integer[]) is
  'enqueued -> claimed for a batch; one fence and one lease. alive is false when the executor has ended.';
