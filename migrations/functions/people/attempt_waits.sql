-- Splits the delay of each attempt of a task by cause: where did its time go?
--
-- dependency: from the schedule until its last parent ended. retry: from the failure before to the
-- due time of the attempt. gate: from then on, while a pause held it, as the audit tells. rest:
-- until a worker had it: a limit, an order, or no free worker. The last row is the attempt to come.
-- A part that a task does not keep is null: after a terminal end and a retry by a person. A snooze
-- leaves no trace, so its time counts as rest.
-- It tells times, so nothing asks for a right.
create or replace function tuskline.attempt_waits(p_task bigint)
returns table (
  fence bigint, attempt integer, due_at timestamptz, started_at timestamptz, ended_at timestamptz,
  dependency interval, retry interval, gate interval, rest interval, run interval)
language sql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  with t as (
    select t.*, tuskline.clock() as now, (
             select max(coalesce(p.finished_at, tuskline.clock())) from tuskline.dependency d
                      cross join lateral (select p.finished_at from tuskline_core.all_tasks p
                                           where p.id = d.parent_id) p
              where d.task_id = t.id) as parents_ended_at
      from tuskline_core.all_tasks t where t.id = p_task
  ), a as (
    (select f.fence, f.attempt, f.started_at, f.failed_at as ended_at, f.retry_at,
            f.outcome in ('dead', 'fatal_failure') is true as is_last
       from tuskline.task_failure f where f.task_id = p_task and f.executor_id <> 0
      order by f.fence desc limit 101)
    union all
    select t.fence, t.attempt, t.started_at, t.finished_at, null, false
      from t where t.attempt > 0 and t.status in ('claimed', 'processing', 'success', 'cancelled')
               and not exists (select from tuskline.task_failure f
                                where f.task_id = t.id and f.fence = t.fence)
    union all
    select null, t.attempt + 1, null, null, null, false
      from t where t.status in ('new', 'enqueued', 'retriable_failure')
  ), w as (
    select a.*, t.now, lag(a.ended_at) over o as before,
           t.parents_ended_at - t.created_at as dependency,
           case when a.is_first
                then greatest(t.due_at, t.parents_ended_at)
                when not lag(a.is_last) over o
                then coalesce(lag(a.retry_at) over o, lag(a.ended_at) over o) end as due_at
      from (select a.*, row_number() over (order by a.fence) = 1
                        and count(*) over () <= 100 as is_first from a) a
           cross join t window o as (order by a.fence)
  ), g as ( -- pauses that may have held it, by the number of their gate
    select range_agg(tstzrange(p.set_at, p.opened_at)) as paused
      from (select min(u.at) filter (where u.verb = 'gate') as set_at,
                   max(u.at) filter (where u.verb = 'ungate') as opened_at
              from t cross join unnest(array[
                       t.lambda, tuskline_core.scope_of(t.lambda, t.collection, null),
                       tuskline_core.scope_of(t.lambda, null, t.priority),
                       tuskline_core.scope_of(t.lambda, t.collection, t.priority)]) as c (scope)
                   cross join lateral (
                     select u.at, u.verb, split_part(u.detail, ' ', 2) as gate
                       from tuskline.audit u
                      where u.subject = c.scope and u.verb in ('gate', 'ungate')
                        and u.detail ~ '^gate [0-9]+ pause'
                      order by u.at desc limit 100) u
             group by u.gate) p
     where p.set_at < coalesce(p.opened_at, 'infinity')
  ), s as (
    select w.*, coalesce(w.started_at, w.now) as until, held.span as gate
      from w cross join g
           cross join lateral (
             select coalesce(sum(upper(r) - lower(r)), '0') as span
               from unnest(g.paused * tstzmultirange(tstzrange(
                      w.due_at, greatest(w.due_at, coalesce(w.started_at, w.now))))) as r) held)
  select s.fence, s.attempt::integer, s.due_at, s.started_at, s.ended_at,
         case when s.is_first then s.dependency end, s.due_at - s.before,
         case when s.due_at is not null then s.gate end,
         case when s.due_at is not null then greatest(s.until - s.due_at - s.gate, '0') end,
         coalesce(s.ended_at, s.now) - s.started_at
    from s order by s.fence nulls last
$$;
comment on function tuskline.attempt_waits(bigint) is
  'The delay of each attempt of a task by cause: the newest 101, and the attempt to come. Null: '
  'not kept.';
