-- Deletes a batch of ended workers, of old records of awaited tasks and of requests, of ticks and of
-- operations.
--
-- At most p_limit rows of each kind go in one call, so that it never holds many locks. Operations
-- are few and have no bound. The janitor calls this until it returns 0.
create or replace function tuskline.purge(
  p_limit integer default 5000, p_installation text default 'default') returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now  timestamptz := tuskline.clock();
  v_rows bigint;
  v_gone bigint;
begin
  perform tuskline.check_installation(p_installation);
  delete from tuskline.operation o where o.ended_at < v_now - interval '30 days';
  with e as (
    delete from tuskline.executor e where e.executor_id = any (array(
      select e.executor_id from tuskline.executor e
       where e.ended_at < v_now - interval '1 day'
         and not exists (select from tuskline.lease l where l.executor_id = e.executor_id)
       order by e.executor_id limit p_limit for update skip locked))
    returning e.executor_id
  ), s as (
    delete from tuskline.executor_statistic s using e where s.executor_id = e.executor_id)
  select count(*) into v_gone from e;
  delete from tuskline_core.awaited a where a.task_id = any (array(
    select a.task_id from tuskline_core.awaited a
     where a.since < v_now - interval '1 day'
     order by a.task_id limit p_limit for update skip locked));
  get diagnostics v_rows = row_count;
  v_gone := v_gone + v_rows;
  v_gone := v_gone + tuskline_core.purge_requests(p_limit, v_now);
  return v_gone + tuskline_core.purge_ticks(p_limit, v_now);
end $$;
comment on function tuskline.purge(integer, text) is
  'Deletes a batch of ended workers, of old records of awaited tasks and of requests, of ticks past '
  'retention, and old operations. Call until 0.';

-- Deletes kept tasks that are past retention, with their history, among the next p_limit.
--
-- The janitor walks over task_kept, a bounded number of tasks a round. Millions may stay for
-- months, and no index tells which is past retention next.
-- Tasks that are archived to files are left to the server that writes them (kept_to_file).
create or replace function tuskline.purge_kept(
  p_after bigint default 0, p_limit integer default 5000, p_installation text default 'default',
  out mark bigint, out gone bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now timestamptz := tuskline.clock();
  v_ids bigint[];
begin
  perform tuskline.check_installation(p_installation);
  select k.ids, k.mark into v_ids, mark
    from tuskline_core.kept_past(p_after, p_limit, v_now, false) k;
  gone := tuskline_core.delete_tasks(v_ids, v_now);
end $$;
comment on function tuskline.purge_kept(bigint, integer, text) is
  'Deletes kept tasks that are past retention, with their history, among the next p_limit after an '
  'id. Returns how many, and the id to continue after (null: that was the last).';

-- Locks the kept tasks that are past retention and not needed, among the next p_limit.
--
-- p_files selects lambdas that archive to files, or the rest.
-- Planner: `case` makes is_wanted run only for tasks past retention. With `and` it might run for
-- every kept task.
create or replace function tuskline_core.kept_past(
  p_after bigint, p_limit integer, p_now timestamptz, p_files boolean,
  out ids bigint[], out mark bigint)
language plpgsql as $$
declare
  v_next bigint[] := array(select k.id from tuskline.task_kept k
                            where k.id > p_after order by k.id limit p_limit);
begin
  ids := array(
    select k.id from tuskline.task_kept k join tuskline.lambda l on l.name = k.lambda
     where k.id = any (v_next)
       and case when k.finished_at <= p_now - tuskline_core.kept_for(l, k.status)
                 and (l.archive = 'file') = p_files
                then not tuskline_core.is_wanted(k.id) end
     order by k.id for update of k skip locked);
  mark := v_next[p_limit];
end $$;
comment on function tuskline_core.kept_past(bigint, integer, timestamptz, boolean) is
  'Locks those of the next p_limit kept tasks after an id that are past retention. '
  'p_files: of lambdas that archive to files, or of the rest. mark: the id to continue after.';

create or replace function tuskline.kept_to_file(
  p_after bigint default 0, p_limit integer default 5000, out ids bigint[], out mark bigint)
language sql volatile security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  select k.ids, k.mark
    from tuskline_core.kept_past(p_after, p_limit, tuskline.clock(), true) k
$$;
comment on function tuskline.kept_to_file(bigint, integer) is
  'Locks those of the next p_limit kept tasks after an id that are past retention and go to a '
  'file. '
  'mark: the id to continue after (null: that was the last). '
  'In the same transaction, write archive_lines() of them, then call delete_written().';

-- Deletes the history of tasks that went with a segment, among the next p_limit ids that have some.
--
-- While a segment of this number is set aside (gone_<n>), nothing is deleted: its archive needs it.
-- Planner: each task is looked up by its id. A join might read every segment for one batch.
create or replace function tuskline.purge_history(
  p_no bigint, p_after bigint default 0, p_limit integer default 5000,
  out mark bigint, out gone bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_from bigint := greatest(p_after + 1, p_no << 24);
  v_to   bigint := ((p_no + 1) << 24) - 1;
  v_next bigint[]; -- the next ids that have history
  v_ids  bigint[]; -- those of them whose task is gone
begin
  gone := 0;
  if to_regclass('tuskline_core.gone_' || p_no) is not null then return; end if;
  v_next := array(
    select h.id from (
      (select distinct f.task_id as id from tuskline.task_failure f
        where f.task_id between v_from and v_to order by 1 limit p_limit)
      union (select o.task_id from tuskline.task_output o
              where o.task_id between v_from and v_to order by 1 limit p_limit)
      union (select c.task_id from tuskline.chain_task c
              where c.task_id between v_from and v_to order by 1 limit p_limit)
      union (select d.task_id from tuskline.dead_letter d
              where d.task_id between v_from and v_to order by 1 limit p_limit)
      union (select r.task_id from tuskline.redriven r
              where r.task_id between v_from and v_to order by 1 limit p_limit)
      union (select p.task_id from tuskline.progress p
              where p.task_id between v_from and v_to order by 1 limit p_limit)) h
     order by h.id limit p_limit);
  v_ids := array(select u.id from unnest(v_next) as u (id)
                  where (select t.id from tuskline_core.all_tasks t where t.id = u.id) is null);
  perform tuskline_core.delete_history(v_ids);
  gone := cardinality(v_ids);
  mark := v_next[p_limit];
end $$;
comment on function tuskline.purge_history(bigint, bigint, integer) is
  'Deletes the history of tasks that went with a segment, among the next p_limit ids that have '
  'some. Returns of how many, and the id to continue after (null: that was the last).';
