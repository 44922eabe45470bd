-- Checks each circuit breaker once a second: trips it, or probes it.
--
-- run_policies calls it, in one store consumer at a time. A breaker is also checked if its last
-- check lies in the future: the clock has stepped back.
--
-- Locks: the row of the breaker. A breaker whose row another transaction has locked is skipped, and
-- checked in the next call. The same holds if a lock is not granted within the lock_timeout.
create or replace function tuskline_core.check_breakers(p_now timestamptz) returns void
language plpgsql as $$
declare
  b tuskline.breaker;
begin
  for b in
    select s.* from tuskline.breaker s
     where s.looked_at <= p_now - interval '1 second' or s.looked_at > p_now
     order by s.lambda for update skip locked
  loop
    begin
      update tuskline.breaker set looked_at = p_now where lambda = b.lambda;
      delete from tuskline_core.recent_failure f
       where f.lambda = b.lambda and f.failed_at <= p_now - b.span;
      if b.gate_id is null then
        perform tuskline_core.trip_breaker(b, p_now);
      else
        perform tuskline_core.probe_breaker(b, p_now);
      end if;
    exception when lock_not_available then
      -- Another transaction holds the lock of the lambda or of a task: the next call tries again.
    end;
  end loop;
end $$;
comment on function tuskline_core.check_breakers(timestamptz) is
  'Sets the gates of breakers that trip, and lets a task probe each breaker that has tripped.';

create or replace function tuskline_core.trip_breaker(b tuskline.breaker, p_now timestamptz)
returns void language plpgsql as $$
declare
  v_since timestamptz := greatest(b.counted_from, p_now - b.span);
  v_ended bigint;
  v_gate  bigint;
  f       record;
begin
  select s.fingerprint, sum(s.attempts) as attempts,
         (array_agg(s.message order by s.failed_at desc))[1] as message
    into f
    from tuskline_core.recent_failure s
   where s.lambda = b.lambda and s.failed_at >= v_since
   group by s.fingerprint order by 2 desc limit 1;
  if f.attempts is null or f.attempts < b.failures then return; end if;
  v_ended := tuskline_core.successes_near(b.lambda, v_since)
    + (select sum(s.attempts) from tuskline_core.recent_failure s
        where s.lambda = b.lambda and s.failed_at >= v_since);
  if f.attempts < b.share * v_ended then return; end if;
  -- A gate holds the whole lambda already.
  if exists (select from tuskline.gate g
              where g.lambda = b.lambda and g.opened_at is null
                and g.collection is null and g.priority is null) then
    return;
  end if;
  v_gate := tuskline.gate(b.lambda, 'pause',
    p_reason => format('circuit breaker: %s of %s attempts failed with %s: %s',
                       f.attempts, v_ended, f.fingerprint, f.message));
  update tuskline.breaker
     set gate_id = v_gate, fingerprint = f.fingerprint, tripped_at = p_now, trips = trips + 1,
         probe_id = null, probe_at = p_now + b.probe_after
   where lambda = b.lambda;
end $$;
comment on function tuskline_core.trip_breaker(tuskline.breaker, timestamptz) is
  'Sets the gate of a breaker if too many attempts have failed of one cause.';

-- Estimates how many tasks of a lambda have succeeded since p_since.
--
-- Tasks run roughly in id order, so it counts among the ids near the failed tasks: 5,000 on each
-- side. A retry of an old task is far from the rest. So each group of neighbours is a range of its
-- own (failed_near). A range of more than 20,000 ids is sampled: 20 blocks of 1,000 ids, evenly
-- spaced.
-- A success writes nothing for this estimate, and it runs only when enough attempts have failed.
create or replace function tuskline_core.successes_near(p_lambda text, p_since timestamptz)
returns bigint language plpgsql as $$
declare
  s       record;
  v_span  bigint;
  v_found bigint;
  v_all   bigint := 0;
begin
  for s in
    select lower(i.ids) as first_id, upper(i.ids) - 1 as last_id
      from tuskline_core.failed_near(p_lambda, p_since) as i (ids)
  loop
    v_span := s.last_id - s.first_id + 1;
    if v_span <= 20000 then
      v_all := v_all
        + tuskline_core.successes_between(p_lambda, p_since, s.first_id, s.last_id);
    else
      select sum(tuskline_core.successes_between(
               p_lambda, p_since, b.first_id, b.first_id + 999))
        into v_found
        from (select s.first_id + v_span * (2 * i + 1) / 40 - 500 as first_id
                from generate_series(0, 19) as i) b;
      v_all := v_all + v_found * v_span / 20000;
    end if;
  end loop;
  return v_all;
end $$;
comment on function tuskline_core.successes_near(text, timestamptz) is
  'Estimates how many tasks of a lambda have succeeded since a time.';

-- Returns at most eight ranges of ids near failed tasks.
--
-- These are the highest range, where new tasks are, and the ranges with the most failures.
--
-- A batch whose failures span more than 20,000 ids is wide: only its first and last failed task
-- are known. The ids between these two are a range of their own.
create or replace function tuskline_core.failed_near(p_lambda text, p_since timestamptz)
returns setof int8range language sql stable as $$
  with f as (
    select f.first_id, f.last_id, f.attempts, f.last_id - f.first_id > 20000 as is_wide
      from tuskline_core.recent_failure f
     where f.lambda = p_lambda and f.failed_at >= p_since
  ), e as ( -- ranges around the failed tasks
    select f.first_id - 5000 as lo, f.last_id + 5000 as hi, f.attempts from f where not f.is_wide
    union all
    select id - 5000, id + 5000, f.attempts
      from f, unnest(array[f.first_id, f.last_id]) as id
     where f.is_wide
  ), g as ( -- is_apart: it overlaps no lower range
    select e.*,
           coalesce(e.lo > max(e.hi) over (
                      order by e.lo, e.hi rows between unbounded preceding and 1 preceding),
                    true)::integer as is_apart
      from e
  ), o as ( -- no: the number of its group of overlapping ranges
    select g.*, sum(g.is_apart) over (order by g.lo, g.hi) as no from g
  ), n as ( -- one range per group
    select int8range(min(o.lo), max(o.hi), '[]') as ids, sum(o.attempts) as attempts
      from o group by o.no
  ), i as ( -- and the inside of wide batches
    select n.ids, n.attempts from n
    union all
    select unnest((select range_agg(int8range(f.first_id, f.last_id)) from f where f.is_wide)
                  - (select range_agg(n.ids) from n)),
           (select sum(f.attempts) from f where f.is_wide))
  select i.ids from i
   order by upper(i.ids) = max(upper(i.ids)) over () desc, i.attempts desc, i.ids desc limit 8
$$;
comment on function tuskline_core.failed_near(text, timestamptz) is
  'Returns ranges of ids near which tasks of a lambda have failed since a time.';

create or replace function tuskline_core.successes_between(
  p_lambda text, p_since timestamptz, p_first bigint, p_last bigint)
returns bigint language sql stable as $$
  select count(*) from tuskline.task t
   where t.id between p_first and p_last and t.lambda = p_lambda
     and t.status = 'success' and t.finished_at >= p_since
$$;
comment on function tuskline_core.successes_between(text, timestamptz, bigint, bigint) is
  'Counts the tasks of a lambda in a range of ids that have succeeded since a time.';

-- Probes a breaker that has tripped: one task at a time may pass the paused queue.
--
-- When the task has succeeded, the gate opens, and earlier failures no longer count. When it has
-- failed, or ended otherwise, another task may pass after probe_after. The same holds for a task
-- that came back before it ran, through a worker's death or the gate: it proves nothing.
create or replace function tuskline_core.probe_breaker(b tuskline.breaker, p_now timestamptz)
returns void language plpgsql as $$
declare
  t record;
begin
  if not exists (select from tuskline.gate g -- the owner has opened it
                  where g.gate_id = b.gate_id and g.opened_at is null) then
    update tuskline.breaker set gate_id = null, probe_id = null, counted_from = p_now
     where lambda = b.lambda;
  elsif b.probe_id is not null then
    select s.status, s.finished_at is not null as ended into t
      from tuskline_core.all_tasks s where s.id = b.probe_id;
    if t.status = 'success' then
      perform tuskline_core.open_gate(b.gate_id, p_now,
        format('circuit breaker: task %s succeeded', b.probe_id));
      update tuskline.breaker set gate_id = null, probe_id = null, counted_from = p_now
       where lambda = b.lambda;
    elsif coalesce(t.ended, true)
          or t.status not in ('claimed', 'processing')
             and not exists (select from tuskline_core.flagged_queue f
                              where f.passing = b.probe_seq) then
      update tuskline_core.flagged_queue set passing = null where passing = b.probe_seq;
      update tuskline.breaker set probe_id = null, probe_at = p_now + b.probe_after
       where lambda = b.lambda;
    end if;
  elsif b.probe_at <= p_now then
    select * into t from tuskline_core.next_probe(b.lambda, p_now);
    if t.task_id is null then return; end if;
    update tuskline_core.flagged_queue set passing = t.seq where queue_id = t.queue_id;
    perform tuskline_core.wake(array[t.queue_id]);
    update tuskline.breaker set probe_id = t.task_id, probe_seq = t.seq where lambda = b.lambda;
  end if;
end $$;
comment on function tuskline_core.probe_breaker(tuskline.breaker, timestamptz) is
  'Lets one task pass the gate of a breaker, and opens the gate when the task has succeeded.';

-- Finds the task to probe with: the first one in the queue of the highest priority that has one.
--
-- A task that was tried before is at the end of its queue.
create or replace function tuskline_core.next_probe(
  p_lambda text, p_now timestamptz, out queue_id integer, out seq bigint, out task_id bigint)
language plpgsql as $$
begin
  for queue_id in
    select q.queue_id from tuskline_core.paused_queues(p_now) q
     where q.lambda = p_lambda order by q.priority
  loop
    execute format('select d.seq, d.task_id from tuskline_core.queue_%s d where exists ('
      'select from tuskline.task t where t.id = d.task_id and t.status = ''enqueued'')'
      ' order by d.seq limit 1', queue_id) into seq, task_id;
    if task_id is not null then return; end if;
  end loop;
end $$;
comment on function tuskline_core.next_probe(text, timestamptz) is
  'Finds the next task of a paused lambda to try, and its row in its queue. Null: no task waits.';
