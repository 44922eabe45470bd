-- Lists the used-up segments whose retention is over. Seals those in which all tasks have ended.
--
-- A segment may retire when none of its tasks runs or is queued, and its successful, cancelled and
-- dropped tasks are past retention. A fiftieth of all its tasks may still be within it: these move
-- to task_kept, like dead and waiting tasks. So a few tasks kept for years do not keep millions.
--
-- p_files: the caller can archive tasks to files. Otherwise segments with such tasks stay.
--
-- The function reads a whole segment, so it notes in ripe_at when to read it again:
--   when enough of its tasks will be past retention, or
--   after 100 times the time of the reading (at least 1 s), if that moment has passed, if a task
--   runs or is queued, or if a late writer may still commit into it.
create or replace function tuskline.segments_to_retire(
  p_files boolean default false, p_installation text default 'default') returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now   timestamptz := tuskline.clock();
  v_began timestamptz;
  v_ripe  boolean;
  v_late  text[]; -- late writers of the segment
  v_open  bigint[] := array( -- segments that still receive ids
    select tuskline_core.segment_of(i.last_value) from tuskline_core.id_range() i);
  s       record;
  r       record;
begin
  perform tuskline.check_installation(p_installation);
  for s in select g.segment_no from tuskline.segment g
            where g.opened_at is not null and g.segment_no <> all (v_open)
              and (g.ripe_at is null or g.ripe_at <= v_now)
            order by g.segment_no loop
    -- The retirement of this segment has begun already (segments_to_finish).
    continue when not tuskline_core.is_attached(s.segment_no)
      or to_regclass('tuskline_core.gone_' || s.segment_no) is not null;
    -- The row is locked by a transaction that restarts a task of the segment (pin_segments) or
    -- alters a retention (alter_lambda). A later one waits for our commit and sees our notes.
    perform from tuskline.segment g where g.segment_no = s.segment_no for update skip locked;
    continue when not found;
    v_began := clock_timestamp();
    v_late := tuskline_core.late_writers(s.segment_no);
    select * into r from tuskline_core.inspect_segment(s.segment_no, v_now);
    -- At most half of the tasks may have to move out. A segment of waiting tasks only is the rest
    -- of a retired one: to move it out and make it again would gain nothing.
    v_ripe := not r.busy and coalesce(r.ripe_at <= v_now, true) and 2 * r.kept <= r.tasks;
    if v_ripe and (p_files or not r.files) then return next s.segment_no; end if;
    update tuskline.segment g
       set sealed_at = case when not (r.busy or r.waiting) and v_late = '{}'
                            then coalesce(g.sealed_at, v_now) end,
           late_writers = v_late,
           ripe_at = case when not r.busy and (r.waiting or v_late = '{}') and r.ripe_at > v_now
                          then r.ripe_at
                          else v_now
                            + greatest('1 second', 100 * (clock_timestamp() - v_began)) end,
           unarchived_since = case when v_ripe and r.files and not p_files
                                   then coalesce(g.unarchived_since, v_now) end
     where g.segment_no = s.segment_no;
  end loop;
end $$;
comment on function tuskline.segments_to_retire(boolean, text) is
  'Segments whose retention is over. Seals used-up segments in which all tasks have ended. '
  'p_files: also segments with tasks that are archived to files.';

-- Reads a segment and tells whether and when it can retire.
--
-- Returns:
--   busy     a task runs or is queued
--   waiting  a task waits
--   files    a task is archived to a file
--   ripe_at  when all but a fiftieth of the tasks will be past retention
--   kept     tasks that would move to task_kept: waiting ones, and dead ones within retention
--   tasks    all tasks
--
-- Per lambda and status, the last task to end stands for all. A task of a paused queue counts as
-- waiting, because it may be long until it runs.
create or replace function tuskline_core.inspect_segment(
  p_no bigint, p_now timestamptz,
  out busy boolean, out waiting boolean, out files boolean, out ripe_at timestamptz,
  out kept bigint, out tasks bigint)
language plpgsql as $$
begin
  execute format(
    'with g as materialized ('
    'select t.status, l.archive, count(*) as tasks,'
    ' max(t.finished_at) + tuskline_core.kept_for(l, t.status) as ripe_at,'
    ' count(*) filter (where t.finished_at > $1 - tuskline_core.kept_for(l, t.status)) as fresh'
    ' from (select t.lambda, t.finished_at,'
    ' case when p.queue_id is null then t.status else ''new'' end as status'
    '  from tuskline_core.task_%s t left join tuskline_core.paused_queues($1) p'
    '   on t.status = ''enqueued'' and p.lambda = t.lambda and p.priority = t.priority) t'
    ' join tuskline.lambda l on l.name = t.lambda group by l.name, t.status'
    '), h as ('
    'select g.ripe_at, sum(g.tasks) over (order by g.ripe_at desc) as longer'
    ' from g where g.status >= ''success'' and g.status not in (''fatal_failure'', ''dead''))'
    ' select coalesce(bool_or(g.status in (''enqueued'', ''claimed'', ''processing'')), false),'
    ' coalesce(bool_or(g.status in (''new'', ''retriable_failure'')), false),'
    ' coalesce(bool_or(g.archive = ''file''), false),'
    ' (select max(h.ripe_at) from h where 50 * h.longer > (select sum(o.tasks) from g o)),'
    ' coalesce(sum(case when g.status in (''new'', ''retriable_failure'') then g.tasks'
    ' when g.status in (''dead'', ''fatal_failure'') then g.fresh end), 0)::bigint,'
    ' coalesce(sum(g.tasks), 0)::bigint from g', p_no)
    into busy, waiting, files, ripe_at, kept, tasks using p_now;
end $$;
comment on function tuskline_core.inspect_segment(bigint, timestamptz) is
  'Whether a task of a segment runs, waits, or is archived to a file. '
  'Also when the segment can retire, and how many of its tasks would be kept.';

-- Lists the transactions that may still commit a task into a used-up segment.
--
-- A transaction that draws ids holds the lock of the sequence until it ends. In the first call all
-- its holders count. Later only those count that the last call noted (segment.late_writers).
-- A holder of the segment's own lock always counts, because a prepared transaction has another name
-- after a restart.
-- The caller reads this list before the segment, so the reading sees all that ended writers left.
create or replace function tuskline_core.late_writers(p_no bigint) returns text[]
language sql volatile as $$
  select array(
    select distinct l.virtualtransaction
      from pg_locks l join tuskline.segment g on g.segment_no = p_no
     where l.locktype = 'relation' and l.mode = 'RowExclusiveLock' and l.granted
       and l.pid is distinct from pg_backend_pid()
       and l.database = (select d.oid from pg_database d where d.datname = current_database())
       and (l.relation = to_regclass('tuskline_core.task_' || p_no)
            or l.relation in ('tuskline.task_seq'::regclass, 'tuskline.future_seq'::regclass)
               and coalesce(l.virtualtransaction = any (g.late_writers), true))
     order by 1)
$$;
comment on function tuskline_core.late_writers(bigint) is
  'Transactions that may still commit a task into a segment whose ids are used up.';
