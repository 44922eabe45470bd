-- Claims a batch over several queues for one worker: one fence, one lease row, one commit.
--
-- claim and exchange share this function. Queues are tried in the given order: the caller puts the
-- higher priority first.
--   p_marks      low-water marks of the caller (hints): no row at or below a mark is left
--   p_groups     the number of each queue's budget: the queues of one lambda share its free slots
--   p_budgets    the budgets: the most tasks of a group
--   p_bounds     the most tasks from each queue; null: no bound of its own
--   p_max_bytes  the claim ends at the queue at which its payloads reach this size (payload_bytes).
--                They exceed it by one payload at most.
-- Returns arrays with one element per task, in id order.
-- For each queue of p_queues it returns how many rows were popped and the first and last number.
-- The caller advances its marks from these, from xid and from oldest_writer_xid.
-- xid is the number of this transaction; null: it wrote nothing.
-- cut_at is the queue, counted from 1, at which p_max_bytes ended the claim; null: no queue did.
--
-- The clock is read again behind the pop: a start is never earlier than the rate permit it spends.
-- Until claims_from (a delay after a recovery), a claim acts as if every queue were empty.
--
-- Planner: the settings of claim and exchange force index scans in id order, whatever the
-- statistics say. JIT is off: with many segments a plan looks expensive, and compiling takes 40 ms.
create or replace function tuskline_core.claim_batch(
  p_executor bigint, p_queues integer[], p_marks bigint[], p_groups smallint[],
  p_budgets integer[], p_bounds integer[], p_max_bytes bigint)
returns tuskline_core.exchanged language plpgsql as $$
declare
  v         tuskline_core.exchanged; t tuskline_core.exchanged; -- t: what take returned
  v_now     timestamptz := tuskline.clock();
  v_expires timestamptz; v_from timestamptz; -- no claim before v_from
  v_popped  bigint[];    -- first and last number, bytes, cut, then the task ids
  v_count   integer; v_most integer; v_bytes bigint := p_max_bytes;
  v_ids     bigint[]; v_index smallint[];    -- queue of each task of v_ids
  v_flags   boolean; v_flagged integer[];
begin
  select v_now + e.lease, (select c.claims_from from tuskline_core.verified_incarnation c),
         exists (select from tuskline_core.flagged_queue)
    into v_expires, v_from, v_flags
    from tuskline_core.live_executor e where e.executor_id = p_executor;
  v.alive := found; if not v.alive then return v; end if;
  if v_from is null then perform tuskline_core.refuse_unverified(); end if;
  v.popped := array_fill(case when v_from > v_now then 0 end, array[cardinality(p_queues)]);
  v.first_seq := array_fill(null::bigint, array[cardinality(p_queues)]);
  v.last_seq := v.first_seq;
  v.oldest_writer_xid := tuskline_core.oldest_writer_xid('tuskline.queued');
  if v_from > v_now then return v; end if; -- as if every queue were empty
  if v_flags then
    v_flagged := array(select f.queue_id from tuskline_core.flagged_queue f
      where f.queue_id = any (p_queues) and (f.unsorted or f.paused @> v_now));
  end if;
  for v_at in 1..cardinality(p_queues) loop
    if coalesce(p_queues[v_at]
                  not between 1 and pg_sequence_last_value('tuskline.queue_queue_id_seq')
                or p_budgets[p_groups[v_at]] is null, true)
    then perform tuskline_core.refuse_claim(p_queues[v_at], p_groups[v_at]); end if;
    v_most := least(p_budgets[p_groups[v_at]], p_bounds[v_at]);
    continue when coalesce(v_most, 0) <= 0;
    if p_queues[v_at] = any (v_flagged) then
      v_popped := tuskline_core.pop_flagged(
        p_queues[v_at], coalesce(p_marks[v_at], 0), v_most, v_bytes, v_now);
    else
      execute 'select tuskline_core.pop_' || p_queues[v_at] || '($1, $2, $3)' into v_popped
        using coalesce(p_marks[v_at], 0), v_most, v_bytes;
    end if;
    v_count := coalesce(cardinality(v_popped) - 4, 0); v.popped[v_at] := v_count;
    v.first_seq[v_at] := v_popped[1]; v.last_seq[v_at] := v_popped[2];
    continue when v_count = 0;
    v_ids := v_ids || v_popped[5:];
    v_index := v_index || array_fill(v_at::smallint, array[v_count]);
    p_budgets[p_groups[v_at]] := p_budgets[p_groups[v_at]] - v_count;
    v_bytes := v_bytes - v_popped[3];
    v.cut_at := case when v_popped[4] = 1 or v_bytes <= 0 then v_at end;
    exit when v.cut_at is not null;
  end loop;
  v.xid := pg_current_xact_id_if_assigned()::text::bigint; if v_ids is null then return v; end if;
  if v_index[1] <> v_index[cardinality(v_index)] then -- several queues, each sorted by itself
    select array_agg(u.id order by u.id), array_agg(u.index order by u.id) into v_ids, v_index
      from unnest(v_ids, v_index) as u (id, index);
  end if;
  if v_flagged <> '{}' then
    v_popped := tuskline_core.ask_popped(v_ids, v_index, p_queues, v_flagged, v_now);
    select array_agg(s.id), array_agg(s.index) into v_ids, v_index
      from unnest(v_ids, v_index) as s (id, index) where s.id = any (v_popped);
    if v_ids is null then return v; end if;
  end if;
  v.lease_id := nextval('tuskline.fence_seq');
  t := tuskline_core.take(v.lease_id, v_ids, v_index, tuskline.clock(), v_expires);
  if t.task_id is null then return v; end if;
  v.task_id := t.task_id; v.queue_index := t.queue_index; v.attempt := t.attempt;
  v.crashes := t.crashes; v.queued_ms := t.queued_ms;
  v.claimed_before := t.claimed_before; v.waited_ms := t.waited_ms;
  v.collection := t.collection; v.payload := t.payload; v.traceparent := t.traceparent;
  insert into tuskline.lease (executor_id, lease_id, task_ids)
  values (p_executor, v.lease_id, v.task_id);
  return v;
end $$;
comment on function tuskline_core.claim_batch(
  bigint, integer[], bigint[], smallint[], integer[], integer[], bigint) is
  'Claims a batch of tasks for a worker. claim and exchange share it.';

-- Pops tasks from a paused or unsorted queue. The result has the form of pop_<n>.
--
-- A paused queue yields nothing, or the one task that may pass (flagged_queue.passing).
-- An unsorted queue yields enqueued tasks that are not locked.
-- Returns p_mark + 1 as the first number: any row above the mark may be left. So no mark of the
-- caller moves.
-- Locks: the queue rows and their tasks (SKIP LOCKED). A row whose task is locked keeps its
-- position: if it returned to the end, it would escape the pass that sorts the queue.
-- Planner: the lateral limit looks up one task for each row. As a join it read the whole store for
-- each claim while the statistics of the task table were old.
create or replace function tuskline_core.pop_flagged(
  p_queue integer, p_mark bigint, p_limit integer, p_bytes bigint, p_now timestamptz)
returns bigint[] language plpgsql as $$
declare
  v_none    bigint[] := array[p_mark + 1, null, 0, 0];
  v_passing bigint;
  v_popped  bigint[];
begin
  if exists (select from tuskline_core.flagged_queue f
              where f.queue_id = p_queue and f.paused @> p_now) then
    select f.passing into v_passing from tuskline_core.flagged_queue f
     where f.queue_id = p_queue and f.passing is not null for update skip locked;
    if not found then return v_none; end if;
    update tuskline_core.flagged_queue set passing = null where queue_id = p_queue;
    p_mark := v_passing - 1;
  end if;
  execute format('with r as materialized ('
    'select d.seq, d.bytes, d.task_id from tuskline_core.queue_%1$s d'
    ' cross join lateral (select from tuskline.task t'
    ' where t.id = d.task_id and t.status = ''enqueued'' limit 1 for update skip locked) t'
    ' where d.seq > $1 and d.seq <= coalesce($4, d.seq)'
    ' order by d.seq limit $2 for update of d skip locked'
    '), w as (select r.seq, row_number() over o as nth, sum(r.bytes) over o as so_far from r'
    ' window o as (order by r.seq)'
    '), d as (delete from tuskline_core.queue_%1$s where seq = any (array('
    'select w.seq from w where w.so_far <= $3 or w.nth = 1)) returning seq, bytes, task_id)'
    ' select array[max(d.seq), sum(d.bytes), (count(*) < (select count(*) from r))::integer]'
    ' || array_agg(d.task_id order by d.task_id) from d having count(*) > 0', p_queue)
    into v_popped using p_mark, p_limit, p_bytes, v_passing;
  if v_popped is null then return v_none; end if;
  return v_none[1] || v_popped;
end $$;
comment on function tuskline_core.pop_flagged(integer, bigint, integer, bigint, timestamptz) is
  'Pops tasks from a paused or unsorted queue for a claim.';

-- Checks popped tasks of flagged queues against gates and limits. Tasks of all other queues pass.
--
-- Returns the tasks that may be claimed.
create or replace function tuskline_core.ask_popped(
  p_ids bigint[], p_index smallint[], p_queues integer[], p_flagged integer[], p_now timestamptz)
returns bigint[] language plpgsql as $$
declare
  v_ids bigint[] := array(select u.id from unnest(p_ids, p_index) as u (id, index)
                           where p_queues[u.index] = any (p_flagged) order by u.id);
begin
  return array(select unnest(p_ids) except select unnest(v_ids))
    || tuskline_core.ask_before_claim(v_ids, p_now);
end $$;
comment on function tuskline_core.ask_popped(
  bigint[], smallint[], integer[], integer[], timestamptz) is
  'Returns the popped tasks that no gate or limit holds; the remaining ones wait or end.';

create or replace function tuskline_core.refuse_claim(p_queue integer, p_group smallint)
returns void language plpgsql immutable as $$
begin
  perform tuskline_core.refuse('TK053',
    format('invalid_claim: each queue must exist, and its group must have a budget, '
      'got queue %s, group %s',
      coalesce(p_queue::text, 'null'), coalesce(p_group::text, 'null')),
    'tuskline.executor_lambdas() tells the queues; groups count from 1');
end $$;
comment on function tuskline_core.refuse_claim(integer, smallint) is
  'Refuses (TK053) a claim of a queue that does not exist, or whose group has no budget.';

create or replace function tuskline.claim(
  p_executor bigint, p_queues integer[], p_marks bigint[], p_groups smallint[],
  p_budgets integer[], p_bounds integer[] default null, p_max_bytes bigint default 8388608)
returns tuskline_core.exchanged language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off set lock_timeout = '200ms'
set plan_cache_mode = force_generic_plan set enable_hashjoin = off set enable_mergejoin = off
set enable_seqscan = off set enable_bitmapscan = off as $$
begin
  return tuskline_core.claim_batch(
    p_executor, p_queues, p_marks, p_groups, p_budgets, p_bounds, p_max_bytes);
end $$;
comment on function tuskline.claim(
  bigint, integer[], bigint[], smallint[], integer[], integer[], bigint) is
  'Claims a batch of tasks for a worker: one fence, one lease. '
  'alive is false when the executor has ended.';
