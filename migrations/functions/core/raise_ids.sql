-- Raises task ids to a new segment, so that no id of a lost past is issued again.
--
-- A crash may lose the last commits, and so does the promotion of an asynchronous standby. The
-- sequences then stand where they stood before these commits. Services schedule before a worker or
-- a server has recovered the database. Therefore the first call of a new life raises the ids:
--
--   schedule, schedule_many, schedule_chain   draw their ids after that
--   INSERT, COPY                              drew them before, and are refused (40001), once
--   rebuild_queues                            has nothing left to raise
--
-- The unlogged sequence ids_raised tells a new life: pg_sequence_last_value is null. A dump or a
-- template has its value. In such a copy the recovery raises the ids.

-- Planner: callers inline it. It costs an insert one page.
create or replace function tuskline_core.are_ids_raised() returns boolean language sql as $$
  select pg_sequence_last_value('tuskline_core.ids_raised') is not null
$$;
comment on function tuskline_core.are_ids_raised() is
  'False: this life of the database may issue ids of a lost past. The first call raises them.';

-- Returns the segment in which the ids of each sequence continue: the one after the highest that
-- the sequence or the task store knows. The task store knows a higher one where sequences were not
-- copied.
create or replace function tuskline_core.next_segments()
returns table (name text, segment_no bigint) language sql stable as $$
  select r.name, 1 + greatest(tuskline_core.segment_of(r.last_value),
    (select max(g.segment_no) from tuskline.segment g
      where g.opened_at is not null
        and g.segment_no between tuskline_core.segment_of(r.first_id)
                             and tuskline_core.segment_of(r.last_id)),
    tuskline_core.segment_of((select max(t.id) from tuskline_core.task_store t
      where t.id >= r.first_id and t.id <= r.last_id)))
    from tuskline_core.id_range() r
$$;
comment on function tuskline_core.next_segments() is
  'The segments in which task ids continue when they are raised.';

-- Raises task ids: in a recovery, or in the first call of a new life.
--
-- setval takes effect at once: other transactions draw new ids even if this one rolls back.
-- Therefore the segments must exist. A call makes none, because they would wait for its commit. The
-- janitor keeps 8 ahead, and each recovery leaves one.
-- One id is passed over, so each sequence has issued an id of its new segment.
-- Locks: the guard of segments, in a subtransaction that rolls back at once. Without it a second
-- session could set the sequences back to ids that were drawn since.
create or replace function tuskline_core.raise_ids(p_recovery boolean default false) returns boolean
language plpgsql as $$
declare
  r record;
begin
  perform tuskline_core.lock_guard('segment');
  if p_recovery or not tuskline_core.are_ids_raised() then
    if exists (select from tuskline_core.next_segments() n
                where to_regclass('tuskline_core.task_' || n.segment_no) is null) then
      perform tuskline_core.refuse_unverified();
    end if;
    for r in select * from tuskline_core.next_segments() loop
      perform setval(('tuskline.' || r.name)::regclass, r.segment_no << 24);
    end loop;
    perform setval('tuskline_core.ids_raised', case when p_recovery then 1 else -1 end
      * (1000000 * extract(epoch from clock_timestamp()))::bigint);
  end if;
  raise exception using errcode = 'UNDO1';
exception when sqlstate 'UNDO1' then return true;
end $$;
comment on function tuskline_core.raise_ids(boolean) is
  'Continues task ids in a new segment: in a recovery, or in the first call of a new life. '
  'Always true.';

-- Raises task ids in a recovery, unless a call has raised them in this life. A copy may have the
-- mark of its original, so there they are raised in any case.
--
-- The segments after the new ones are made, too. So segments exist, however often the server
-- crashes before its janitor makes the next ones.
create or replace function tuskline_core.recover_ids() returns void language plpgsql as $$
declare
  v_raised bigint := pg_sequence_last_value('tuskline_core.ids_raised');
begin
  if v_raised < 0 and not tuskline_core.is_copy() then
    perform setval('tuskline_core.ids_raised', -v_raised);
  else
    perform tuskline_core.add_next_segments();
    perform tuskline_core.raise_ids(true);
  end if;
  perform tuskline_core.add_next_segments();
end $$;
comment on function tuskline_core.recover_ids() is
  'Raises task ids in a recovery, unless a call has done so, and makes the next segments.';

create or replace function tuskline_core.add_next_segments() returns void language plpgsql as $$
declare
  v_no bigint;
begin
  foreach v_no in array array(select n.segment_no from tuskline_core.next_segments() n) loop
    continue when to_regclass('tuskline_core.task_' || v_no) is not null;
    perform tuskline_core.lock_guard('segment');
    perform tuskline_core.add_segment(v_no);
  end loop;
end $$;
comment on function tuskline_core.add_next_segments() is
  'Makes the segments in which task ids continue when they are raised.';

-- Tells whether an id that was drawn before the ids were raised may be of a lost past.
--
-- An id of an old segment may have been drawn in this life before that, or in an earlier one. It is
-- refused in transactions that began before the ids were raised, and for 10 s after that. In this
-- time each statement ends that was under way.
create or replace function tuskline_core.is_drawn_too_early() returns boolean
language sql stable as $$
  select extract(epoch from now() - tuskline_core.clock_lag()) * 1000000
         < abs(pg_sequence_last_value('tuskline_core.ids_raised'))
$$;
comment on function tuskline_core.is_drawn_too_early() is
  'Whether task ids were raised after this transaction began, or less than 10 s before.';

-- Makes the sequence by which a call notices a new life, as V10 does. This life may be new, too.
--
-- A restore in parts lacks it, and some platforms drop it at a promotion.
create or replace function tuskline_core.make_ids_raised() returns void language plpgsql as $$
begin
  perform tuskline_core.lock_guard('recovery');
  create unlogged sequence if not exists tuskline_core.ids_raised
    minvalue -9223372036854775808 start 1;
  comment on sequence tuskline_core.ids_raised is
    'When task ids were raised, in microseconds of the clock. Not called yet: this life of the '
    'database has not raised them. Negative: a call did, and the recovery is still to come.';
  perform tuskline_core.recover_ids();
end $$;
comment on function tuskline_core.make_ids_raised() is
  'Makes the sequence ids_raised if it is missing, and raises task ids.';
