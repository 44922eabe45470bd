-- Tasks that wait outside of queues, and ordering keys that wait for a person.
--
-- Metrics, tuskline top and the doctor call these functions repeatedly. Each part reads at most
-- p_rows rows of its table, and never all tasks. and_more: a part has read as many rows as it may,
-- so there may be more. If it counted no task of the lambda, the number is unknown.
--
-- Planner: a task is looked up in a lateral subquery with a limit, so that no plan joins by a scan.
-- Without sequential scans no plan hashes a whole table for a subquery, whatever the statistics
-- say.

-- Counts the first timers: tasks that are due later, and those that no store consumer has moved.
--
-- Timers are not stored by lambda, so their bound is for all lambdas together.
create or replace function tuskline_core.timer_waits(p_rows integer, p_now timestamptz)
returns table (lambda text, cause text, tasks bigint, and_more boolean, since timestamptz)
language sql stable as $$
  with m as materialized (
    select d.*, count(*) over () = p_rows as cut
      from (select r.due, r.task_id, r.kind from tuskline.timer r
             order by r.due, r.task_id limit p_rows) d
  ), w as materialized (
    select t.lambda, m.cut, m.due,
           case when m.due <= p_now - interval '5 s' then 'server'
                when t.status = 'retriable_failure' then 'retry' else 'due' end as cause
      from m cross join lateral (
             select k.lambda, k.status from tuskline.task k
              where k.id = m.task_id and k.status in ('new', 'retriable_failure')
                and m.kind = 'due' and k.next_trigger_at is not distinct from m.due limit 1) t)
  select w.lambda, w.cause, count(*), bool_or(w.cut),
         min(w.due) filter (where w.cause = 'server')
    from w group by w.lambda, w.cause
  union all
  select a.name, 'due', 0, true, null from tuskline.lambda a
   where exists (select from m where m.cut)
     and not exists (select from w where w.cause = 'due' and w.lambda = a.name)
$$;
comment on function tuskline_core.timer_waits(integer, timestamptz) is
  'Tasks of the first p_rows timers by lambda and cause (due, retry, server). For wait_gauges.';

-- Counts the newest tasks of chains that wait for a parent. Their bound is for all lambdas, too.
create or replace function tuskline_core.chain_waits(p_rows integer)
returns table (lambda text, cause text, tasks bigint, and_more boolean, since timestamptz)
language sql stable as $$
  with n as materialized (
    select h.task_id, h.waits, count(*) over () = p_rows as cut
      from (select e.task_id, e.waits_for is not null
                   or exists (select from tuskline.unmet_dependency b
                               where b.task_id = e.task_id) as waits
              from tuskline.chain_task e order by e.task_id desc limit p_rows) h
  ), w as materialized (
    select t.lambda, n.cut, t.created_at
      from n cross join lateral (
             select k.lambda, k.created_at from tuskline.task k
              where k.id = n.task_id and k.status = 'new' and n.waits limit 1) t)
  select w.lambda, 'dependency', count(*), bool_or(w.cut), min(w.created_at)
    from w group by w.lambda
  union all
  select a.name, 'dependency', 0, true, null from tuskline.lambda a
   where exists (select from n where n.cut)
     and not exists (select from w where w.lambda = a.name)
$$;
comment on function tuskline_core.chain_waits(integer) is
  'Tasks that wait for a parent by lambda, among the newest p_rows tasks of chains. For '
  'wait_gauges.';

-- Counts the tasks of wait lists. Each limit gets a share of ten times p_rows, at least 10.
--
-- estimate: where the count met its bound, the share of the limit that the last ANALYZE found; for
-- a limit that it did not find, an equal share of the rows that are not counted.
-- since: of the rows that were counted, and of those with the lowest ids of all wait lists, which
-- have waited longest as a rule.
create or replace function tuskline_core.permit_waits(p_rows integer)
returns table (lambda text, cause text, tasks bigint, and_more boolean, estimate bigint,
               since timestamptz)
language sql stable as $$
  with b as materialized (
    select greatest(10, 10 * p_rows / greatest(count(*), 10)) as most from tuskline.task_limit
  ), s as materialized (
    select r.limit_id, r.lambda, case r.kind when 'order' then 'order' else 'limit' end as cause,
           l.tasks, l.tasks = b.most as cut, l.since
      from b cross join tuskline.task_limit r
           cross join lateral (
             select count(*) as tasks, min(f.joined_at) as since
               from (select e.joined_at from tuskline.wait_list e
                      where e.limit_id = r.limit_id
                     order by e.key, e.position, e.task_id limit b.most) f) l
     where l.tasks > 0
  ), o as materialized (
    select e.limit_id, min(e.joined_at) as since
      from (select l.limit_id, l.joined_at from tuskline.wait_list l
             order by l.task_id limit p_rows) e
     group by e.limit_id
  ), t as (
    select a.rows, greatest(a.rows - sum(s.tasks), 0) / count(*) filter (where s.cut) as rest
      from s cross join (
             select pg_stat_get_live_tuples('tuskline.wait_list'::regclass) as rows) a
     group by a.rows having bool_or(s.cut)
  ), m as (
    select u.limit_id, u.share
      from pg_stats p
           cross join unnest(p.most_common_vals::text::bigint[], p.most_common_freqs)
             as u (limit_id, share)
     where p.schemaname = 'tuskline' and p.tablename = 'wait_list' and p.attname = 'limit_id')
  select s.lambda, s.cause, sum(s.tasks)::bigint, bool_or(s.cut),
         sum(case when s.cut then greatest(s.tasks, coalesce(m.share * t.rows, s.tasks + t.rest))
                  else s.tasks end)::bigint,
         min(least(s.since, o.since))
    from s left join t on true left join o using (limit_id) left join m using (limit_id)
   group by s.lambda, s.cause
$$;
comment on function tuskline_core.permit_waits(integer) is
  'Tasks that wait for a permit by lambda and cause (limit, order). For wait_gauges.';

-- Counts the tasks that gates on collections have parked. Each of the first 200 gates gets a share,
-- as a limit does.
create or replace function tuskline_core.gate_waits(p_rows integer)
returns table (lambda text, cause text, tasks bigint, and_more boolean, since timestamptz)
language sql stable as $$
  with g as materialized (
    select k.gate_id, k.lambda from tuskline.gate k order by k.gate_id limit 200
  ), b as materialized (
    select greatest(10, 10 * p_rows / greatest(count(*), 10)) as most from g)
  select g.lambda, 'gate', sum(l.tasks)::bigint, bool_or(l.tasks = b.most), min(l.since)
    from b cross join g
         cross join lateral (
           select count(*) as tasks, min(f.parked_at) as since
             from (select p.parked_at from tuskline.parked p
                    where p.gate_id = g.gate_id order by p.task_id limit b.most) f) l
   where l.tasks > 0 group by g.lambda
$$;
comment on function tuskline_core.gate_waits(integer) is
  'Tasks that gates on collections have parked, by lambda. For wait_gauges.';

create or replace function tuskline.wait_gauges(p_rows integer default 1000)
returns table (lambda text, cause text, tasks bigint, and_more boolean, estimate bigint,
               oldest_ms bigint)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set jit = off set enable_seqscan = off as $$
#variable_conflict use_column
declare
  v_now timestamptz := tuskline.clock();
begin
  return query
    select w.lambda, w.cause, w.tasks, w.and_more, w.estimate,
           case when w.since is not null
                then greatest(1000 * extract(epoch from v_now - w.since), 0)::bigint end
      from (select p.lambda, p.cause, p.tasks, p.and_more, p.estimate, p.since
              from tuskline_core.permit_waits(p_rows) p
            union all
            select t.lambda, t.cause, t.tasks, t.and_more, t.tasks, t.since
              from tuskline_core.timer_waits(p_rows, v_now) t
            union all
            select c.lambda, c.cause, c.tasks, c.and_more, c.tasks, c.since
              from tuskline_core.chain_waits(p_rows) c
            union all
            select g.lambda, g.cause, g.tasks, g.and_more, g.tasks, g.since
              from tuskline_core.gate_waits(p_rows) g) w
     order by w.lambda, w.cause;
end $$;
comment on function tuskline.wait_gauges(integer) is
  'Tasks that wait outside of queues, by lambda and cause: due, retry, server (due for 5 s, and no '
  'store consumer has moved it), gate, limit, order, dependency. oldest_ms: how long the first one '
  'has waited. estimate: of all, where tasks counts a part.';

-- Finds the ordering keys that a failed task blocks until unblock().
--
-- The view blocked_keys reads each permit. This function looks at the permits of the newest p_rows
-- dead letters, and at the keys of the p_rows waiters with the lowest ids: the waiters of a blocked
-- key stay, so after a while they have the lowest ids.
create or replace function tuskline.blocked_gauges(p_rows integer default 1000)
returns table (lambda text, keys bigint, and_more boolean, oldest_ms bigint, ordering_key text,
               task_id bigint)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set jit = off set enable_seqscan = off as $$
#variable_conflict use_column
declare
  v_now    timestamptz := tuskline.clock();
  v_barred text[] := tuskline.barred('inspect');
begin
  if not exists (select from tuskline.task_limit r where r.kind = 'order') then return; end if;
  return query
    with d as materialized (
      select l.task_id from tuskline.dead_letter l order by l.task_id desc limit p_rows
    ), w as materialized (
      select l.limit_id, l.key from tuskline.wait_list l order by l.task_id limit p_rows
    ), p as materialized (
      select s.limit_id, s.key, s.task_id from d cross join lateral (
        select o.limit_id, o.key, o.task_id from tuskline.permit o
         where o.task_id = d.task_id limit 100) s
      union
      select s.limit_id, s.key, s.task_id
        from (select distinct w.limit_id, w.key from w) k cross join lateral (
               select o.limit_id, o.key, o.task_id from tuskline.permit o
                where o.limit_id = k.limit_id and o.key = k.key limit 1) s
    ), b as (
      select r.lambda, p.key, p.task_id, t.finished_at
        from p join tuskline.task_limit r on r.limit_id = p.limit_id and r.kind = 'order'
             cross join lateral (
               select k.finished_at from tuskline_core.all_tasks k
                where k.id = p.task_id and k.status in ('dead', 'fatal_failure') limit 1) t)
    select b.lambda, count(*),
           (select count(*) from d) = p_rows or (select count(*) from w) = p_rows,
           greatest(1000 * extract(epoch from v_now - min(b.finished_at)), 0)::bigint,
           case when b.lambda <> all (v_barred)
                then (array_agg(b.key order by b.finished_at, b.task_id))[1] end,
           (array_agg(b.task_id order by b.finished_at, b.task_id))[1]
      from b group by b.lambda order by b.lambda;
end $$;
comment on function tuskline.blocked_gauges(integer) is
  'Ordering keys that a failed task blocks, by lambda, and the one that is blocked for longest. '
  'and_more: there may be more.';

-- Counts the permits and the waiters of limits: those of a lambda, or of all, in the order of the
-- lambdas, at most p_limits. Each gets a share of p_rows, at least 10.
--
-- The view limits counts all of them. held of a rate: the permits that are not counted as spent.
create or replace function tuskline.limit_gauges(
  p_lambda text default null, p_limits integer default 200, p_rows integer default 1000)
returns table (limit_id bigint, held bigint, more_held boolean, waiting bigint,
               more_waiting boolean)
language sql stable security definer
set search_path = pg_catalog, pg_temp set jit = off set enable_seqscan = off as $$
  with r as materialized (
    select k.limit_id, k.kind from tuskline.task_limit k
     where k.dropped_at is null and (p_lambda is null or k.lambda = p_lambda)
     order by k.lambda, k.limit_id limit p_limits
  ), b as materialized (
    select greatest(10, p_rows / greatest(count(*), 1)) as most from r)
  select r.limit_id, least(h.held, b.most), h.held > b.most, least(w.waiting, b.most),
         w.waiting > b.most
    from b cross join r
         cross join lateral (
           select case when r.kind = 'rate'
                       then (select coalesce(sum(s.unspent), 0)
                               from (select e.unspent from tuskline_core.rate_state e
                                      where e.limit_id = r.limit_id limit b.most) s)
                       else (select count(*)
                               from (select from tuskline.permit p
                                      where p.limit_id = r.limit_id limit b.most + 1) s) end
                  as held) h
         cross join lateral (
           select count(*) as waiting
             from (select from tuskline.wait_list l
                    where l.limit_id = r.limit_id limit b.most + 1) s) w
$$;
comment on function tuskline.limit_gauges(text, integer, integer) is
  'How many permits of each limit are held and how many tasks wait for one, each counted up to a '
  'bound. more_held, more_waiting: the count has met it.';
