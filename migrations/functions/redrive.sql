-- redrive: dead letters return to their queues. What is asked becomes a row; store consumers let its tasks go
-- batch by batch (advance_redrives), so that a million of them hold nothing up. They go by way of gates and
-- limits, as every task that comes due. By lambda, or by ids, or both; narrower by fingerprint, collection
-- and time of death; at most so many, so many a second, carefully (canary), or one with another payload.
create or replace function tuskline.redrive(
  p_lambda      text             default null,
  p_fingerprint text             default null,
  p_ids         bigint[]         default null,
  p_collection  text             default null,
  p_before      timestamptz      default null,
  p_limit       bigint           default null,
  p_per_second  double precision default null,
  p_canary      boolean          default false,
  p_payload     text             default null,
  p_reason      text             default null)
returns bigint language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now     timestamptz := tuskline.clock();
  v_payload json := tuskline.json_of('payload', p_payload);
  v_redrive bigint;
begin
  perform tuskline.check_dead(p_lambda, p_ids, p_limit);
  perform tuskline.check_redrive(p_ids, p_per_second, p_canary, v_payload, p_reason);
  insert into tuskline.redrive (lambda, fingerprint, ids, collection, died_until, most, per_second, canary, payload, reason,
                                set_at, step, next_at, mark_fingerprint)
  values (p_lambda, p_fingerprint, p_ids, p_collection, least(v_now, p_before), p_limit, p_per_second, p_canary, v_payload, p_reason,
          v_now, case when p_canary then 1 end, v_now, coalesce(p_fingerprint, ''))
  returning redrive_id into v_redrive;
  insert into tuskline.audit (at, verb, subject, detail)
  values (v_now, 'redrive', coalesce(p_lambda, 'tasks ' || left(array_to_string(p_ids, ' '), 200)),
          concat_ws(' ', 'redrive', v_redrive, 'fingerprint ' || p_fingerprint, cardinality(p_ids) || ' ids', 'collection ' || p_collection,
                    'died before ' || p_before, 'at most ' || p_limit, p_per_second || '/s', case when p_canary then 'canary' end,
                    case when p_payload is not null then 'new payload' end, p_reason));
  perform tuskline.notify('tuskline_timer');
  return v_redrive;
end $$;
comment on function tuskline.redrive(text, text, bigint[], text, timestamptz, bigint, double precision, boolean, text, text) is
  'Lets dead letters begin anew, a batch at a time: of a lambda or by ids, by fingerprint, collection, time of death; at most p_limit, p_per_second; p_canary: 1, then 10, then the rest, stopping when they die again. Returns its number. Audited.';

-- A payload goes with one id, so that the overloads for json and jsonb take both first. They run as their
-- caller, and plans contain the call of the verb instead.
create or replace function tuskline.redrive(
  p_ids bigint[], p_payload json, p_reason text default null) returns bigint language sql as $$
  select tuskline.redrive(p_ids => p_ids, p_payload => p_payload::text, p_reason => p_reason)
$$;
comment on function tuskline.redrive(bigint[], json, text) is
  'Lets one dead letter begin anew with another payload. Audited.';

create or replace function tuskline.redrive(
  p_ids bigint[], p_payload jsonb, p_reason text default null) returns bigint language sql as $$
  select tuskline.redrive(p_ids => p_ids, p_payload => p_payload::text, p_reason => p_reason)
$$;
comment on function tuskline.redrive(bigint[], jsonb, text) is
  'Lets one dead letter begin anew with another payload. Audited.';

-- preview_redrive: what redrive would let go, with the same words.
create or replace function tuskline.preview_redrive(
  p_lambda      text        default null,
  p_fingerprint text        default null,
  p_ids         bigint[]    default null,
  p_collection  text        default null,
  p_before      timestamptz default null,
  p_limit       bigint      default null,
  out tasks bigint, out first_ids bigint[])
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now timestamptz := tuskline.clock();
  r     tuskline.redrive;
begin
  perform tuskline.check_dead(p_lambda, p_ids, p_limit);
  r.lambda := p_lambda; r.fingerprint := p_fingerprint; r.ids := p_ids; r.collection := p_collection;
  r.redrive_id := 0; r.died_until := least(v_now, p_before); r.mark_fingerprint := ''; r.mark_id := 0;
  select count(*), (array_agg(d.task_id order by d.place))[:10] into tasks, first_ids
    from (select o.task_id, o.place from tuskline.dead_of(r, v_now, 9223372036854775807) with ordinality as o (task_id, fingerprint, is_meant, place)
           where o.is_meant order by o.place limit p_limit) d;
end $$;
comment on function tuskline.preview_redrive(text, text, bigint[], text, timestamptz, bigint) is
  'How many dead letters a redrive with the same arguments would let go, and the first ten of them.';

create or replace function tuskline.stop_redrive(p_redrive bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now timestamptz := tuskline.clock();
begin
  perform from tuskline.redrive where redrive_id = p_redrive and ended_at is null for update;
  if not found then return false; end if;
  perform tuskline.end_redrive(p_redrive, v_now, 'stopped', 'by ' || session_user);
  return true;
end $$;
comment on function tuskline.stop_redrive(bigint) is 'Stops a redrive; what it has let go goes on. False: there is none of that number under way. Audited.';

create or replace function tuskline.end_redrive(p_redrive bigint, p_now timestamptz, p_outcome text, p_note text) returns void
language plpgsql as $$
begin
  update tuskline.redrive set ended_at = p_now, outcome = p_outcome, note = p_note, watched = '{}' where redrive_id = p_redrive;
  insert into tuskline.audit (at, verb, subject, detail)
  select p_now, 'end_redrive', 'redrive ' || p_redrive, concat_ws(' ', p_outcome, d.released, 'let go', p_note)
    from tuskline.redrive d where d.redrive_id = p_redrive;
end $$;
comment on function tuskline.end_redrive(bigint, timestamptz, text, text) is 'A redrive is over: done, died_again or stopped.';

create or replace function tuskline.check_dead(p_lambda text, p_ids bigint[], p_limit bigint) returns void
language plpgsql stable as $$
begin
  if p_lambda is not null and not exists (select from tuskline.lambda l where l.name = p_lambda) then
    perform tuskline.refuse('TK001', format('unknown_lambda: %L is not defined', left(p_lambda, 80)));
  elsif num_nonnulls(p_lambda, nullif(p_ids, '{}')) = 0 then
    perform tuskline.refuse('TK025', 'invalid_redrive: give a lambda or ids');
  elsif cardinality(p_ids) not between 1 and 10000 then
    perform tuskline.refuse('TK025', format('invalid_redrive: ids must be 1 to 10000, got %s', cardinality(p_ids)));
  elsif p_limit < 1 then
    perform tuskline.refuse('TK025', format('invalid_redrive: limit must be at least 1, got %s', p_limit));
  end if;
end $$;
comment on function tuskline.check_dead(text, bigint[], bigint) is 'Refuses (TK001, TK025) a choice of dead letters that makes no sense.';

create or replace function tuskline.check_redrive(
  p_ids bigint[], p_per_second double precision, p_canary boolean, p_payload json, p_reason text) returns void
language plpgsql stable as $$
declare
  v_most  integer;
  v_wrong text := case
    when p_per_second is not null and not (p_per_second between 0.001 and 1000000) then format('per_second must be 0.001 to 1000000, got %s', p_per_second)
    when p_canary is null then 'canary must be true or false, got null'
    when p_payload is not null and cardinality(p_ids) is distinct from 1 then 'a payload is for one task: give its id, and no other'
    when p_reason is null or p_reason !~ '[^[:space:]]' or length(p_reason) > 500 then 'reason must have 1 to 500 characters'
  end;
begin
  if v_wrong is not null then perform tuskline.refuse('TK025', 'invalid_redrive: ' || v_wrong); end if;
  if p_payload is null then return; end if;
  select l.max_payload_bytes into v_most from tuskline.tasks t join tuskline.lambda l on l.name = t.lambda where t.id = p_ids[1];
  if octet_length(p_payload::text) > v_most then
    perform tuskline.refuse('TK004', format('payload_too_large: at most %s bytes, got %s', v_most, octet_length(p_payload::text)));
  elsif strpos(p_payload::text, chr(92) || 'u0000') > 0 and not tuskline.is_storable(p_payload) then
    perform tuskline.refuse('TK003', 'invalid_payload: ' || chr(92) || 'u0000 cannot be stored in text');
  end if;
end $$;
comment on function tuskline.check_redrive(bigint[], double precision, boolean, json, text) is 'Refuses (TK003, TK004, TK025) a redrive that makes no sense.';
