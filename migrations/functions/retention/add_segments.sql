-- Makes partitions of the task store ahead of need, so that no insert waits for one.
--
-- Locks: a segment is made as a table of its own and then attached. ATTACH takes SHARE UPDATE
-- EXCLUSIVE on task_store, which blocks neither reads nor writes. CREATE ... PARTITION OF would
-- block both.
create or replace function tuskline_core.segment_of(p_task bigint) returns bigint
language sql immutable as 'select p_task >> 24';
comment on function tuskline_core.segment_of(bigint) is
  'Number of the segment that holds a task id.';

create or replace function tuskline_core.add_segment(p_no bigint) returns boolean
language plpgsql as $$
declare
  v_table text := format('task_%s', p_no);
begin
  if to_regclass('tuskline_core.' || v_table) is not null then return false; end if;
  -- Fillfactor 30 leaves room on the page for all three versions of a row. Claim and result stay
  -- heap-only updates (at 50, 24 % of them were not).
  -- The table has no check of its id range. Each insert of one row would parse and plan the check
  -- (28,000 instructions). The table is empty, so attaching it scans nothing.
  execute format(
    'create table tuskline_core.%I (like tuskline.task including defaults, primary key (id))'
    ' with (fillfactor = 30, autovacuum_vacuum_insert_scale_factor = 0.5)', v_table);
  execute format('comment on table tuskline_core.%I is %L', v_table,
    format('Tasks with ids %s to %s.', p_no << 24, ((p_no + 1) << 24) - 1));
  execute format(
    'alter table tuskline_core.task_store attach partition tuskline_core.%I'
    ' for values from (%s) to (%s)', v_table, p_no << 24, (p_no + 1) << 24);
  insert into tuskline.segment (segment_no) values (p_no) on conflict do nothing;
  perform tuskline_core.make_segment_verbs(p_no);
  return true;
end $$;
comment on function tuskline_core.add_segment(bigint) is
  'Makes and attaches one partition of the task store. False: it exists.';

-- Makes the current segment of each id range and the p_ahead segments after it.
--
-- Returns how many it made.
create or replace function tuskline.add_segments(p_ahead integer default 8) returns integer
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now   timestamptz := tuskline.clock();
  v_added integer := 0;
  v_last  bigint; -- the current segment
  r       record;
begin
  perform tuskline_core.lock_guard('segment');
  for r in select * from tuskline_core.id_range() loop
    v_last := tuskline_core.segment_of(r.last_value);
    -- The current segment, and those that were used up since the last call.
    update tuskline.segment set opened_at = v_now
     where segment_no = any (array(
       select g.segment_no from tuskline.segment g
        where g.opened_at is null
          and g.segment_no <= v_last
          and g.segment_no >= tuskline_core.segment_of(r.first_id) -- the same id range
        order by g.segment_no for no key update));
    for v_no in v_last..least(v_last + p_ahead, tuskline_core.segment_of(r.last_id)) loop
      v_added := v_added + tuskline_core.add_segment(v_no)::int;
    end loop;
  end loop;
  return v_added;
end $$;
comment on function tuskline.add_segments(integer) is
  'Keeps p_ahead partitions of the task store ready ahead of need. Returns how many it made.';

create or replace function tuskline.segments_ahead() returns integer
language sql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  select min(c.ahead)::integer
    from tuskline_core.id_range() s
         cross join lateral (
           select count(*) - 1 as ahead
             from (select g.segment_no - row_number() over (order by g.segment_no) as run
                     from tuskline.segment g
                    where g.segment_no >= tuskline_core.segment_of(s.last_value)) r
            where r.run = tuskline_core.segment_of(s.last_value) - 1) c
$$;
comment on function tuskline.segments_ahead() is
  'Partitions that are ready after the current ones, in the id range that has the fewest. '
  '-1: even a current one is missing.';
