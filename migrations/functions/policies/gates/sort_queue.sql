-- Sorts a flagged queue: applies gates and limits to a batch of the tasks that are in the queue.
--
-- Tasks that may be claimed stay in the queue and hold their permits. All other tasks leave it.
-- After a whole pass the flag is removed, and claims apply no policy: each later task passes
-- enqueue(), which applies them.
-- Returns how many rows of the queue it has read.
--
-- Race: a transaction that began before the flag was committed may still queue a task without the
-- policies: its snapshot shows the queue without the flag. Therefore the flag stays until a
-- whole pass has run after the last of these transactions. The first pass does not wait for them.
--
-- Locks: the caller has locked the row of flagged_queue. A locked task is left to the next pass
-- (behind). The rows of the queue are not locked: a row that was locked once makes each claim more
-- expensive.
create or replace function tuskline_core.sort_queue(
  f tuskline_core.flagged_queue, p_now timestamptz, p_limit integer)
returns integer language plpgsql as $$
declare
  v_late text[];   -- transactions that may still queue a task without the policies
  v_seqs bigint[]; -- rows of the batch, and their tasks
  v_ids  bigint[];
  v_free bigint[]; -- enqueued tasks of the batch that no other transaction has locked
  v_go   bigint[]; -- tasks of v_free that stay in the queue
begin
  if f.last is null then -- a pass begins
    v_late := tuskline_core.late_transactions(f.late);
    if f.late <> '{}' and v_late <> '{}' then
      update tuskline_core.flagged_queue set late = v_late
       where queue_id = f.queue_id and late <> v_late;
      return 0;
    end if;
    f.mark := case when f.late = '{}' then coalesce(f.behind - 1, 0) else 0 end;
    f.late := v_late;
    f.behind := null;
    f.last := (select s.last_value from tuskline.queued_seq s);
  end if;
  execute format('select array_agg(r.seq), array_agg(r.task_id) from (select seq, task_id'
    ' from tuskline_core.queue_%s where seq > $1 and seq <= $2 order by seq limit $3) r',
    f.queue_id)
    into v_seqs, v_ids using f.mark, f.last, p_limit;
  v_free := array(
    select t.id from tuskline.task t
     where t.id = any (v_ids)
       and t.id between (select min(id) from unnest(v_ids) as id) -- prunes the partitions
                    and (select max(id) from unnest(v_ids) as id)
       and t.status = 'enqueued'
     order by t.id for update skip locked);
  f.behind := least(f.behind, tuskline_core.first_locked(v_seqs, v_ids, v_free));
  v_go := tuskline_core.ask_before_claim(v_free, p_now);
  if cardinality(v_go) < cardinality(v_free) then
    execute format('delete from tuskline_core.queue_%1$s where ctid = any (array(select ctid'
      ' from tuskline_core.queue_%1$s where seq = any ($1) for update skip locked))', f.queue_id)
      using array(select s.seq from unnest(v_seqs, v_ids) as s (seq, id)
                   where s.id = any (v_free) and s.id <> all (v_go));
  end if;
  perform tuskline_core.note_sorted(f, v_seqs, coalesce(cardinality(v_seqs), 0) < p_limit);
  return coalesce(cardinality(v_seqs), 0);
end $$;
comment on function tuskline_core.sort_queue(tuskline_core.flagged_queue, timestamptz, integer) is
  'Applies gates and limits to a batch of the tasks in a flagged queue. Returns how many rows it '
  'has read.';

create or replace function tuskline_core.first_locked(
  p_seqs bigint[], p_ids bigint[], p_free bigint[])
returns bigint language plpgsql as $$
begin
  if cardinality(p_free) = coalesce(cardinality(p_ids), 0) then return null; end if;
  return (select min(s.seq) from unnest(p_seqs, p_ids) as s (seq, id)
           where s.id <> all (p_free)
             and exists (select from tuskline.task t where t.id = s.id and t.status = 'enqueued'));
end $$;
comment on function tuskline_core.first_locked(bigint[], bigint[], bigint[]) is
  'Returns the first of these queue rows whose task is enqueued but not free (p_free). Null: none.';

create or replace function tuskline_core.note_sorted(
  f tuskline_core.flagged_queue, p_seqs bigint[], p_is_over boolean)
returns void language plpgsql as $$
begin
  if p_is_over and f.late = '{}' and f.behind is null then
    delete from tuskline_core.flagged_queue where queue_id = f.queue_id and paused is null;
    update tuskline_core.flagged_queue set unsorted = false where queue_id = f.queue_id;
  else
    update tuskline_core.flagged_queue
       set late = f.late, behind = f.behind, mark = coalesce(p_seqs[cardinality(p_seqs)], f.mark),
           last = case when not p_is_over then f.last end
     where queue_id = f.queue_id;
  end if;
end $$;
comment on function tuskline_core.note_sorted(tuskline_core.flagged_queue, bigint[], boolean) is
  'Records how far a pass over a flagged queue has come, or that the queue is sorted.';

-- Releases the permits of a batch of enqueued tasks of a paused queue, but not those of ordering
-- policies. The permits then serve another priority of the same limit.
--
-- Tasks that enter the queue later hold none (before_enqueue, release_permits). The queue is done
-- (last = 0) when no such task is left and the transactions of the first call (late) have ended.
-- Returns how many tasks have released permits.
create or replace function tuskline_core.empty_of_permits(
  f tuskline_core.flagged_queue, p_now timestamptz, p_limit integer)
returns integer language plpgsql as $$
declare
  v_late text[];
  v_ids  bigint[];
begin
  if f.last = 0 then return 0; end if;
  v_late := tuskline_core.late_transactions(f.late);
  v_ids := array(
    select distinct s.task_id
      from tuskline.queue q
           join tuskline.task_limit r on r.lambda = q.lambda and r.dropped_at is null
           join tuskline.permit s on s.limit_id = r.limit_id and r.kind <> 'order'
           join tuskline.task t on t.id = s.task_id
     where q.queue_id = f.queue_id and t.priority = q.priority and t.status = 'enqueued'
     limit p_limit);
  perform tuskline_core.run_effects(v_ids, '{}', p_now, p_limit);
  update tuskline_core.flagged_queue
     set late = v_late, last = case when v_ids = '{}' and v_late = '{}' then 0 end
   where queue_id = f.queue_id;
  return cardinality(v_ids);
end $$;
comment on function tuskline_core.empty_of_permits(
  tuskline_core.flagged_queue, timestamptz, integer) is
  'Releases the permits of tasks of a paused queue, a batch per call. Returns how many tasks.';

-- Returns the open transactions of other sessions of this database.
--
-- p_known restricts them to transactions that are known from an earlier call; null: all. A prepared
-- transaction may have been any of the known ones, so each of these counts.
create or replace function tuskline_core.late_transactions(p_known text[]) returns text[]
language sql volatile as $$
  select array(
    select l.virtualtransaction from pg_locks l join pg_stat_activity a on a.pid = l.pid
     where l.locktype = 'virtualxid' and l.mode = 'ExclusiveLock' and l.granted
       and l.pid <> pg_backend_pid() and a.usesysid is not null
       and a.datid = (select d.oid from pg_database d where d.datname = current_database())
       and (p_known is null or l.virtualtransaction = any (p_known))
    union all
    select 'prepared ' || x.gid from pg_prepared_xacts x where x.database = current_database()
    union all
    select 'prepared ' || c.gid from tuskline_core.late_commit c
     order by 1)
$$;
comment on function tuskline_core.late_transactions(text[]) is
  'Open transactions of this database, restricted to those of p_known (null: all).';

-- Applies the policies to enqueued tasks that are popped or sorted, and writes the results.
--
-- Tasks that must wait become new; doomed tasks end. The effects of both run. The caller has locked
-- the tasks.
-- Returns the tasks that may be claimed.
create or replace function tuskline_core.ask_before_claim(p_ids bigint[], p_now timestamptz)
returns bigint[] language plpgsql as $$
declare
  v       tuskline_core.verdicts;
  v_first bigint := (select min(id) from unnest(p_ids) as id);
  v_last  bigint := (select max(id) from unnest(p_ids) as id);
begin
  if p_ids = '{}' then return p_ids; end if;
  v := tuskline_core.before_claim(p_ids, p_now);
  update tuskline.task t set flags = t.flags | 1::smallint -- 1: it may hold permits
   where t.id = any (v.permits) and t.id between v_first and v_last and t.flags & 1 = 0;
  update tuskline.task t set status = 'new', next_trigger_at = p_now
   where t.id = any (p_ids) and t.id <> all (v.go || v.doomed) and t.id between v_first and v_last;
  perform tuskline_core.run_effects(v.stopped
    || tuskline_core.end_waiting(v.doomed, v.outcome, v.error_class, v.message, p_now),
    v.due, p_now);
  return v.go;
end $$;
comment on function tuskline_core.ask_before_claim(bigint[], timestamptz) is
  'Returns the enqueued tasks that no gate or limit holds. The remaining ones wait or end.';
