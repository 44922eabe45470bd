-- Creates take_<n>: the transition enqueued -> claimed for tasks of segment n.
--
-- A popped task that is no longer enqueued matches nothing. It was cancelled, or a rebuild gave it
-- a second queue row.
--
-- Planner: an UPDATE of tuskline.task prepares every segment, at 17,000 instructions each, before
-- it prunes all but one. Therefore each segment has a function with a plan of its own. It uses the
-- segment's primary key by id = any (sorted ids), in id order. It has no join that a plan could
-- reverse. The function width_bucket finds a task's position in the sorted array.
--
-- A task that was claimed before (a retry, a snooze, a restart, a task that came back) has flag 8,
-- and claimed_before says so to the worker. queued_ms is the time since it was queued again; for a
-- first claim it is the time since it was due. RETURNING shows only new values. So the old row is
-- read, for a task with flag 8 only: its next_trigger_at is stalled_after() after it was queued.
-- waited_ms is for workers of function set 2: queued_ms, or -1 minus it if claimed_before.
create or replace function tuskline_core.make_take(p_segment bigint) returns void
language plpgsql as $make$
declare
  v_name text := format(
    'tuskline_core.take_%s(bigint, bigint[], smallint[], timestamptz, timestamptz)', p_segment);
begin
  execute format($text$
create or replace function tuskline_core.take_%1$s(
  p_fence bigint, p_ids bigint[], p_index smallint[], p_now timestamptz, p_expires timestamptz)
returns tuskline_core.exchanged language plpgsql as $$
declare
  v tuskline_core.exchanged;
begin
  with u as (
    update tuskline_core.task_%1$s t
       set status = 'claimed', fence = p_fence, attempt = t.attempt + 1, started_at = p_now,
           next_trigger_at = p_expires,
           flags = case when t.fence = 0 then t.flags else t.flags | 8 end -- 8: claimed before
     where t.id = any (p_ids) and t.status = 'enqueued'
    returning t.id, p_index[width_bucket(t.id, p_ids)] as index, t.attempt, t.crashes,
              t.collection, t.payload, t.traceparent,
              t.flags & 8 > 0 as again, least(greatest(1000 * extract(epoch from p_now
                - case when t.flags & 8 = 0 then coalesce(t.scheduled_at, t.created_at)
                       else coalesce((select o.next_trigger_at - tuskline_core.stalled_after()
                                        from tuskline_core.task_%1$s o where o.id = t.id), p_now)
                  end), 0), 2147483647)::integer as queued_ms)
  select array_agg(u.id), array_agg(u.index), array_agg(u.attempt), array_agg(u.crashes),
         array_agg(u.queued_ms), array_agg(u.again),
         array_agg(case when u.again then -1 - u.queued_ms else u.queued_ms end),
         array_agg(u.collection), array_agg(u.payload), array_agg(u.traceparent)
    into v.task_id, v.queue_index, v.attempt, v.crashes, v.queued_ms, v.claimed_before,
         v.waited_ms, v.collection, v.payload, v.traceparent
    from u;
  return v;
end $$ $text$, p_segment);
  perform tuskline_core.finish_leaf_verb(v_name,
    format('enqueued -> claimed under a new fence, for tasks of segment %s.', p_segment));
end $make$;
comment on function tuskline_core.make_take(bigint) is
  'Creates or replaces take_<segment_no>.';

-- Moves popped tasks enqueued -> claimed, segment by segment in id order, mostly only one.
--
-- Locks: the task rows. If a lock is not granted in time, the locked tasks go back to their queue.
-- The rest is locked by requeue_locked, and a second round takes it.
create or replace function tuskline_core.take(
  p_fence bigint, p_ids bigint[], p_index smallint[], p_now timestamptz, p_expires timestamptz)
returns tuskline_core.exchanged language plpgsql as $$
declare
  v         tuskline_core.exchanged;
  s         tuskline_core.exchanged;
  r         record;
  v_from    integer := 1;
  v_to      integer;
  v_segment bigint;
  v_free    bigint[];
begin
  loop
    begin
      v := null;
      v_from := 1;
      while v_from <= cardinality(p_ids) loop
        v_segment := tuskline_core.segment_of(p_ids[v_from]);
        v_to := width_bucket(p_ids[v_from] | 16777215, p_ids); -- the last id of the segment
        if to_regclass('tuskline_core.task_' || v_segment) is not null then
          execute 'select tuskline_core.take_' || v_segment || '($1, $2, $3, $4, $5) as taken'
            into r using p_fence, p_ids[v_from:v_to], p_index[v_from:v_to], p_now, p_expires;
          s := r.taken;
          if v.task_id is null then
            v := s;
          else
            v.task_id := v.task_id || s.task_id;
            v.queue_index := v.queue_index || s.queue_index;
            v.attempt := v.attempt || s.attempt;
            v.crashes := v.crashes || s.crashes;
            v.queued_ms := v.queued_ms || s.queued_ms;
            v.claimed_before := v.claimed_before || s.claimed_before;
            v.waited_ms := v.waited_ms || s.waited_ms;
            v.collection := v.collection || s.collection;
            v.payload := v.payload || s.payload;
            v.traceparent := v.traceparent || s.traceparent;
          end if;
        end if;
        v_from := v_to + 1;
      end loop;
      return v;
    exception when lock_not_available then
      v_free := tuskline_core.requeue_locked(p_ids);
      select array_agg(u.id), array_agg(u.index) into p_ids, p_index
        from unnest(p_ids, p_index) as u (id, index) where u.id = any (v_free);
    end;
  end loop;
end $$;
comment on function tuskline_core.take(bigint, bigint[], smallint[], timestamptz, timestamptz) is
  'enqueued -> claimed under a new fence. The ids are sorted.';

-- Puts tasks that another open transaction has locked back at the end of their queue.
--
-- So one cancelled row in an idle session does not hold up a lambda.
-- Returns the other tasks that are still enqueued, locked.
create or replace function tuskline_core.requeue_locked(p_ids bigint[]) returns bigint[]
language plpgsql as $$
declare
  v_first bigint := (select min(id) from unnest(p_ids) as id);
  v_last  bigint := (select max(id) from unnest(p_ids) as id);
  v_free  bigint[];
begin
  v_free := array(
    select t.id from tuskline.task t
     where t.id = any (p_ids) and t.id between v_first and v_last -- prunes the partitions
       and t.status = 'enqueued'
     order by t.id for update skip locked);
  if cardinality(v_free) < cardinality(p_ids) then
    perform tuskline_core.queue_tasks(
      array(select id from unnest(p_ids) as id where id <> all (v_free)));
  end if;
  return v_free;
end $$;
comment on function tuskline_core.requeue_locked(bigint[]) is
  'Requeues the tasks that other transactions have locked. Returns the rest, which it locks.';
