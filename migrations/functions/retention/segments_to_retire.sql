-- segments_to_retire: used-up segments in which nothing runs or is queued and the retention of what holds them
-- is over: success, cancelled and dropped, but for a fiftieth of all. What must stay longer, and is no more
-- than that, outlives its segment like the dead and those that wait, and so a few tasks that are kept for
-- years do not keep millions. Also seals those that are all terminal.
-- p_files: the caller can archive tasks to files; else it leaves segments with tasks that want that.
-- Reads a whole segment, so it notes when that is worth doing again (ripe_at): when enough will be past
-- their retention, or, while some are not terminal, after a hundred times the reading took.
create or replace function tuskline.segments_to_retire(
  p_files boolean default false, p_installation text default 'default') returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now   timestamptz := tuskline.clock();
  v_began timestamptz;
  v_ripe  boolean;
  v_late  text[];
  v_open  bigint[] := array(select tuskline_core.segment_of(last_value) from tuskline.task_seq
                            union all select tuskline_core.segment_of(last_value) from tuskline.future_seq);
  s       record;
  r       record;
begin
  perform tuskline.check_installation(p_installation);
  for s in select g.segment_no from tuskline.segment g
            where g.opened_at is not null and g.segment_no <> all (v_open) and (g.ripe_at is null or g.ripe_at <= v_now)
            order by g.segment_no loop
    -- One on its way out is finished, not begun with again.
    continue when not tuskline_core.is_attached(s.segment_no) or to_regclass('tuskline_core.gone_' || s.segment_no) is not null;
    -- A transaction that lets a task of it begin again (pin_segments) or alters a retention
    -- (alter_lambda) has it locked; or it waits for us, and will see what we note.
    perform from tuskline.segment g where g.segment_no = s.segment_no for update skip locked;
    continue when not found;
    v_began := clock_timestamp();
    v_late := tuskline_core.late_writers(s.segment_no);
    select * into r from tuskline_core.inspect_segment(s.segment_no, v_now);
    -- A segment of nothing but waiting tasks is what a retired one leaves behind: leave it.
    -- Nor is one read, moved and made anew for the sake of a few: at most half of it may have to move out.
    v_ripe := not r.busy and coalesce(r.ripe_at <= v_now, true) and 2 * r.kept <= r.tasks;
    if v_ripe and (p_files or not r.files) then return next s.segment_no; end if;
    update tuskline.segment g
       set sealed_at = case when not (r.busy or r.waiting) and v_late = '{}' then coalesce(g.sealed_at, v_now) end,
           late_writers = v_late,
           ripe_at = case when not r.busy and (r.waiting or v_late = '{}') and r.ripe_at > v_now then r.ripe_at
                          else v_now + greatest('1 second', 100 * (clock_timestamp() - v_began)) end,
           unarchived_since = case when v_ripe and r.files and not p_files then coalesce(g.unarchived_since, v_now) end
     where g.segment_no = s.segment_no;
  end loop;
end $$;
comment on function tuskline.segments_to_retire(boolean, text) is 'Segments whose retention is over; seals the used-up ones on the way. True: also those with tasks that are archived to files.';

-- Of each lambda and status the task that ended last stands for all of them. A task in a paused
-- queue
-- waits like a new one: it may be long until it runs.
create or replace function tuskline_core.inspect_segment(
  p_no bigint, p_now timestamptz,
  out busy boolean, out waiting boolean, out files boolean, out ripe_at timestamptz, out kept bigint, out tasks bigint)
language plpgsql as $$
begin
  execute format('with g as materialized ('
    'select t.status, l.archive, count(*) as tasks, max(t.finished_at) + tuskline_core.kept_for(l, t.status) as ripe_at,'
    ' count(*) filter (where t.finished_at > $1 - tuskline_core.kept_for(l, t.status)) as fresh'
    ' from (select t.lambda, t.finished_at, case when p.queue_id is null then t.status else '
    '''new'' end as status'
    '  from tuskline_core.task_%s t left join tuskline_core.paused_queues($1) p'
    '   on t.status = ''enqueued'' and p.lambda = t.lambda and p.priority = t.priority) t'
    ' join tuskline.lambda l on l.name = t.lambda group by l.name, t.status'
    '), h as (select g.ripe_at, sum(g.tasks) over (order by g.ripe_at desc) as longer from g where g.status in (''success'', ''cancelled'', ''dropped''))'
    ' select coalesce(bool_or(g.status in (''enqueued'', ''claimed'', ''processing'')), false),'
    ' coalesce(bool_or(g.status in (''new'', ''retriable_failure'')), false), coalesce(bool_or(g.archive = ''file''), false),'
    ' (select max(h.ripe_at) from h where 50 * h.longer > (select sum(o.tasks) from g o)),'
    ' coalesce(sum(case when g.status in (''new'', ''retriable_failure'') then g.tasks when g.status in (''dead'', ''fatal_failure'') then g.fresh end), 0)::bigint,'
    ' coalesce(sum(g.tasks), 0)::bigint from g', p_no) into busy, waiting, files, ripe_at, kept, tasks using p_now;
end $$;
comment on function tuskline_core.inspect_segment(bigint, timestamptz) is
  'Whether something in a segment runs or waits, or is archived to files; when it can go; how many tasks it would leave, of how many.';

-- late_writers: who may still commit something into a segment that is used up: of those who had taken ids when that
-- was first seen (each holds the lock of the sequence to its end) who is still there, and who holds the segment's
-- lock: one that is prepared has another name after a restart. Asked before the look at the segment, so
-- that the look sees what the ended ones have left.
create or replace function tuskline_core.late_writers(p_no bigint) returns text[]
language sql volatile as $$
  select array(
    select distinct l.virtualtransaction from pg_locks l join tuskline.segment g on g.segment_no = p_no
     where l.locktype = 'relation' and l.mode = 'RowExclusiveLock' and l.granted and l.pid is distinct from pg_backend_pid()
       and l.database = (select d.oid from pg_database d where d.datname = current_database())
       and (l.relation = to_regclass('tuskline_core.task_' || p_no)
            or l.relation in ('tuskline.task_seq'::regclass, 'tuskline.future_seq'::regclass)
               and coalesce(l.virtualtransaction = any (g.late_writers), true))
     order by 1)
$$;
comment on function tuskline_core.late_writers(bigint) is 'Transactions that may still commit something into a segment whose ids are used up.';
