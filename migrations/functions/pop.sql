-- pop: takes rows off one queue. The leaf is named directly (through the parent a claim costs 37
-- instead of 4 µs a task with 400 queues, and 400 locks); the name is made of an integer, nothing else.
-- Rides the leaf's primary key (seq). The ctid = any (array(...)) form is deliberate: with a join, a
-- generic plan takes LIMIT for 10 % of the table and reads all of it.
create or replace function tuskline.pop(
  p_queue integer, p_mark bigint, p_limit integer,
  out task_ids bigint[], out first_seq bigint, out last_seq bigint)
language plpgsql as $$
begin
  execute format('with d as (delete from tuskline.queue_%1$s where ctid = any (array('
    'select ctid from tuskline.queue_%1$s where seq > $1 order by seq limit $2 for update skip locked)) returning seq, task_id)'
    ' select array_agg(task_id), min(seq), max(seq) from d', p_queue)
  into task_ids, first_seq, last_seq using coalesce(p_mark, 0), p_limit;
end $$;
comment on function tuskline.pop(integer, bigint, integer) is 'Takes up to p_limit rows with seq > p_mark off one queue.';

-- take: the guarded transition of claim. A popped task that is not enqueued any more (cancelled, or a
-- second queue row of a rebuild) matches nothing. Rides the segment's primary key by id = any (sorted
-- ids): in id order, and with no join that a plan could turn round. The bounds let the executor leave
-- out every segment that the batch cannot touch; width_bucket finds a task's place in the sorted array.
create or replace function tuskline.take(
  p_fence bigint, p_ids bigint[], p_index smallint[], p_now timestamptz, p_expires timestamptz,
  out task_id bigint[], out queue_index smallint[], out attempt smallint[], out crashes smallint[],
  out waited_ms integer[], out collection text[], out payload json[])
language plpgsql as $$
declare
  v_ids   bigint[];
  v_index smallint[];
begin
  select array_agg(r.id order by r.id), array_agg(r.index order by r.id) into v_ids, v_index
    from unnest(p_ids, p_index) as r (id, index);
  with u as (
    update tuskline.task t
       set status = 'claimed', fence = p_fence, attempt = t.attempt + 1, started_at = p_now, next_trigger_at = p_expires
     where t.id = any (v_ids) and t.status = 'enqueued' and t.id between v_ids[1] and v_ids[cardinality(v_ids)]
    returning t.id, v_index[width_bucket(t.id, v_ids)] as index, t.attempt, t.crashes, t.collection, t.payload,
              least(greatest(1000 * extract(epoch from p_now - coalesce(t.scheduled_at, t.created_at)), 0), 2147483647)::integer as waited_ms)
  select array_agg(u.id), array_agg(u.index), array_agg(u.attempt), array_agg(u.crashes),
         array_agg(u.waited_ms), array_agg(u.collection), array_agg(u.payload)
    into task_id, queue_index, attempt, crashes, waited_ms, collection, payload from u;
end $$;
comment on function tuskline.take(bigint, bigint[], smallint[], timestamptz, timestamptz) is 'enqueued -> claimed under a new fence, in id order.';

-- put_back_locked: tasks that somebody's open transaction has locked go back to the end of their
-- queue, so that one cancelled row in an idle session does not hold up a lambda. Returns the others.
create or replace function tuskline.put_back_locked(p_ids bigint[]) returns bigint[]
language plpgsql as $$
declare
  v_free bigint[];
begin
  v_free := array(select t.id from tuskline.task t where t.id = any (p_ids) order by t.id for update skip locked);
  insert into tuskline.queued (queue_id, task_id)
  select q.queue_id, t.id from tuskline.task t join tuskline.queue q on q.lambda = t.lambda and q.priority = t.priority
   where t.id = any (p_ids) and t.id <> all (v_free) and t.status = 'enqueued' order by t.id;
  return v_free;
end $$;
comment on function tuskline.put_back_locked(bigint[]) is 'Requeues the tasks that are locked by others and returns the rest.';
