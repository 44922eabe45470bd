-- Schedules a task that runs when all tasks of p_after have ended, as a chain of one task.
--
-- It completes a batch in the statement that schedules the batch:
--   select tuskline.schedule_then(tuskline.schedule_many(...), 'report')
-- The task reads the outputs of the batch with parents().
create or replace function tuskline.schedule_then(
  p_after             bigint[],
  p_lambda            text,
  p_payload           text default null,
  p_on                text default 'always',
  p_on_parent_failure text default 'cancel',
  p_priority          text default 'normal',
  p_collection        text default null)
returns bigint language sql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
  select c.ids[1]
    from tuskline.schedule_chain(json_build_array(json_build_object(
           'lambda', p_lambda,
           'payload', tuskline_core.json_of('payload', p_payload),
           'priority', p_priority,
           'collection', p_collection,
           'on_parent_failure', p_on_parent_failure,
           'after', (select coalesce(json_agg(json_build_object('task', a.id, 'on', p_on)
                                              order by a.id), '[]')
                       from (select distinct id from unnest(p_after) as id) a)))) c
$$;
comment on function tuskline.schedule_then(bigint[], text, text, text, text, text, text) is
  'Schedules a task that runs when all of these tasks have ended. '
  'p_on chooses the end to wait for: success, failure or always.';
select tuskline_core.make_overloads();
