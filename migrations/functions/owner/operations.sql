-- Lists all operations and their progress.
create or replace view tuskline.operations as
select o.operation_id, o.action,
       case when o.watched <> '{}' then 'canary' else o.state end as state,
       o.lambda, o.value, o.collection, o.priority, o.statuses::text[] as statuses, o.fingerprint,
       cardinality(o.ids) as ids, case when h.shown then o.key end as key, o.field,
       case when h.shown then o.equals end as equals, o.created_from, o.created_to,
       o.ended_to, o.max_tasks, o.per_second, o.canary, o.step, o.watched, o.writes_files,
       o.looked, o.changed, o.spared,
       cardinality(o.behind) as locked,
       (select count(*) from tuskline.dead_letter d
         where d.redrive_id = o.operation_id) as died_again,
       o.reason, o.author, o.begun_at, o.ended_at, o.note
  from tuskline.operation o
       left join (select min(tuskline.barred('inspect')) as barred) b on true
       cross join lateral (
         select case when o.lambda is null then b.barred = '{}'
                     else o.lambda <> all (b.barred) end as shown) h;
comment on view tuskline.operations is
  'Operations on many tasks: the tasks each has looked at, changed, spared and found locked, and '
  'how it ended. State canary: it waits for the ends of the watched tasks.';
