-- advance_purge: a batch, in id order. It locks what it deletes and nothing else, and steps around what others have
-- locked: nobody waits for it, and it waits for nobody. Tasks that are archived to files it only locks and
-- names, for a caller who says that he writes them (p_files) and calls delete_written() in the same transaction.
create or replace function tuskline.advance_purge(
  p_purge bigint, p_limit integer default 5000, p_files boolean default false,
  out state text, out looked bigint, out purged bigint, out spared bigint, out file_ids bigint[])
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now  timestamptz := tuskline.clock();
  r      tuskline.purge_run;
  v_next bigint[];
  v_left bigint;
  v_mine bigint[];
begin
  file_ids := '{}';
  select * into r from tuskline.purge_run where purge_id = p_purge for update;
  if not found then
    perform tuskline.refuse('TK030', format('invalid_purge: there is no purge %s', p_purge));
  end if;
  if r.state = 'running' then
    -- Of both, as a segment that goes moves what is left of it to task_kept.
    v_next := array(select u.id from (
      (select t.id from tuskline.task t where t.id > r.mark order by t.id limit p_limit)
      union all (select k.id from tuskline.task_kept k where k.id > r.mark order by k.id limit p_limit)) u order by u.id limit p_limit);
    v_left := r.most - r.purged;
    v_mine := tuskline.lock_for_purge(r, v_next, v_left, p_files);
    if p_files then
      file_ids := array(select t.id from tuskline.tasks t join tuskline.lambda l on l.name = t.lambda
        where l.archive = 'file' and t.id = any (v_mine) order by t.id);
    end if;
    r.purged := r.purged + tuskline.delete_tasks(array(select id from unnest(v_mine) as id where id <> all (file_ids)), v_now);
    if v_next = '{}' or cardinality(v_mine) >= v_left then
      r.state := 'done';
    else
      r.spared := r.spared - cardinality(file_ids) + (
        select count(*) from tuskline.tasks t where t.id = any (v_next) and tuskline.is_for(r, t.lambda, t.status, t.collection, t.finished_at));
    end if;
    r.looked := r.looked + cardinality(v_next);
    update tuskline.purge_run u
       set mark = coalesce(v_next[cardinality(v_next)], r.mark), looked = r.looked, purged = r.purged, spared = r.spared,
           state = r.state, ended_at = case when r.state = 'done' then v_now end
     where u.purge_id = p_purge;
  end if;
  state := r.state; looked := r.looked; purged := r.purged; spared := r.spared;
end $$;
comment on function tuskline.advance_purge(bigint, integer, boolean) is
  'Deletes the next batch of a purge; says whether it is done, how many tasks it has looked at, deleted and left alone, and which await delete_written(). Call until it is not running.';

-- lock_for_purge: those of the tasks that the purge is about, that nobody needs and nobody else has locked.
create or replace function tuskline.lock_for_purge(r tuskline.purge_run, p_ids bigint[], p_most bigint, p_files boolean) returns bigint[]
language plpgsql as $$
declare
  v_first bigint := p_ids[1];
  v_last  bigint := p_ids[cardinality(p_ids)];
  v_mine  bigint[];
begin
  v_mine := array(select t.id from tuskline.task t join tuskline.lambda l on l.name = t.lambda
    where t.id = any (p_ids) and t.id between v_first and v_last and tuskline.is_for(r, t.lambda, t.status, t.collection, t.finished_at)
      and (p_files or l.archive <> 'file') and not tuskline.is_needed(t.id, t.collection)
    order by t.id limit p_most for update of t skip locked);
  return v_mine || array(select k.id from tuskline.task_kept k join tuskline.lambda l on l.name = k.lambda
    where k.id = any (p_ids) and tuskline.is_for(r, k.lambda, k.status, k.collection, k.finished_at)
      and (p_files or l.archive <> 'file') and not tuskline.is_needed(k.id, k.collection)
    order by k.id limit p_most - cardinality(v_mine) for update of k skip locked);
end $$;
comment on function tuskline.lock_for_purge(tuskline.purge_run, bigint[], bigint, boolean) is 'Locks those of the tasks that a purge may delete, in id order; returns them.';

create or replace function tuskline.stop_purge(p_purge bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  update tuskline.purge_run set state = 'stopped', ended_at = tuskline.clock() where purge_id = p_purge and state = 'running';
  if not found then return false; end if;
  insert into tuskline.audit (at, verb, subject) values (tuskline.clock(), 'stop_purge', 'purge ' || p_purge);
  return true;
end $$;
comment on function tuskline.stop_purge(bigint) is 'Ends a purge where it stands; what is deleted stays deleted. False: it is not running. Audited.';
