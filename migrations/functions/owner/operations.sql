create or replace view tuskline.operations as
select o.operation_id, o.action,
       case when o.watched <> '{}' then 'canary' else o.state end as state,
       o.lambda, o.value, o.collection, o.priority, o.statuses::text[] as statuses, o.fingerprint,
       cardinality(o.ids) as ids, o.created_from, o.created_to, o.ended_to, o.max_tasks, o.per_second,
       o.canary, o.step, o.watched, o.writes_files, o.looked, o.changed, o.spared,
       cardinality(o.behind) as locked,
       (select count(*) from tuskline.dead_letter d
         where d.redrive_id = o.operation_id) as died_again,
       o.reason, o.author, o.begun_at, o.ended_at, o.note
  from tuskline.operation o;
comment on view tuskline.operations is
  'Operations on many tasks: how many tasks each has looked at, changed and left alone, how many '
  'were locked when it last looked, and how it ended. canary: it waits for the ends of those it '
  'watches.';
