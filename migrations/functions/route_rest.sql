-- route_rest: what route could not put into a queue at once. Refuses the statement if a row is
-- wrong; else parks the rows as new, each with a timer. Rows that schedule already made new are not
-- written a second time. The ids are sorted.
create or replace function tuskline.route_rest(p_now timestamptz, p_ids bigint[], p_numbers bigint[], p_rows bigint)
returns void language plpgsql
set jit = off set plan_cache_mode = force_generic_plan set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_first bigint := p_ids[1];
  v_last  bigint := p_ids[cardinality(p_ids)];
  v_drawn bigint := pg_sequence_last_value('tuskline.task_seq');
begin
  perform tuskline.refuse_row(t, q.max_payload_bytes, q.is_full, p_now, tuskline.row_of(p_numbers[width_bucket(t.id, p_ids)], p_rows))
     from tuskline.task t left join tuskline.queue q on q.lambda = t.lambda and q.priority = t.priority
    where t.id = any (p_ids) and t.id between v_first and v_last and not coalesce(not q.is_full
      and tuskline.is_fresh(t.id, v_drawn, t.created_at, t.next_trigger_at, p_now) and tuskline.is_direct(
            t.status, t.fence, t.attempt, t.crashes, t.flags, t.started_at, t.finished_at, t.scheduled_at, p_now,
            t.collection, t.payload, q.max_payload_bytes, t.ordering_key, t.limit_key, t.fairness_key, t.unique_key), false)
    order by p_numbers[width_bucket(t.id, p_ids)];
  if exists (select from tuskline.unique_rule) then p_ids := tuskline.join_keys(p_ids, p_now); end if;
  update tuskline.task t
     set status = 'new', next_trigger_at = greatest(coalesce(t.scheduled_at, p_now), p_now)
   where t.id = any (p_ids) and t.id between v_first and v_last and t.status = 'enqueued';
  p_ids := array(select unnest(p_ids) except select unnest(tuskline.join_lines(p_ids, p_now)));
  perform tuskline.add_timers(array_agg(t.id), array_agg(t.next_trigger_at), 'due', p_now)
     from tuskline.task t where t.id = any (p_ids) and t.id between v_first and v_last;
end $$;
comment on function tuskline.route_rest(timestamptz, bigint[], bigint[], bigint) is 'Parks rows that are due later, or refuses the statement.';

create or replace function tuskline.refuse_row(t tuskline.task, p_max_payload_bytes integer, p_is_full boolean, p_now timestamptz, p_where text)
returns void language plpgsql as $$
declare
  v_last bigint := case t.id >> 50 when 0 then pg_sequence_last_value('tuskline.task_seq')
                                   when 1 then pg_sequence_last_value('tuskline.future_seq') end;
begin
  if p_max_payload_bytes is null then
    perform tuskline.refuse('TK001', format('unknown_lambda: %L is not defined%s', left(t.lambda, 80), p_where),
      'define it: select tuskline.define_lambda(''...'')');
  elsif t.fence <> 0 or t.attempt <> 0 or t.crashes <> 0 or t.flags <> 0 or t.finished_at is not null or t.started_at is not null
     or t.status not in ('new', 'enqueued') or (t.status = 'new' and (t.scheduled_at is null or t.next_trigger_at is distinct from t.scheduled_at)) then
    perform tuskline.refuse('TK008', format('invalid_status: a task is born new or enqueued and unclaimed, got %s%s', t.status, p_where),
      'leave these columns to their defaults');
  elsif t.collection !~ '^[a-z][a-z0-9_]{0,62}$' then
    perform tuskline.refuse('TK002', format('invalid_name: collection must match [a-z][a-z0-9_]{0,62}, got %L%s', left(t.collection, 80), p_where));
  elsif not isfinite(t.scheduled_at) or t.scheduled_at > p_now + interval '10 years'
     or not isfinite(t.next_trigger_at) or t.next_trigger_at > p_now + interval '10 years' then
    perform tuskline.refuse('TK005', format('invalid_due: due time must be finite and at most 10 years ahead, got %s%s',
      coalesce(t.scheduled_at, t.next_trigger_at), p_where));
  elsif t.created_at not between p_now - interval '1 day' and p_now + interval '1 minute' then
    perform tuskline.refuse('TK052', format('invalid_time: created_at must be now, within a day, got %s%s',
      t.created_at, p_where), 'leave the column to its default');
  elsif octet_length(t.ordering_key) not between 1 and 256 or octet_length(t.limit_key) not between 1 and 256 or octet_length(t.fairness_key) not between 1 and 256 or octet_length(t.unique_key) not between 1 and 256 then
    perform tuskline.refuse('TK019', format('invalid_key: a key must have 1 to 256 bytes, got %s%s',
      coalesce(octet_length(t.ordering_key), octet_length(t.limit_key), octet_length(t.fairness_key), octet_length(t.unique_key)), p_where));
  elsif t.ordering_key is not null and not exists (select from tuskline.rule r where r.lambda = t.lambda and r.kind = 'order' and r.dropped_at is null) then
    perform tuskline.refuse('TK019', format('invalid_key: lambda %s keeps no order%s', t.lambda, p_where), format('select tuskline.set_order(%L)', t.lambda));
  elsif t.unique_key is not null and not exists (select from tuskline.unique_rule r where r.lambda = t.lambda) then
    perform tuskline.refuse('TK019', format('invalid_key: lambda %s has no unique keys%s', t.lambda, p_where), format('select tuskline.set_unique(%L)', t.lambda));
  elsif p_is_full then
    perform tuskline.refuse('TK020', format('backlog_full: %s tasks of %s wait already%s', (select l.max_backlog from tuskline.lambda l where l.name = t.lambda), t.lambda, p_where),
      'try again later, or: select tuskline.alter_lambda(..., p_max_backlog => ...)');
  elsif octet_length(t.payload::text) > p_max_payload_bytes then
    perform tuskline.refuse('TK004', format('payload_too_large: at most %s bytes, got %s%s', p_max_payload_bytes, octet_length(t.payload::text), p_where));
  elsif strpos(t.payload::text, chr(92) || 'u0000') > 0 and not tuskline.is_storable(t.payload) then
    perform tuskline.refuse('TK003', format('invalid_payload: %su0000 cannot be stored in text%s', chr(92), p_where));
  elsif t.id is not null and not coalesce(
      t.id > 0 and t.id <= v_last and t.id >> 24 = v_last >> 24, false) then
    perform tuskline.check_id(t.id, v_last, p_where);
  end if;
end $$;
comment on function tuskline.refuse_row(tuskline.task, integer, boolean, timestamptz, text) is 'Raises what is wrong with a row of task, if anything.';

-- check_id: an id that a caller gives must have been issued, or the sequence comes to it later and that
-- insert fails. A segment that is sealed is not read again, so that a task in it would be lost. The row's
-- lock waits for a look that may seal it, and goes at once: a later look finds the caller's own lock of
-- the partition (late_writers), which goes when its transaction ends.
create or replace function tuskline.check_id(p_id bigint, p_last bigint, p_where text)
returns void language plpgsql as $$
declare
  v_open boolean;
begin
  if p_id < 1 or p_id > p_last or p_last is null then
    perform tuskline.refuse('TK051', format('invalid_id: the sequences of tuskline have not issued %s%s',
      p_id, p_where), 'leave the column out, or insert its default');
  end if;
  begin
    select g.sealed_at is null into v_open
      from tuskline.segment g where g.segment_no = tuskline.segment_of(p_id) for share;
    raise exception using errcode = 'TK051';
  exception when sqlstate 'TK051' then null;
  end;
  if v_open is distinct from true or exists (select from tuskline.task_kept k where k.id = p_id) then
    perform tuskline.refuse('TK051', format('invalid_id: the segment of %s is sealed%s', p_id, p_where),
      'leave the column out, or insert its default');
  end if;
end $$;
comment on function tuskline.check_id(bigint, bigint, text) is
  'Refuses (TK051) an id that is not issued (p_last: the last of its sequence), or whose segment is sealed.';

-- A payload with the six characters that JSON writes for U+0000 may still be harmless text (an escaped backslash before
-- them); only the jsonb parser tells. Reached only by payloads that contain them.
create or replace function tuskline.is_storable(p_payload json) returns boolean language plpgsql immutable as $$
begin
  perform p_payload::jsonb;
  return true;
exception when untranslatable_character then
  return false;
end $$;
comment on function tuskline.is_storable(json) is 'False for JSON that holds a NUL character.';
