-- Shows dead letters within their retention, each alone and by cause, and circuit breakers.
create or replace view tuskline.dead_letters as
select d.task_id as id, d.lambda, t.collection, t.priority, t.status, t.attempt, t.crashes,
       f.error_class, case when d.lambda <> all (b.barred) then f.message end as message,
       d.fingerprint,
       s.failures, s.first_failed_at, s.last_failed_at,
       d.died_at as finished_at, d.died_at + tuskline_core.kept_for(l, d.status) as expires_at,
       d.redrive_id, case when d.lambda <> all (b.barred) then t.payload end as payload
  from tuskline.dead_letter d
       join tuskline_core.all_tasks t on t.id = d.task_id
       join tuskline.lambda l on l.name = d.lambda
       left join lateral (
         select h.error_class, h.message from tuskline.task_failure h
          where h.task_id = d.task_id
          order by h.failed_at desc, h.fence desc limit 1) f on true
       left join lateral (
         select count(*) as failures, min(h.failed_at) as first_failed_at,
                max(h.failed_at) as last_failed_at
           from tuskline.task_failure h where h.task_id = d.task_id) s on true
       left join (select min(tuskline.barred('inspect')) as barred) b on true
 where d.died_at > tuskline.clock() - tuskline_core.kept_for(l, d.status);
comment on view tuskline.dead_letters is
  'Tasks that are dead or fatal_failure: last error, times, payload, and how long they can return. '
  'Give an id, or a lambda and a fingerprint, and a limit.';

create or replace view tuskline.dead_groups as
select g.lambda, g.fingerprint, g.tasks, f.error_class,
       case when g.lambda <> all (b.barred) then f.message end as message,
       g.first_died_at, g.last_died_at, g.oldest_id, g.latest_id
  from (select d.lambda, d.fingerprint, count(*) as tasks,
               min(d.died_at) as first_died_at, max(d.died_at) as last_died_at,
               min(d.task_id) as oldest_id, max(d.task_id) as latest_id
          from tuskline.dead_letter d join tuskline.lambda l on l.name = d.lambda
         where d.died_at > tuskline.clock() - tuskline_core.kept_for(l, d.status)
         group by d.lambda, d.fingerprint) g
       left join lateral (
         select h.error_class, h.message from tuskline.task_failure h
          where h.task_id = g.latest_id
          order by h.failed_at desc, h.fence desc limit 1) f on true
       left join (select min(tuskline.barred('inspect')) as barred) b on true;
comment on view tuskline.dead_groups is
  'Dead letters by lambda and cause (counted): how many, the first and the last death, '
  'and the last error of the task with the highest id.';

create or replace view tuskline.breakers as
select b.lambda, b.failures, b.span, b.share, b.probe_after,
       case when b.gate_id is null then 'watching'
            when b.probe_id is not null then 'probing'
            else 'tripped' end as state,
       b.gate_id, b.fingerprint, b.tripped_at, b.probe_id,
       case when b.gate_id is not null and b.probe_id is null then b.probe_at end as next_probe_at,
       b.trips,
       coalesce((select g.parked from tuskline.gates g where g.gate_id = b.gate_id), 0) as parked,
       b.author, b.set_at
  from tuskline.breaker b;
comment on view tuskline.breakers is
  'Circuit breakers: watching, tripped (a gate holds the lambda) or probing (one task may run). '
  'parked: how many tasks the gate holds.';
