-- route: puts what was just inserted into tuskline.task where it belongs, in the same transaction:
-- due now -> its queue; the rest (due later, or a lambda that is not direct) -> a timer; a mistake
-- -> refusal of the whole statement. Runs once per statement for INSERT, COPY and schedule alike.
-- Joins by nested loop over queue's unique (lambda, priority), pinned: a plan made when the table
-- was empty must not survive into a day with 400 queues.
create or replace function tuskline.is_direct(
  p_status tuskline.status, p_fence bigint, p_attempt smallint, p_crashes smallint, p_started_at timestamptz,
  p_finished_at timestamptz, p_scheduled_at timestamptz, p_now timestamptz, p_collection text, p_payload json, p_max_payload_bytes integer)
returns boolean language sql stable as $$
  select p_status = 'enqueued' and p_fence = 0 and p_attempt = 0 and p_crashes = 0
     and p_started_at is null and p_finished_at is null
     and (p_scheduled_at is null or p_scheduled_at <= p_now and p_scheduled_at > '-infinity')
     and (p_collection is null or p_collection ~ '^[a-z][a-z0-9_]{0,62}$')
     and (p_payload is null or pg_column_size(p_payload) <= p_max_payload_bytes and strpos(p_payload::text, '\u0000') = 0)
$$;
comment on function tuskline.is_direct(tuskline.status, bigint, smallint, smallint, timestamptz, timestamptz, timestamptz, timestamptz, text, json, integer) is
  'True for a row that may go straight into its queue: due, unclaimed and well-formed.';

create or replace function tuskline.route() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off as $$
declare
  v_now    timestamptz := tuskline.clock();
  v_rows   bigint;
  v_queued bigint;
  v_queues integer[];
  v_rest   bigint[];
  v_numbers bigint[];
begin
  select count(*) into v_rows from new_rows;
  if v_rows = 0 then return null; end if;
  with i as (
    insert into tuskline.queued (queue_id, task_id)
    select q.queue_id, t.id
      from new_rows t join tuskline.queue q on q.lambda = t.lambda and q.priority = t.priority
     where q.direct and tuskline.is_direct(t.status, t.fence, t.attempt, t.crashes, t.started_at, t.finished_at, t.scheduled_at, v_now,
                                           t.collection, t.payload, q.max_payload_bytes)
    returning queue_id
  ), n as (select queue_id, count(*) as rows from i group by queue_id)
  select coalesce(sum(rows), 0), array_agg(queue_id) into v_queued, v_queues from n;
  if v_queued < v_rows then
    select array_agg(r.id), array_agg(r.number) into v_rest, v_numbers
      from (select t.id, row_number() over () as number,
                   q.direct and tuskline.is_direct(t.status, t.fence, t.attempt, t.crashes, t.started_at, t.finished_at, t.scheduled_at, v_now,
                                                   t.collection, t.payload, q.max_payload_bytes) as ready
              from new_rows t left join tuskline.queue q on q.lambda = t.lambda and q.priority = t.priority) r
     where r.ready is not true;
    perform tuskline.route_rest(v_now, v_rest, v_numbers, v_rows);
  end if;
  perform tuskline.wake(v_queues);
  return null;
end $$;
comment on function tuskline.route() is 'Trigger of tuskline.task: due rows into their queue, later ones into timer, mistakes refused.';
