-- Keeps the ids of up to 64 installations apart: each has a cell, a number from 0 to 63.
--
-- A task id has 51 bits, so every task id is below 2^51:
--
--   bit 50         0: due at once (task_seq). 1: scheduled for later (future_seq)
--   bits 49 to 44  the cell of the installation that issued it
--   bits 43 to 0   its number there; bits 43 to 24 count the segments
--
-- A number of a gate, a limit or an operation has the cell in bits 29 to 24. Fences and executor
-- numbers have no cell: they follow the clock and are compared within one installation only.
--
-- This file alone knows the layout. All other functions call id_range, which returns the bounds of
-- the sequences.

create or replace function tuskline_core.cell_of(p_task bigint) returns integer
language sql immutable as 'select (p_task >> 44)::integer & 63';
comment on function tuskline_core.cell_of(bigint) is
  'Cell of the installation that issued a task id.';

-- A function, not a view: migrate locks a view that it replaces until its end. A transaction that
-- holds the guard of segments would then wait for migrate, and migrate for the guard.
create or replace function tuskline_core.id_range(
  out name text, out first_id bigint, out last_id bigint, out last_value bigint)
returns setof record language sql stable as $$
  select s.name, q.seqmin, q.seqmax, s.last_value
    from (select 'task_seq' as name, 'tuskline.task_seq'::regclass as seq, last_value
            from tuskline.task_seq
          union all
          select 'future_seq', 'tuskline.future_seq', last_value from tuskline.future_seq) s
         join pg_catalog.pg_sequence q on q.seqrelid = s.seq
$$;
comment on function tuskline_core.id_range() is
  'The two ranges of task ids that this installation issues: sequence, first and last id, and the '
  'last id that was issued (or the next one if none was).';

-- Sets the cell of this installation. Only the first migration may choose it.
--
-- p_cell null: 0 at the first migration; later the cell that the installation has. The sequences
-- know it even if the row of the installation is lost.
-- A segment or an issued id shows that it is not the first: install.sql makes the segments.
create or replace function tuskline_core.set_cell(p_cell integer) returns void
language plpgsql as $$
declare
  v_has integer := (select tuskline_core.cell_of(s.last_value) from tuskline.task_seq s);
begin
  if p_cell not between 0 and 63 then
    perform tuskline_core.refuse('TK042',
      format('invalid_cell: a cell must be between 0 and 63, got %s', p_cell));
  end if;
  if exists (select from tuskline.segment)
     or pg_sequence_last_value('tuskline.task_seq') is not null
     or pg_sequence_last_value('tuskline.future_seq') is not null then
    if p_cell <> v_has then
      perform tuskline_core.refuse('TK042', format(
        'invalid_cell: this database issues ids of cell %s, it cannot become cell %s',
        v_has, p_cell), format('create an empty database: tuskline migrate --cell %s', p_cell));
    end if;
    return;
  end if;
  update tuskline.installation set cell = coalesce(p_cell, 0);
  perform tuskline_core.bound_sequences(coalesce(p_cell, 0));
end $$;
comment on function tuskline_core.set_cell(integer) is
  'Sets the cell of an installation that has issued no id. '
  'Refuses (TK042) another cell later, and a number outside 0 to 63.';

-- Lets each sequence issue the numbers of one cell only.
--
-- Past the last one nextval raises an error (2200H). Number 0 is no id, so cell 0 begins at 1, and
-- every cell one after its lowest number. The future tasks of each cell begin at the lowest.
create or replace function tuskline_core.bound_sequences(p_cell bigint) returns void
language plpgsql as $$
declare
  v_bounds  text := 'minvalue %1$s maxvalue %2$s start %1$s restart';
  v_ids     text := format(v_bounds, (p_cell << 44) + 1, ((p_cell + 1) << 44) - 1);
  v_future  text := format(v_bounds, (p_cell + 64) << 44, ((p_cell + 65) << 44) - 1);
  v_numbers text := format(v_bounds, (p_cell << 24) + 1, ((p_cell + 1) << 24) - 1);
begin
  execute 'alter sequence tuskline.task_seq ' || v_ids;
  execute 'alter sequence tuskline.future_seq ' || v_future;
  execute 'alter sequence tuskline.gate_gate_id_seq ' || v_numbers;
  execute 'alter sequence tuskline.task_limit_limit_id_seq ' || v_numbers;
  execute 'alter sequence tuskline.operation_operation_id_seq ' || v_numbers;
end $$;
comment on function tuskline_core.bound_sequences(bigint) is
  'Restarts the sequences of tasks, gates, limits and operations within the range of a cell.';
