-- Retention: whole segments go. What outlives its segment moves to task_kept first; a waiting task
-- returns from there into a fresh segment of the same range. Called by the janitor, which does the
-- DETACH CONCURRENTLY that no function may do.

-- roll_segments: a quiet install would never fill a segment; after p_span it moves on to the next.
create or replace function tuskline.roll_segments(p_span interval default '1 day') returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now    timestamptz := tuskline.clock();
  v_rolled integer := 0;
  v_seq    regclass;
  v_last   bigint;
begin
  perform tuskline_core.lock_segments();
  foreach v_seq in array array['tuskline.task_seq', 'tuskline.future_seq']::regclass[] loop
    execute format('select last_value from %s', v_seq) into v_last;
    if exists (select from tuskline.segment where segment_no = tuskline_core.segment_of(v_last) and opened_at <= v_now - p_span)
       and exists (select from tuskline.task where id between tuskline_core.segment_of(v_last) << 24 and v_last) then
      perform setval(v_seq, greatest(nextval(v_seq), (tuskline_core.segment_of(v_last) + 1) << 24));
      v_rolled := v_rolled + 1;
    end if;
  end loop;
  perform tuskline.add_segments();
  return v_rolled;
end $$;
comment on function tuskline.roll_segments(interval) is 'Starts a new segment in each id range whose current one has been in use for p_span.';

create or replace function tuskline_core.is_attached(p_no bigint) returns boolean
language sql stable as $$
  select exists (select from pg_inherits i where i.inhrelid = to_regclass('tuskline_core.task_' || p_no)
                    and i.inhparent = 'tuskline_core.task_store'::regclass and not i.inhdetachpending)
$$;
comment on function tuskline_core.is_attached(bigint) is 'Whether there is a segment of this number that is not on its way out.';

-- segments_to_finish: what a janitor that died half-way left behind, and how far it had come. pending:
-- its DETACH CONCURRENTLY was interrupted and wants FINALIZE. detached: the table is to be dropped.
-- dropped: its history is to be purged and its leftovers are to return.
create or replace function tuskline.segments_to_finish()
returns table (segment_no bigint, stage text)
language sql volatile security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  select g.segment_no, case when c.oid is null then 'dropped' when i.inhrelid is null then 'detached' else 'pending' end
    from tuskline.segment g
         left join pg_class c on c.relname = 'task_' || g.segment_no and c.relnamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace)
         left join pg_inherits i on i.inhrelid = c.oid and i.inhparent = 'tuskline_core.task_store'::regclass
   where c.oid is null or i.inhrelid is null or i.inhdetachpending
   order by 1
$$;
comment on function tuskline.segments_to_finish() is 'Segments whose retirement was interrupted, and its stage: pending, detached or dropped.';

-- keep_remaining: what waits, what is not past its retention, and what others still need (wanted_in). One that came
-- due since somebody looked is in its queue by now, and would go with the segment: then nothing is done.
create or replace function tuskline.keep_remaining(p_no bigint) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_kept bigint;
  v_busy boolean;
begin
  -- Waits for each transaction that lets a task of it begin again (pin_segments).
  perform from tuskline.segment where segment_no = p_no for update;
  begin
    -- Tasks of paused queues come due again when they return (time_returned).
    execute format('update tuskline_core.task_%s t set status = ''new'', next_trigger_at = $1'
      ' from tuskline_core.paused_queues($1) p where t.status = ''enqueued'''
      ' and p.lambda = t.lambda and p.priority = t.priority', p_no) using tuskline.clock();
    v_kept := tuskline_core.move_to_kept(p_no);
    execute format('select exists (select from tuskline_core.task_%s t where t.status in (''enqueued'', ''claimed'', ''processing''))', p_no) into v_busy;
    if v_busy then raise exception using errcode = 'TK034', message = 'TK034 segment_busy'; end if;
  exception when sqlstate 'TK034' then
    return null;
  end;
  return v_kept;
end $$;
comment on function tuskline.keep_remaining(bigint) is 'Moves what must outlive a segment to task_kept; null, and nothing was done: something in it runs or is queued.';

create or replace function tuskline_core.move_to_kept(p_no bigint) returns bigint
language plpgsql as $$
declare
  v_kept bigint;
begin
  execute format('with m as (delete from tuskline_core.task_%s t using tuskline.lambda l where l.name = t.lambda and'
    ' (t.status in (''new'', ''retriable_failure'') or t.finished_at > $1 - tuskline_core.kept_for(l, t.status)'
    '  or t.id in (select w.id from tuskline_core.wanted_in($2, $3) as w (id))) returning t.*)'
    ' insert into tuskline.task_kept select * from m', p_no) using tuskline.clock(), p_no << 24, ((p_no + 1) << 24) - 1;
  get diagnostics v_kept = row_count;
  return v_kept;
end $$;
comment on function tuskline_core.move_to_kept(bigint) is 'Moves what waits in a segment, is not past its retention, or is needed by others, to task_kept; how many.';

-- awaited_parents: a task of a chain waits for them, and will ask how they ended and what they
-- returned. Each child is looked up by itself: a join might read every segment.
create or replace function tuskline_core.awaited_parents(p_first bigint, p_last bigint)
returns setof bigint language sql stable as $$
  select d.parent_id from tuskline.dependency d
   where d.parent_id between p_first and p_last
     and (select c.finished_at is null from tuskline.tasks c where c.id = d.task_id)
$$;
comment on function tuskline_core.awaited_parents(bigint, bigint) is
  'Tasks with ids from p_first to p_last for which a task of a chain waits.';

-- wanted_in: tasks that have ended and are needed all the same, of those with these ids: a task of a
-- chain waits for them, or their failure blocks an ordering key.
create or replace function tuskline_core.wanted_in(p_first bigint, p_last bigint) returns setof bigint
language sql stable as $$
  select p.id from tuskline_core.awaited_parents(p_first, p_last) as p (id)
  union all
  select s.task_id from tuskline.permit s
   where s.task_id between p_first and p_last and (select r.kind = 'order' from tuskline.task_limit r where r.limit_id = s.limit_id)
$$;
comment on function tuskline_core.wanted_in(bigint, bigint) is 'Tasks with ids from p_first to p_last for which a task of a chain waits, or which block an ordering key.';

-- is_wanted: two look-ups, for a few tasks.
create or replace function tuskline_core.is_wanted(p_task bigint) returns boolean
language sql stable as $$
  select exists (select from tuskline_core.wanted_in(p_task, p_task))
$$;
comment on function tuskline_core.is_wanted(bigint) is 'Whether a task of a chain waits for this one, or it blocks an ordering key.';

-- keep_late: of a segment that was detached, what a transaction committed into it that had taken its ids long
-- before: nobody saw it, and detaching waited for its end. It is kept, as new, and returns with the others; and so
-- is what has ended since keep_remaining looked. Who has a row locked may be about to claim it, so they are all
-- locked before the leases are read: one that is claimed after that would be reset in its worker's hands.
-- False: a worker has claimed one of these meanwhile (a segment's own functions find it); wait for the result.
create or replace function tuskline.keep_late(p_no bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_held boolean;
begin
  begin
    execute format('select from tuskline_core.task_%s t where t.finished_at is null order by t.id for update nowait', p_no);
  exception when lock_not_available then
    return false;
  end;
  execute format('select exists (select from tuskline_core.task_%s t where t.status in (''claimed'', ''processing'')'
    ' and exists (select from tuskline.lease s where s.lease_id = t.fence))', p_no) into v_held;
  if v_held then return false; end if;
  execute format('update tuskline_core.task_%s t set status = ''new'', next_trigger_at = $1,'
    ' attempt = t.attempt - (t.status in (''claimed'', ''processing''))::integer'
    ' where t.status in (''enqueued'', ''claimed'', ''processing'')', p_no) using tuskline.clock();
  perform tuskline_core.move_to_kept(p_no);
  return true;
end $$;
comment on function tuskline.keep_late(bigint) is
  'Moves to task_kept what was committed into a segment, or ended in it, while it was detached; false: somebody holds some of it.';

-- return_kept: into a fresh segment, or into the old one that could not be detached.
create or replace function tuskline.return_kept(p_no bigint) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_back     bigint := 0;
  v_attached boolean;
begin
  perform from tuskline.segment where segment_no = p_no for update; -- as keep_remaining
  v_attached := tuskline_core.is_attached(p_no);
  if exists (select from tuskline.task_kept where id between p_no << 24 and ((p_no + 1) << 24) - 1
             and status in ('new', 'retriable_failure')) then
    if not v_attached then
      delete from tuskline.segment where segment_no = p_no;
      perform tuskline_core.add_segment(p_no);
      update tuskline.segment set opened_at = created_at where segment_no = p_no;
    end if;
    execute format('with m as (delete from tuskline.task_kept where id between %s and %s'
      ' and status in (''new'', ''retriable_failure'') returning *) insert into tuskline_core.task_%s select * from m',
      p_no << 24, ((p_no + 1) << 24) - 1, p_no);
    get diagnostics v_back = row_count;
    perform tuskline_core.time_returned(p_no);
  elsif not v_attached then
    delete from tuskline.segment where segment_no = p_no;
    execute format('drop function if exists tuskline_core.take_%1$s, tuskline_core.end_%1$s', p_no);
  end if;
  return v_back;
end $$;
comment on function tuskline.return_kept(bigint) is 'After a segment was dropped, or could not be detached: its waiting tasks return from task_kept into one of the same range.';

-- time_returned: a waiting task in task_kept needs no timer, and may have lost the one it had (enqueue_due);
-- whoever brings it back (this, and revive) gives it one, unless something else will find it. No look at what
-- timers there are: one of them may just be going, uncommitted, and for that the insert waits. Those that are
-- due are due now, for a store consumer looks no further back than its mark.
create or replace function tuskline_core.time_returned(p_no bigint) returns void
language plpgsql as $$
declare
  v_now timestamptz := tuskline.clock();
  v_ids bigint[];
  v_due timestamptz[];
begin
  execute format('with u as (update tuskline_core.task_%1$s t set next_trigger_at = $1'
    ' where t.status in (''new'', ''retriable_failure'') and t.next_trigger_at <= $1'
    ' and (select k.task_id from tuskline.parked k where k.task_id = t.id limit 1) is null'
    ' and (select l.task_id from tuskline.wait_list l where l.task_id = t.id limit 1) is null'
    ' returning t.id), w as (select t.next_trigger_at as due, t.id from tuskline_core.task_%1$s t'
    ' where t.status in (''new'', ''retriable_failure'') and t.next_trigger_at > $1)'
    ' select array_agg(b.id), array_agg(b.due) from (select $1 as due, u.id from u union all select w.due, w.id from w) b',
    p_no) into v_ids, v_due using v_now;
  perform tuskline_core.add_timers(v_ids, v_due, 'due', v_now);
end $$;
comment on function tuskline_core.time_returned(bigint) is 'Gives the waiting tasks of a segment that came back a timer, unless something else will find them.';

-- purge: at most p_limit rows a call, so that it never holds much; call until it returns 0.
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
  delete from tuskline.executor e where e.executor_id = any (array(
    select e.executor_id from tuskline.executor e where e.ended_at < v_now - interval '1 day'
       and not exists (select from tuskline.lease l where l.executor_id = e.executor_id)
     order by e.executor_id limit p_limit for update skip locked));
  get diagnostics v_gone = row_count;
  delete from tuskline_core.awaited a where a.task_id = any (array(
    select a.task_id from tuskline_core.awaited a where a.since < v_now - interval '1 day' order by a.task_id limit p_limit for update skip locked));
  get diagnostics v_rows = row_count; v_gone := v_gone + v_rows;
  return v_gone + tuskline_core.purge_ticks(p_limit, v_now);
end $$;
comment on function tuskline.purge(integer, text) is 'Deletes a batch of ended workers, of forgotten waits and of ticks that are past retention, and old operations. Call until 0.';

-- purge_kept: the janitor walks over task_kept, so many a call and a bounded number a round: there may be millions
-- that stay for months, of which no index tells who is next. Those that are archived to files are left for
-- whoever writes these (kept_to_file).
create or replace function tuskline.purge_kept(
  p_after bigint default 0, p_limit integer default 5000, p_installation text default 'default',
  out mark bigint, out gone bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now timestamptz := tuskline.clock();
  v_ids bigint[];
begin
  perform tuskline.check_installation(p_installation);
  select k.ids, k.mark into v_ids, mark from tuskline_core.kept_past(p_after, p_limit, v_now, false) k;
  gone := tuskline_core.delete_tasks(v_ids, v_now);
end $$;
comment on function tuskline.purge_kept(bigint, integer, text) is
  'Deletes kept tasks that are past retention, with their history, of the next p_limit after an id; says how many and where to go on (null: that was the last).';

-- kept_past: `case`, or is_wanted would be asked about every kept task.
create or replace function tuskline_core.kept_past(
  p_after bigint, p_limit integer, p_now timestamptz, p_files boolean, out ids bigint[], out mark bigint)
language plpgsql as $$
declare
  v_next bigint[] := array(select k.id from tuskline.task_kept k where k.id > p_after order by k.id limit p_limit);
begin
  ids := array(
    select k.id from tuskline.task_kept k join tuskline.lambda l on l.name = k.lambda
     where k.id = any (v_next)
       and case when k.finished_at <= p_now - tuskline_core.kept_for(l, k.status) and (l.archive = 'file') = p_files
                then not tuskline_core.is_wanted(k.id) end
     order by k.id for update of k skip locked);
  mark := v_next[p_limit];
end $$;
comment on function tuskline_core.kept_past(bigint, integer, timestamptz, boolean) is
  'Of the next p_limit kept tasks after an id, locks those past retention: of lambdas that archive to files, or of the others; and where to go on.';

create or replace function tuskline.kept_to_file(p_after bigint default 0, p_limit integer default 5000, out ids bigint[], out mark bigint)
language sql volatile security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  select k.ids, k.mark from tuskline_core.kept_past(p_after, p_limit, tuskline.clock(), true) k
$$;
comment on function tuskline.kept_to_file(bigint, integer) is
  'Of the next p_limit kept tasks after an id, locks those past retention that go to a file; and where to go on (null: that was the last). In the same transaction: write archive_lines() of them, then delete_written().';

-- purge_history: not while a segment of this number is set aside: its archive wants the history. Each task is
-- looked up by itself: a join might read every segment for a batch.
create or replace function tuskline.purge_history(p_no bigint, p_after bigint default 0, p_limit integer default 5000, out mark bigint, out gone bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_from bigint := greatest(p_after + 1, p_no << 24);
  v_to   bigint := ((p_no + 1) << 24) - 1;
  v_next bigint[];
  v_ids  bigint[];
begin
  gone := 0;
  if to_regclass('tuskline_core.gone_' || p_no) is not null then return; end if;
  v_next := array(
    select h.id from (
      (select distinct f.task_id as id from tuskline.task_failure f where f.task_id between v_from and v_to order by 1 limit p_limit)
      union (select o.task_id from tuskline.task_output o where o.task_id between v_from and v_to order by 1 limit p_limit)
      union (select c.task_id from tuskline.chain_task c where c.task_id between v_from and v_to order by 1 limit p_limit)
      union (select d.task_id from tuskline.dead_letter d where d.task_id between v_from and v_to order by 1 limit p_limit)
      union (select r.task_id from tuskline.redriven r where r.task_id between v_from and v_to order by 1 limit p_limit)
      union (select p.task_id from tuskline.progress p where p.task_id between v_from and v_to order by 1 limit p_limit)) h
     order by h.id limit p_limit);
  v_ids := array(select u.id from unnest(v_next) as u (id) where (select t.id from tuskline.tasks t where t.id = u.id) is null);
  perform tuskline_core.delete_history(v_ids);
  gone := cardinality(v_ids);
  mark := v_next[p_limit];
end $$;
comment on function tuskline.purge_history(bigint, bigint, integer) is
  'Deletes the history of those that went with a segment, of the next p_limit tasks after an id that have some; says of how many and where to go on (null: that was the last).';
