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
  perform pg_advisory_xact_lock(1953854315, -1);
  foreach v_seq in array array['tuskline.task_seq', 'tuskline.future_seq']::regclass[] loop
    execute format('select last_value from %s', v_seq) into v_last;
    if exists (select from tuskline.segment where segment_no = tuskline.segment_of(v_last) and opened_at <= v_now - p_span)
       and exists (select from tuskline.task where id between tuskline.segment_of(v_last) << 24 and v_last) then
      perform setval(v_seq, greatest(nextval(v_seq), (tuskline.segment_of(v_last) + 1) << 24));
      v_rolled := v_rolled + 1;
    end if;
  end loop;
  perform tuskline.add_segments();
  return v_rolled;
end $$;
comment on function tuskline.roll_segments(interval) is 'Starts a new segment in each id range whose current one has been in use for p_span.';

-- segments_to_retire: used-up segments in which nothing runs or is queued and every success,
-- cancelled and dropped task is past its lambda's retention. Also seals those that are all terminal.
-- Reads a whole segment, so it notes when that is worth doing again (ripe_at): when the last task
-- will be past its retention, or, while some are not terminal, after a hundred times the reading took.
create or replace function tuskline.segments_to_retire() returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now   timestamptz := tuskline.clock();
  v_began timestamptz;
  v_open  bigint[] := array(select tuskline.segment_of(last_value) from tuskline.task_seq
                            union all select tuskline.segment_of(last_value) from tuskline.future_seq);
  s       record;
  r       record;
begin
  for s in select g.segment_no from tuskline.segment g
            where g.opened_at is not null and g.segment_no <> all (v_open) and (g.ripe_at is null or g.ripe_at <= v_now)
            order by g.segment_no loop
    if to_regclass('tuskline.task_' || s.segment_no) is null then continue; end if;
    -- Somebody lets a task of it begin anew (revive), or waits for us and will see what we note.
    continue when not pg_try_advisory_xact_lock(1953854318, tuskline.segment_key(s.segment_no));
    v_began := clock_timestamp();
    execute format('select coalesce(bool_or(t.status in (''enqueued'', ''claimed'', ''processing'')), false) as busy,'
      ' coalesce(bool_or(t.status in (''new'', ''retriable_failure'')), false) as waiting,'
      ' max(t.finished_at + l.retention) filter (where t.status in (''success'', ''cancelled'', ''dropped'')) as ripe_at,'
      ' count(*) filter (where t.status in (''new'', ''retriable_failure'') or t.status in (''dead'', ''fatal_failure'')'
      '   and t.finished_at > $1 - l.dead_retention) as kept, count(*) as rows'
      ' from tuskline.task_%s t join tuskline.lambda l on l.name = t.lambda', s.segment_no) into r using v_now;
    -- A segment of nothing but waiting tasks is what a retired one leaves behind: leave it.
    if not r.busy and coalesce(r.ripe_at <= v_now, true) and (r.rows = 0 or r.kept < r.rows) then return next s.segment_no; end if;
    update tuskline.segment g
       set sealed_at = case when r.busy or r.waiting then g.sealed_at else coalesce(g.sealed_at, v_now) end,
           ripe_at = case when not r.busy and r.ripe_at > v_now then r.ripe_at
                          else v_now + greatest('1 second', 100 * (clock_timestamp() - v_began)) end
     where g.segment_no = s.segment_no;
  end loop;
end $$;
comment on function tuskline.segments_to_retire() is 'Segments whose retention is over; seals the used-up ones on the way.';

-- segments_to_finish: what a janitor that died half-way left behind, and how far it had come. pending:
-- its DETACH CONCURRENTLY was interrupted and wants FINALIZE. detached: the table is to be dropped.
-- dropped: its history is to be purged and its leftovers are to return.
create or replace function tuskline.segments_to_finish()
returns table (segment_no bigint, stage text)
language sql volatile security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  select g.segment_no, case when c.oid is null then 'dropped' when i.inhrelid is null then 'detached' else 'pending' end
    from tuskline.segment g
         left join pg_class c on c.relname = 'task_' || g.segment_no and c.relnamespace = 'tuskline'::regnamespace
         left join pg_inherits i on i.inhrelid = c.oid and i.inhparent = 'tuskline.task_store'::regclass
   where c.oid is null or i.inhrelid is null or i.inhdetachpending
   order by 1
$$;
comment on function tuskline.segments_to_finish() is 'Segments whose retirement was interrupted, and its stage: pending, detached or dropped.';

create or replace function tuskline.keep_leftovers(p_no bigint) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now  timestamptz := tuskline.clock();
  v_kept bigint;
begin
  perform pg_advisory_xact_lock(1953854318, tuskline.segment_key(p_no)); -- whoever lets a task of it begin anew (revive) has committed
  execute format('with m as (delete from tuskline.task_%s t using tuskline.lambda l where l.name = t.lambda and'
    ' (t.status in (''new'', ''retriable_failure'')'
    '  or t.status in (''dead'', ''fatal_failure'') and t.finished_at > $1 - l.dead_retention) returning t.*)'
    ' insert into tuskline.task_kept select * from m', p_no) using v_now;
  get diagnostics v_kept = row_count;
  return v_kept;
end $$;
comment on function tuskline.keep_leftovers(bigint) is 'Moves what must outlive a segment to task_kept.';

create or replace function tuskline.return_leftovers(p_no bigint) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_back bigint := 0;
begin
  perform pg_advisory_xact_lock(1953854318, tuskline.segment_key(p_no)); -- as above
  if exists (select from tuskline.task_kept where id between p_no << 24 and ((p_no + 1) << 24) - 1
             and status in ('new', 'retriable_failure')) then
    delete from tuskline.segment where segment_no = p_no;
    perform tuskline.add_segment(p_no);
    update tuskline.segment set opened_at = created_at where segment_no = p_no;
    execute format('with m as (delete from tuskline.task_kept where id between %s and %s'
      ' and status in (''new'', ''retriable_failure'') returning *) insert into tuskline.task_%s select * from m',
      p_no << 24, ((p_no + 1) << 24) - 1, p_no);
    get diagnostics v_back = row_count;
    perform tuskline.time_returned(p_no);
  else
    delete from tuskline.segment where segment_no = p_no;
    execute format('drop function if exists tuskline.take_%1$s, tuskline.succeed_%1$s, tuskline.settle_%1$s', p_no);
  end if;
  return v_back;
end $$;
comment on function tuskline.return_leftovers(bigint) is 'After a segment was dropped: its waiting tasks return from task_kept into a fresh one of the same range.';

-- time_returned: tasks that began anew while they were kept have no timer yet.
create or replace function tuskline.time_returned(p_no bigint) returns void
language plpgsql as $$
declare
  v_now timestamptz := tuskline.clock();
begin
  execute format('with u as (update tuskline.task_%s t set next_trigger_at = $1'
    ' where t.status = ''new'' and t.next_trigger_at <= $1'
    ' and not exists (select from tuskline.timer m where m.due = t.next_trigger_at and m.task_id = t.id)'
    ' and not exists (select from tuskline.parked k where k.task_id = t.id) and not exists (select from tuskline.line l where l.task_id = t.id)'
    ' returning t.id) insert into tuskline.timer (due, task_id) select $1, u.id from u on conflict do nothing', p_no) using v_now;
  perform tuskline.wake_timer(v_now, v_now);
end $$;
comment on function tuskline.time_returned(bigint) is 'Gives the tasks of a segment that came back a timer, unless something else will find them.';

-- purge: at most p_limit rows a call, so that it never holds much; call until it returns 0.
create or replace function tuskline.purge(p_limit integer default 5000) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now  timestamptz := tuskline.clock();
  v_ids  bigint[];
  v_rows bigint;
  v_gone bigint;
begin
  v_ids := array(
    select k.id from tuskline.task_kept k join tuskline.lambda l on l.name = k.lambda
     where k.status not in ('new', 'retriable_failure') and k.finished_at
           <= v_now - case when k.status in ('dead', 'fatal_failure') then l.dead_retention else l.retention end
     order by k.id limit p_limit for update of k skip locked);
  delete from tuskline.task_kept where id = any (v_ids);
  get diagnostics v_gone = row_count;
  perform tuskline.forget(v_ids);
  delete from tuskline.redrive d where d.ended_at < v_now - interval '30 days';
  delete from tuskline.executor e where e.executor_id = any (array(
    select e.executor_id from tuskline.executor e where e.ended_at < v_now - interval '1 day'
       and not exists (select from tuskline.lease l where l.executor_id = e.executor_id)
     order by e.executor_id limit p_limit for update skip locked));
  get diagnostics v_rows = row_count; v_gone := v_gone + v_rows;
  delete from tuskline.awaited a where a.task_id = any (array(
    select a.task_id from tuskline.awaited a where a.since < v_now - interval '1 day' order by a.task_id limit p_limit for update skip locked));
  get diagnostics v_rows = row_count; v_gone := v_gone + v_rows;
  return v_gone + tuskline.purge_ticks(p_limit, v_now);
end $$;
comment on function tuskline.purge(integer) is 'Deletes a batch of kept tasks, with their history, of ended workers of forgotten waits and of ticks that are past retention. Call until 0.';

create or replace function tuskline.purge_history(p_no bigint, p_limit integer default 5000) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_rows bigint;
  v_gone bigint := 0;
begin
  delete from tuskline.task_failure f where (f.task_id, f.fence) in (
    select h.task_id, h.fence from tuskline.task_failure h
     where h.task_id between p_no << 24 and ((p_no + 1) << 24) - 1
       and not exists (select from tuskline.tasks t where t.id = h.task_id) order by 1, 2 limit p_limit);
  get diagnostics v_gone = row_count;
  delete from tuskline.task_output o where o.task_id in (
    select h.task_id from tuskline.task_output h
     where h.task_id between p_no << 24 and ((p_no + 1) << 24) - 1
       and not exists (select from tuskline.tasks t where t.id = h.task_id) order by 1 limit p_limit);
  get diagnostics v_rows = row_count; v_gone := v_gone + v_rows;
  with c as (
    delete from tuskline.chain_task c where c.task_id in (
      select h.task_id from tuskline.chain_task h
       where h.task_id between p_no << 24 and ((p_no + 1) << 24) - 1
         and not exists (select from tuskline.tasks t where t.id = h.task_id) order by 1 limit p_limit) returning c.task_id
  ), b as (delete from tuskline.broken b using c where b.task_id = c.task_id
  ), d as (delete from tuskline.dependency d using c where d.task_id = c.task_id)
  select count(*) into v_rows from c;
  v_gone := v_gone + v_rows;
  with g as (
    delete from tuskline.dead_letter d where d.task_id in (
      select h.task_id from tuskline.dead_letter h
       where h.task_id between p_no << 24 and ((p_no + 1) << 24) - 1
         and not exists (select from tuskline.tasks t where t.id = h.task_id) order by 1 limit p_limit) returning d.task_id
  ), v as (
    delete from tuskline.redriven v where v.task_id in (
      select h.task_id from tuskline.redriven h
       where h.task_id between p_no << 24 and ((p_no + 1) << 24) - 1
         and not exists (select from tuskline.tasks t where t.id = h.task_id) order by 1 limit p_limit) returning v.task_id)
  select (select count(*) from g) + (select count(*) from v) into v_rows;
  v_gone := v_gone + v_rows;
  delete from tuskline.progress p where p.task_id in (
    select h.task_id from tuskline.progress h
     where h.task_id between p_no << 24 and ((p_no + 1) << 24) - 1
       and not exists (select from tuskline.tasks t where t.id = h.task_id) order by 1 limit p_limit);
  get diagnostics v_rows = row_count;
  return v_gone + v_rows;
end $$;
comment on function tuskline.purge_history(bigint, integer) is 'Deletes a batch of failures and outputs of tasks that went with a segment. Call until 0.';
