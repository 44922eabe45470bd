-- Lists tasks that have just ended as dead or fatal_failure as dead letters.
--
-- The transaction that ends the tasks calls it. No index of task finds dead tasks, and a search
-- would read the whole table. Ids of p_ids with another status are skipped. A task that a redrive
-- restarted gets that redrive's id.
create or replace function tuskline_core.add_dead_letters(p_ids bigint[], p_now timestamptz)
returns void language plpgsql as $$
declare
  v_first bigint := (select min(id) from unnest(p_ids) as id);
  v_last  bigint := (select max(id) from unnest(p_ids) as id);
  v_dead  bigint[];
begin
  with i as (
    insert into tuskline.dead_letter (task_id, lambda, status, fingerprint, died_at, redrive_id)
    select t.id, t.lambda, t.status, coalesce(f.fingerprint, ''), t.finished_at, v.redrive_id
      from tuskline.task t
           left join lateral (select h.fingerprint from tuskline.task_failure h
                               where h.task_id = t.id
                               order by h.failed_at desc, h.fence desc limit 1) f on true
           left join tuskline.redriven v on v.task_id = t.id
     where t.id = any (p_ids) and t.id between v_first and v_last -- prunes the partitions
       and t.status in ('dead', 'fatal_failure')
    on conflict do nothing returning task_id, status)
  select array_agg(i.task_id) filter (where i.status = 'dead') into v_dead from i;
  perform tuskline_core.count_ends('dead', v_dead, p_now);
end $$;
comment on function tuskline_core.add_dead_letters(bigint[], timestamptz) is
  'Lists the tasks that have just died as dead letters.';

-- Deletes the history of tasks whose rows are deleted.
create or replace function tuskline_core.delete_history(p_ids bigint[]) returns void
language plpgsql as $$
begin
  delete from tuskline.dead_letter d where d.task_id = any (p_ids);
  delete from tuskline.redriven v where v.task_id = any (p_ids);
  delete from tuskline.task_failure f where f.task_id = any (p_ids);
  delete from tuskline.task_output o where o.task_id = any (p_ids);
  delete from tuskline.progress p where p.task_id = any (p_ids);
  if exists (select from tuskline_core.followed_lambda) then
    delete from tuskline.chain_task c where c.task_id = any (p_ids);
    delete from tuskline.dependency d where d.task_id = any (p_ids);
    delete from tuskline.unmet_dependency b where b.task_id = any (p_ids);
  end if;
end $$;
comment on function tuskline_core.delete_history(bigint[]) is
  'Deletes the history of tasks whose rows are deleted.';
