-- Retires segments (partitions of the task store), and deletes records that are past retention.
--
-- Retention drops whole segments. A task that must outlive its segment moves to task_kept first.
-- A waiting task returns from there into a fresh segment of the same id range. The janitor calls
-- these functions and runs DETACH CONCURRENTLY itself, because no function may run it.

-- Moves both id sequences to their next segment if the current one has been in use for p_span.
--
-- Without this, an installation with few tasks would never fill a segment, so none would retire.
-- A segment without a task is not rolled, nor is the last one of the cell.
create or replace function tuskline.roll_segments(p_span interval default '1 day') returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now    timestamptz := tuskline.clock();
  v_rolled integer := 0;
  v_no     bigint; -- the current segment
  v_seq    regclass;
  r        record;
begin
  perform tuskline_core.lock_guard('segment');
  for r in select * from tuskline_core.id_range() loop
    v_no := tuskline_core.segment_of(r.last_value);
    v_seq := 'tuskline.' || r.name;
    if v_no < tuskline_core.segment_of(r.last_id)
       and exists (select from tuskline.segment
                    where segment_no = v_no and opened_at <= v_now - p_span)
       and exists (select from tuskline.task where id between v_no << 24 and r.last_value) then
      perform setval(v_seq, greatest(nextval(v_seq), (v_no + 1) << 24));
      v_rolled := v_rolled + 1;
    end if;
  end loop;
  perform tuskline.add_segments();
  return v_rolled;
end $$;
comment on function tuskline.roll_segments(interval) is
  'Starts a new segment in each id range whose current one has been in use for p_span.';

create or replace function tuskline_core.is_attached(p_no bigint) returns boolean
language sql stable as $$
  select exists (select from pg_inherits i
                  where i.inhrelid = to_regclass('tuskline_core.task_' || p_no)
                    and i.inhparent = 'tuskline_core.task_store'::regclass
                    and not i.inhdetachpending)
$$;
comment on function tuskline_core.is_attached(bigint) is
  'Whether the segment of this number is attached and no DETACH of it is pending.';

-- Lists the segments whose retirement was interrupted, and how far the janitor had come.
--
--   pending   DETACH CONCURRENTLY was interrupted: run it with FINALIZE
--   detached  drop the table
--   dropped   purge the history, return the waiting tasks from task_kept
create or replace function tuskline.segments_to_finish()
returns table (segment_no bigint, stage text)
language sql volatile security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  select g.segment_no,
         case when c.oid is null then 'dropped'
              when i.inhrelid is null then 'detached'
              else 'pending' end
    from tuskline.segment g
         left join pg_class c on c.relname = 'task_' || g.segment_no
          and c.relnamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace)
         left join pg_inherits i on i.inhrelid = c.oid
          and i.inhparent = 'tuskline_core.task_store'::regclass
   where c.oid is null or i.inhrelid is null or i.inhdetachpending
   order by 1
$$;
comment on function tuskline.segments_to_finish() is
  'Segments whose retirement was interrupted, and its stage: pending, detached or dropped.';

-- Moves the tasks that must outlive a segment to task_kept.
--
-- These tasks wait, are not past retention, or are still needed (wanted_in).
-- Returns how many. Null: a task of the segment runs or is queued, and nothing was changed. A task
-- that came due after the janitor's check is in its queue by now. It would go with the segment.
-- Locks: the segment's row. A transaction that restarts a task of it (pin_segments) ends first.
create or replace function tuskline.keep_remaining(p_no bigint) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_kept bigint;
  v_busy boolean;
begin
  perform from tuskline.segment where segment_no = p_no for update;
  begin
    -- Tasks of paused queues come due again when they return (time_returned).
    execute format(
      'update tuskline_core.task_%s t set status = ''new'', next_trigger_at = $1'
      ' from tuskline_core.paused_queues($1) p where t.status = ''enqueued'''
      ' and p.lambda = t.lambda and p.priority = t.priority', p_no) using tuskline.clock();
    v_kept := tuskline_core.move_to_kept(p_no);
    execute format(
      'select exists (select from tuskline_core.task_%s t'
      ' where t.status in (''enqueued'', ''claimed'', ''processing''))', p_no) into v_busy;
    if v_busy then
      raise exception using errcode = 'TK034', message = 'TK034 segment_busy';
    end if;
  exception when sqlstate 'TK034' then
    return null;
  end;
  return v_kept;
end $$;
comment on function tuskline.keep_remaining(bigint) is
  'Moves the tasks that must outlive a segment to task_kept. '
  'Null, with nothing changed: a task of the segment runs or is queued.';

create or replace function tuskline_core.move_to_kept(p_no bigint) returns bigint
language plpgsql as $$
declare
  v_kept bigint;
begin
  execute format(
    'with m as (delete from tuskline_core.task_%s t using tuskline.lambda l'
    ' where l.name = t.lambda and'
    ' (t.status in (''new'', ''retriable_failure'')'
    ' or t.finished_at > $1 - tuskline_core.kept_for(l, t.status)'
    '  or t.id in (select w.id from tuskline_core.wanted_in($2, $3) as w (id))) returning t.*)'
    ' insert into tuskline.task_kept select * from m', p_no)
    using tuskline.clock(), p_no << 24, ((p_no + 1) << 24) - 1;
  get diagnostics v_kept = row_count;
  return v_kept;
end $$;
comment on function tuskline_core.move_to_kept(bigint) is
  'Moves the tasks of a segment that wait, are not past retention, or are needed to task_kept. '
  'Returns how many.';

-- Lists the parents that a task of a chain still waits for, among the ids p_first to p_last.
--
-- That task will read how these parents ended and what they returned.
-- Planner: each child is looked up by its id. A join might read every segment.
create or replace function tuskline_core.awaited_parents(p_first bigint, p_last bigint)
returns setof bigint language sql stable as $$
  select d.parent_id from tuskline.dependency d
   where d.parent_id between p_first and p_last
     and (select c.finished_at is null from tuskline_core.all_tasks c where c.id = d.task_id)
$$;
comment on function tuskline_core.awaited_parents(bigint, bigint) is
  'Tasks with ids from p_first to p_last for which a task of a chain waits.';

-- Lists the tasks that are needed after their end, among the ids p_first to p_last.
--
-- A task is needed while a task of a chain waits for it, or while it holds the permit of an
-- ordering key.
create or replace function tuskline_core.wanted_in(p_first bigint, p_last bigint)
returns setof bigint
language sql stable as $$
  select p.id from tuskline_core.awaited_parents(p_first, p_last) as p (id)
  union all
  select s.task_id from tuskline.permit s
   where s.task_id between p_first and p_last
     and (select r.kind = 'order' from tuskline.task_limit r where r.limit_id = s.limit_id)
$$;
comment on function tuskline_core.wanted_in(bigint, bigint) is
  'Tasks with ids from p_first to p_last for which a task of a chain waits, '
  'or which block an ordering key.';

-- Tells whether one task is needed after its end (wanted_in). Two look-ups: for a few tasks only.
create or replace function tuskline_core.is_wanted(p_task bigint) returns boolean
language sql stable as $$
  select exists (select from tuskline_core.wanted_in(p_task, p_task))
$$;
comment on function tuskline_core.is_wanted(bigint) is
  'Whether a task of a chain waits for this one, or it blocks an ordering key.';

-- Moves the tasks that a detached segment still has to keep to task_kept.
--
-- A transaction that drew its ids long ago may have committed into the segment before DETACH, which
-- waited for its end. No function has seen those tasks. They return as new tasks with the rest.
-- Tasks that have ended since keep_remaining and are not past retention are kept as well.
-- Returns false if a row is locked, or if a worker holds the lease of a task. The functions of the
-- segment (take_<n>, end_<n>) can still claim one. The janitor then waits for the result.
-- Race: the transaction that holds a row lock may be claiming the task. All rows are locked before
-- the leases are read, because a task claimed later would be reset while its worker runs it.
create or replace function tuskline.keep_late(p_no bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_held boolean;
begin
  begin
    execute format(
      'select from tuskline_core.task_%s t where t.finished_at is null'
      ' order by t.id for update nowait', p_no);
  exception when lock_not_available then
    return false;
  end;
  execute format(
    'select exists (select from tuskline_core.task_%s t'
    ' where t.status in (''claimed'', ''processing'')'
    ' and exists (select from tuskline.lease s where s.lease_id = t.fence))', p_no) into v_held;
  if v_held then return false; end if;
  execute format(
    'update tuskline_core.task_%s t set status = ''new'', next_trigger_at = $1,'
    ' attempt = t.attempt - (t.status in (''claimed'', ''processing''))::integer'
    ' where t.status in (''enqueued'', ''claimed'', ''processing'')', p_no)
    using tuskline.clock();
  perform tuskline_core.move_to_kept(p_no);
  return true;
end $$;
comment on function tuskline.keep_late(bigint) is
  'Moves to task_kept the tasks that were committed into a segment, or ended in it, until it was '
  'detached. False: a task of it is locked or leased.';

-- Returns the waiting tasks of a segment from task_kept to the task store.
--
-- The segment was dropped, or could not be detached. A dropped one is made again if tasks wait.
-- Otherwise its row and its functions are deleted.
-- Returns how many tasks.
-- Locks: the segment's row, as keep_remaining does.
create or replace function tuskline.return_kept(p_no bigint) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_back     bigint := 0;
  v_attached boolean;
begin
  perform from tuskline.segment where segment_no = p_no for update;
  v_attached := tuskline_core.is_attached(p_no);
  if exists (select from tuskline.task_kept
              where id between p_no << 24 and ((p_no + 1) << 24) - 1
                and status in ('new', 'retriable_failure')) then
    if not v_attached then
      delete from tuskline.segment where segment_no = p_no;
      perform tuskline_core.add_segment(p_no);
      update tuskline.segment set opened_at = created_at where segment_no = p_no;
    end if;
    execute format(
      'with m as (delete from tuskline.task_kept where id between %s and %s'
      ' and status in (''new'', ''retriable_failure'') returning *)'
      ' insert into tuskline_core.task_%s select * from m',
      p_no << 24, ((p_no + 1) << 24) - 1, p_no);
    get diagnostics v_back = row_count;
    perform tuskline_core.time_returned(p_no);
  elsif not v_attached then
    delete from tuskline.segment where segment_no = p_no;
    execute format(
      'drop function if exists tuskline_core.take_%1$s, tuskline_core.end_%1$s', p_no);
  end if;
  return v_back;
end $$;
comment on function tuskline.return_kept(bigint) is
  'Returns the waiting tasks of a segment from task_kept, after it was dropped or could not be '
  'detached. Makes the segment again if it is needed.';

-- Adds a timer for each waiting task of a segment that returned, unless a gate or limit holds it.
--
-- A task in task_kept needs no timer, and enqueue_due may have deleted the one it had. The function
-- that brings it back adds one (this one, restart_tasks). A due task that is parked or in a wait
-- list needs none.
-- Overdue tasks become due now: the store consumer reads no timer before its watermark.
-- Race: existing timers are not read, because one may be about to go, by a delete that has not
-- committed. The insert waits for that transaction.
create or replace function tuskline_core.time_returned(p_no bigint) returns void
language plpgsql as $$
declare
  v_now timestamptz := tuskline.clock();
  v_ids bigint[];
  v_due timestamptz[];
begin
  execute format(
    'with u as (update tuskline_core.task_%1$s t set next_trigger_at = $1'
    ' where t.status in (''new'', ''retriable_failure'') and t.next_trigger_at <= $1'
    ' and (select k.task_id from tuskline.parked k where k.task_id = t.id limit 1) is null'
    ' and (select l.task_id from tuskline.wait_list l where l.task_id = t.id limit 1) is null'
    ' returning t.id), w as ('
    'select t.next_trigger_at as due, t.id from tuskline_core.task_%1$s t'
    ' where t.status in (''new'', ''retriable_failure'') and t.next_trigger_at > $1)'
    ' select array_agg(b.id), array_agg(b.due)'
    ' from (select $1 as due, u.id from u union all select w.due, w.id from w) b',
    p_no) into v_ids, v_due using v_now;
  perform tuskline_core.add_timers(v_ids, v_due, 'due', v_now);
end $$;
comment on function tuskline_core.time_returned(bigint) is
  'Adds a timer for each waiting task of a segment that returned, '
  'unless a gate or a limit holds it.';
