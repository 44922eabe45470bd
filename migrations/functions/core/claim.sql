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
  v         tuskline_core.exchanged;
  t         tuskline_core.exchanged; -- what take returned
  v_now     timestamptz := tuskline.clock();
  v_expires timestamptz;
  v_from    timestamptz; -- no claim before it
  v_ids     bigint[];
  v_index   smallint[];  -- queue of each task of v_ids
  v_free    bigint[];    -- tasks of flagged queues that no gate or limit holds
  v_flags   boolean;
  v_flagged integer[];
  v_role    name; v_own integer[]; -- that registered the executor, and for which queues
begin
  select v_now + e.lease, (select c.claims_from from tuskline_core.verified_incarnation c),
         exists (select from tuskline_core.flagged_queue), e.role, e.queues
    into v_expires, v_from, v_flags, v_role, v_own
    from tuskline_core.live_executor e where e.executor_id = p_executor;
  v.alive := found;
  if not v.alive then return v; end if;
  if tuskline_core.rights_in_use()
     and (v_role = tuskline_core.caller() and p_queues <@ v_own) is not true then
    perform tuskline_core.refuse_claim(p_executor);
  end if;
  if v_from is null then perform tuskline_core.refuse_unverified(); end if;
  v.oldest_writer_xid := tuskline_core.oldest_writer_xid('tuskline.queued');
  if v_from > v_now then -- as if every queue were empty
    p_budgets := array_fill(0, array[cardinality(p_budgets)]);
  end if;
  if v_flags then
    v_flagged := array(select f.queue_id from tuskline_core.flagged_queue f
      where f.queue_id = any (p_queues) and (f.unsorted or f.paused @> v_now));
  end if;
  select q.popped, q.first_seq, q.last_seq, q.cut_at, q.ids, q.index
    into v.popped, v.first_seq, v.last_seq, v.cut_at, v_ids, v_index
    from tuskline_core.pop_queues(p_queues, p_marks, p_groups, p_budgets, p_bounds, p_max_bytes,
                                  v_flagged, v_now) q;
  v.xid := pg_current_xact_id_if_assigned()::text::bigint;
  if v_flagged <> '{}' then
    v_free := tuskline_core.ask_before_claim(array(
      select s.id from unnest(v_ids, v_index) as s (id, index)
       where p_queues[s.index] = any (v_flagged) order by s.id), v_now);
    select array_agg(s.id), array_agg(s.index) into v_ids, v_index
      from unnest(v_ids, v_index) as s (id, index)
     where p_queues[s.index] <> all (v_flagged) or s.id = any (v_free);
  end if;
  if v_ids is null then return v; end if;
  if v_index[1] = v_index[cardinality(v_index)] then -- one queue
    v_ids := array(select u.id from unnest(v_ids) as u (id) order by u.id);
  else
    select array_agg(u.id order by u.id), array_agg(u.index order by u.id) into v_ids, v_index
      from unnest(v_ids, v_index) as u (id, index);
  end if;
  v.lease_id := nextval('tuskline.fence_seq');
  t := tuskline_core.take(v.lease_id, v_ids, v_index, tuskline.clock(), v_expires);
  if t.task_id is null then return v; end if;
  v.task_id := t.task_id;
  v.queue_index := t.queue_index;
  v.attempt := t.attempt;
  v.crashes := t.crashes;
  v.queued_ms := t.queued_ms;
  v.claimed_before := t.claimed_before;
  v.waited_ms := t.waited_ms;
  v.collection := t.collection;
  v.payload := t.payload;
  v.traceparent := t.traceparent;
  insert into tuskline.lease (executor_id, lease_id, task_ids)
  values (p_executor, v.lease_id, v.task_id);
  return v;
end $$;
comment on function tuskline_core.claim_batch(
  bigint, integer[], bigint[], smallint[], integer[], integer[], bigint) is
  'Claims a batch of tasks for a worker. claim and exchange share it.';

-- Pops tasks from queues one after the other, until the budgets or p_bytes are used up.
--
-- Returns the arrays of claim_batch, and the popped tasks in the order of the queues.
-- The first number of a queue whose tasks wait for a gate is p_mark + 1 (pop_flagged).
create or replace function tuskline_core.pop_queues(
  p_queues integer[], p_marks bigint[], p_groups smallint[], p_budgets integer[],
  p_bounds integer[], p_bytes bigint, p_flagged integer[], p_now timestamptz,
  out popped integer[], out first_seq bigint[], out last_seq bigint[], out cut_at integer,
  out ids bigint[], out index smallint[])
language plpgsql as $$
declare
  v_old    integer := case when random() < 0.0625 then -1
                           else age(pg_snapshot_xmin(pg_current_snapshot())::xid) end;
  v_popped bigint[]; -- see pop
  v_more   bigint[];
  v_most   integer;
  v_count  integer;
begin
  popped := array_fill(null::integer, array[cardinality(p_queues)]);
  first_seq := array_fill(null::bigint, array[cardinality(p_queues)]);
  last_seq := first_seq;
  for v_at in 1..cardinality(p_queues) loop
    v_most := case when p_bounds[v_at] < p_budgets[p_groups[v_at]] then p_bounds[v_at]
                   else p_budgets[p_groups[v_at]] end;
    continue when v_most <= 0;
    if v_most is null then
      v_popped := '{}';
    elsif p_queues[v_at] = any (p_flagged) then
      v_popped := tuskline_core.pop_flagged(
        p_queues[v_at], coalesce(p_marks[v_at], 0), v_most, p_bytes, p_now);
    else
      v_popped := tuskline_core.pop(
        p_queues[v_at], coalesce(p_marks[v_at], 0), v_most, p_bytes, v_old);
    end if;
    v_count := cardinality(v_popped) - 4;
    if v_count < 0 then
      perform tuskline_core.refuse('TK053',
        format('invalid_claim: each queue must exist, and its group must have a budget, '
          'got queue %s, group %s',
          coalesce(p_queues[v_at]::text, 'null'), coalesce(p_groups[v_at]::text, 'null')),
        'tuskline.executor_lambdas() tells the queues; groups count from 1');
    end if;
    if v_popped[4] = 2 and v_count < v_most and v_popped[3] < p_bytes and v_old >= 0 then
      v_more := tuskline_core.pop(
        p_queues[v_at], v_popped[1] - 1, v_most - v_count, p_bytes - v_popped[3], -1);
      v_popped := array[v_popped[1], greatest(v_popped[2], v_more[2]), v_popped[3] + v_more[3],
                        v_more[4]] || v_popped[5:] || v_more[5:];
      v_count := cardinality(v_popped) - 4;
    end if;
    popped[v_at] := v_count;
    first_seq[v_at] := v_popped[1];
    continue when v_count = 0;
    last_seq[v_at] := v_popped[2];
    ids := ids || v_popped[5:];
    index := index || array_fill(v_at::smallint, array[v_count]);
    p_budgets[p_groups[v_at]] := p_budgets[p_groups[v_at]] - v_count;
    p_bytes := p_bytes - v_popped[3];
    if v_popped[4] = 1 or p_bytes <= 0 then
      cut_at := v_at;
      exit;
    end if;
  end loop;
end $$;
comment on function tuskline_core.pop_queues(
  integer[], bigint[], smallint[], integer[], integer[], bigint, integer[], timestamptz) is
  'Pops tasks from queues one after the other, until the budgets or a bound in bytes are used up.';

-- Pops tasks from a paused or unsorted queue. The result has the form of pop.
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
