-- Shows acts of operators and owners, and the contents of a task to a person who asks for them.

-- A detail may quote a reason, and so an error of a task.
create or replace view tuskline.acts as
select a.at, a.actor, a.verb, a.subject,
       case when b.barred = '{}' then a.detail end as detail, a.person
  from tuskline.audit a
       left join (select min(tuskline.barred('inspect')) as barred) b on true;
comment on view tuskline.acts is
  'Acts of operators and owners. detail: null for a reader who may not inspect each closed lambda.';

-- Returns what a task holds, as it is stored, and notes the look in the audit.
create or replace function tuskline.show_contents(
  p_task bigint, out payload text, out output text, out checkpoint text)
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  perform tuskline_core.need_on_task(p_task, 'inspect');
  select t.payload::text, o.output::text, p.checkpoint::text into payload, output, checkpoint
    from tuskline_core.all_tasks t
         left join tuskline.task_output o on o.task_id = t.id
         left join tuskline.progress p on p.task_id = t.id
   where t.id = p_task;
  if not found then return; end if;
  insert into tuskline.audit (at, verb, subject)
  values (tuskline.clock(), 'show_contents', 'task ' || p_task);
end $$;
comment on function tuskline.show_contents(bigint) is
  'Payload, output and checkpoint of a task, as they are stored. Null: there is no such task. '
  'Audited.';
