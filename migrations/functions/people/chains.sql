-- Shows chains, unique keys, and the parents of a task with their results.
create or replace view tuskline.chain_tasks as
select c.chain_id, c.task_id, c.name, t.lambda, t.status, c.depth, c.on_parent_failure, c.waits_for,
       array(select d.parent_id from tuskline.dependency d
              where d.task_id = c.task_id order by d.parent_id) as parents,
       array(select d.condition from tuskline.dependency d
              where d.task_id = c.task_id order by d.parent_id) as conditions,
       t.created_at, t.started_at, t.finished_at
  from tuskline.chain_task c
       left join lateral (
         -- offset 0: looks up each task by its id. A plain join may read the whole store for one
         -- chain.
         select o.lambda, o.status, o.created_at, o.started_at, o.finished_at
           from tuskline_core.all_tasks o where o.id = c.task_id offset 0) t on true;
comment on view tuskline.chain_tasks is
  'Tasks of chains: their parents, their conditions and their status. '
  'Add "where chain_id = n order by depth, task_id".';

create or replace view tuskline.chains as
select c.chain_id, count(*) as tasks, count(*) filter (where c.finished_at is not null) as ended,
       count(*) filter (where c.status in ('dead', 'fatal_failure')) as failed,
       count(*) filter (where c.status = 'cancelled') as cancelled,
       min(c.created_at) as created_at, max(c.finished_at) as finished_at
  from tuskline.chain_tasks c group by c.chain_id;
comment on view tuskline.chains is
  'Chains, and how many of their tasks have ended, failed or been cancelled. '
  'Give a chain_id on a large store.';

create or replace function tuskline.parents(p_task bigint)
returns table (id bigint, name text, lambda text, status text, condition text, output json)
language sql stable security definer
set search_path = pg_catalog, pg_temp set jit = off
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off as $$
  select d.parent_id, c.name, t.lambda, coalesce(t.status, d.outcome)::text, d.condition,
         case when m.shown then o.output end
    from tuskline.dependency d
         left join tuskline.chain_task c on c.task_id = d.parent_id
         left join tuskline_core.all_tasks t on t.id = d.parent_id
         left join tuskline.task_output o on o.task_id = d.parent_id
         cross join lateral (
           select not tuskline_core.rights_in_use() or exists (
             select from tuskline_core.all_tasks k
              where k.id = p_task
                and (tuskline.may(k.lambda, 'work') or tuskline.may(k.lambda, 'inspect'))) as shown
           offset 0) m
   where d.task_id = p_task order by d.parent_id
$$;
comment on function tuskline.parents(bigint) is
  'The parents of a task: name, status, the condition on each, and what it returned (null without '
  'the right work or inspect on the lambda of the task).';

create or replace view tuskline.unique_keys as
select r.lambda, r.scope, r.period, r.outcome, coalesce(k.keys, 0) as keys, r.author, r.set_at
  from tuskline.unique_policy r
       left join (select lambda, count(*) as keys
                    from tuskline.unique_key group by lambda) k using (lambda);
comment on view tuskline.unique_keys is
  'Lambdas that have unique keys, and how many keys each has on record (counted). '
  'Keys that no task holds any more count as well.';
