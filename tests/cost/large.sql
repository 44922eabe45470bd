-- One million tasks of 1,000 lambdas, in 4,000 queues, with an hour of statistics, and with
-- everything else that a page reads, in numbers that a large installation has.
do $$
begin
  for i in 1..1000 loop
    perform tuskline.define_lambda('lambda_' || i);
    -- One transaction with all of them takes five times as long.
    if i % 50 = 0 then commit; end if;
  end loop;
end $$;

-- 90 % have succeeded, 5 % are dead letters of three causes, 2 % were cancelled; 1 % each is
-- queued, due later, and held by an executor.
insert into tuskline_core.task_store (id, lambda, priority, collection, payload, status, attempt,
       fence, created_at, scheduled_at, started_at, finished_at, next_trigger_at, limit_key,
       ordering_key)
select i, 'lambda_' || 1 + i % 1000,
       (array['normal', 'low', 'high'])[1 + i % 3]::tuskline.priority,
       case when i % 7 = 0 then 'eu' end, json_build_object('n', i, 'text', repeat('x', 60)),
       s.status::tuskline.status, case when s.status in ('new', 'enqueued') then 0 else 1 end,
       case when s.status in ('new', 'enqueued') then 0
            when s.status = 'processing' then 1000000 + i / 2500 else i end,
       c.at, case when s.status = 'new' then now() + i * interval '1 s' end,
       case when s.status not in ('new', 'enqueued', 'cancelled') then c.at + interval '1 s' end,
       case when s.status not in ('new', 'enqueued', 'processing') then c.at + interval '2 s' end,
       case when s.status = 'new' then now() + i * interval '1 s'
            when s.status in ('enqueued', 'processing') then now() + interval '10 min' end,
       case when i % 11 = 0 then 'key_' || i % 5000 end,
       case when i % 13 = 0 then 'key_' || i % 5000 end
  from generate_series(1, 1000000) i
       cross join lateral (select (hashint4(i)::bigint + 2147483648) % 100 as part) h
       cross join lateral (
         select case when h.part < 1 then 'enqueued' when h.part < 2 then 'new'
                     when h.part < 3 then 'processing' when h.part < 8 then 'dead'
                     when h.part < 10 then 'cancelled' else 'success' end as status) s
       cross join lateral (select now() - (1000000 - i) * interval '0.1 s') c (at);
select setval('tuskline.task_seq', 1000000);
insert into tuskline.task_failure (task_id, fence, attempt, executor_id, error_class, message,
       fingerprint, failed_at, outcome, started_at)
select t.id, t.fence, 1, 1 + t.id % 100, 'error', 'the partner answered ' || 500 + t.id % 3,
       'cause_' || t.id % 3, t.finished_at, 'dead', t.started_at
  from tuskline_core.task_store t where t.status = 'dead';
insert into tuskline.dead_letter (task_id, lambda, status, fingerprint, died_at, redrive_id)
select f.task_id, 'lambda_' || 1 + f.task_id % 1000, 'dead', f.fingerprint, f.failed_at,
       case when f.task_id % 10 = 0 then 1 + f.task_id % 300 end
  from tuskline.task_failure f;

insert into tuskline.timer (due, task_id)
select t.next_trigger_at, t.id from tuskline_core.task_store t where t.status = 'new';

do $$
declare
  r record;
begin
  for r in select q.queue_id, array_agg(t.id order by t.id) as ids
             from tuskline_core.task_store t
                  join tuskline.queue q on q.lambda = t.lambda and q.priority = t.priority
            where t.status = 'enqueued' group by q.queue_id loop
    execute format('insert into tuskline_core.queue_%s (queue_id, task_id)
                    select %1$s, unnest($1)', r.queue_id) using r.ids;
  end loop;
end $$;

-- 100 executors that live, each with ten lambdas, and 2,000 that ended.
insert into tuskline.executor (executor_id, host, pid, lambdas, sdk_version, lease, started_at,
       beat_at, expires_at, ended_at, end_reason)
select i, 'host_' || i % 50, i, array(select 'lambda_' || 1 + (i + 100 * n) % 1000
                                        from generate_series(0, 9) n),
       '0.1.0', '20 s', now() - interval '5 h', e.at, e.at + interval '20 s',
       case when i <= 2000 then e.at end, case when i <= 2000 then 'stopped' end
  from generate_series(1, 2100) i
       cross join lateral (
         select case when i <= 2000 then now() - interval '4 h' else now() end) e (at);
select setval('tuskline.executor_seq', 2100);
insert into tuskline_core.live_executor (executor_id, lease, role)
select e.executor_id, e.lease, e.role from tuskline.executor e where e.ended_at is null;
insert into tuskline.lease (executor_id, lease_id, task_ids)
select 2001 + t.fence % 100, t.fence, array_agg(t.id order by t.id)
  from tuskline_core.task_store t where t.status = 'processing' group by t.fence;

-- An hour of statistics, by minute; a queue of three has no work.
insert into tuskline.queue_statistic (queue_id, at, success, retriable_failure, fatal_failure,
       snoozed, cancelled, refused, dead, crashed, dropped, start_ms, starts, run_ms, runs,
       start_max_us, run_max_us)
select q.queue_id, now() - n * interval '1 min', 100 * (60 - n), 60 - n, 0, 0, 0, 0, 0, 0, 0,
       5000 * (60 - n), h.counts, 5000 * (60 - n), h.counts, 90000, 90000
  from tuskline.queue q cross join generate_series(0, 60) n
       cross join lateral (
         select array[0, 0, 0, 50 * (60 - n), 50 * (60 - n)] || array_fill(0, array[11])) h (counts)
 where q.priority = 'normal'
 order by 2, 1;
insert into tuskline.wait_statistic (lambda, cause, at, total_ms, waits, max_ms)
select l.name, c.cause, now() - n * interval '1 min', 1000 * (60 - n),
       array[0, 0, 60 - n, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 20
  from tuskline.lambda l cross join unnest('{due,limit}'::text[]) as c (cause)
       cross join generate_series(0, 60) n
 order by 3, 1, 2;
insert into tuskline.executor_statistic (executor_id, at, success, failed, refused, run_ms)
select e.executor_id, now() - n * interval '1 min', 1000 * (60 - n), 10 * (60 - n), 0,
       50000 * (60 - n)
  from tuskline.executor e cross join generate_series(0, 60) n where e.ended_at is null
 order by 2, 1;
insert into tuskline_core.attempt_count (at, executor_id, queue_ids, counters, amounts)
select now() - n * interval '5 s', e.executor_id, q.ids, q.counters, q.amounts
  from generate_series(0, 11) n cross join tuskline.executor e
       cross join lateral (
         select array_agg(k.queue_id) as ids, array_agg(c.counter::smallint) as counters,
                array_agg(10::bigint) as amounts
           from tuskline.queue k
                cross join unnest('{1,100,104,117,200,204,217}'::integer[]) as c (counter)
          where k.lambda = any (e.lambdas) and k.priority = 'normal') q
 where e.ended_at is null;
insert into tuskline_core.event_count (at, lambda, priority, event, bucket, events, total_ms)
select now() - i * interval '10 ms', 'lambda_' || 1 + i % 1000, null, 'limit', 3, 1, 15
  from generate_series(1, 5000) i;
update tuskline_core.statistics_mark set folded_at = now() - interval '1 min';

insert into tuskline.audit (at, actor, verb, subject, detail)
select now() - i * interval '1 min', 'ada', case when i % 3 = 0 then 'gate' else 'cancel' end,
       case when i % 3 = 0 then 'lambda_' || 1 + i % 1000 else 'task ' || i end, 'a reason'
  from generate_series(100000, 1, -1) i;

select tuskline.gate('lambda_' || i, 'pause', p_reason => 'a bad release')
  from generate_series(1, 30) i;
select tuskline.gate('lambda_' || i, 'pause', 'eu', p_reason => 'a bad release')
  from generate_series(31, 60) i;
insert into tuskline.parked (gate_id, task_id, parked_at)
select g.gate_id, t.id, now() from tuskline.gate g
       join tuskline_core.task_store t on t.lambda = g.lambda and t.collection = g.collection
 where t.status = 'new';
select tuskline.set_limit('lambda_' || i, 10) from generate_series(1, 300) i;
select tuskline.set_order('lambda_' || i) from generate_series(301, 400) i;
select tuskline.set_breaker('lambda_' || i, 10) from generate_series(1, 100) i;
update tuskline.breaker b set gate_id = g.gate_id, tripped_at = now()
  from tuskline.gate g where g.lambda = b.lambda and g.lambda ~ '5$';
insert into tuskline.permit (limit_id, key, permit_no, task_id, acquired_at)
select r.limit_id, '', n, 1000000 - r.limit_id * 10 - n, now()
  from tuskline.task_limit r cross join generate_series(1, 10) n where r.kind = 'concurrency';
-- 100,000 tasks wait for a permit, half of them for one.
insert into tuskline.wait_list (limit_id, key, position, task_id, joined_at)
select case when i % 2 = 0 then 1 else 1 + i % 400 end, '', i, i, now() - i * interval '1 ms'
  from generate_series(1, 100000) i;

insert into tuskline.operation (action, lambda, statuses, canary, writes_files, reason, author,
       created_to, begun_at, next_at, mark, behind, met, watched, looked, changed, spared, state,
       ended_at)
select 'redrive', 'lambda_' || i, '{dead}', false, false, 'repaired', 'ada', now(),
       now() - i * interval '1 h', now(), 0, '{}', true, '{}', 1000, 1000, 0, 'done', now()
  from generate_series(300, 1, -1) i;

select tuskline.define_periodic('nightly_' || i, 'lambda_' || i, '30 2 * * *')
  from generate_series(1, 500) i;
update tuskline.periodic p
   set last_tick = now() - interval '1 h', next_tick = now() + interval '1 h',
       last_task = 1000 * substr(p.name, 9)::integer;
insert into tuskline.tick (name, tick, task_id, fired_at)
select p.name, p.last_tick - n * interval '1 day', p.last_task, p.last_tick
  from tuskline.periodic p cross join generate_series(0, 6) n;

-- Chains of ten tasks, and one of 1,000.
insert into tuskline.chain_task (task_id, chain_id, name, depth, on_parent_failure, waits_for)
select i, case when i > 1000 then i - i % 10 else 1 end, 'step_' || i,
       case when i > 1000 then i % 10 else i end, 'cancel', case when i % 10 > 0 then i - 1 end
  from generate_series(1, 50000) i;
insert into tuskline.dependency (task_id, parent_id, condition)
select c.task_id, c.task_id - 1, 'success' from tuskline.chain_task c where c.waits_for is not null;
