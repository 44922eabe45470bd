-- Replaces with U+FFFD what PostgreSQL cannot store in text: a NUL, or half a surrogate pair.
--
-- Otherwise one such error text would make the server refuse the whole batch, at each repetition.
-- JSON contains them as escapes only. An even number of backslashes may precede the escape.
create or replace function tuskline_core.storable(p_notes json) returns json
language sql immutable as $$
  select case when p_notes::text !~* replace('//u(0000|d[89a-f])', '/', chr(92)) then p_notes else
    regexp_replace(regexp_replace(p_notes::text,
      replace('(?<!//)((?:////)*)(?://u0000|//ud[89ab][0-9a-f]{2}(?!//ud[c-f][0-9a-f]{2}))',
              '/', chr(92)), replace('/1//ufffd', '/', chr(92)), 'gi'),
      replace('(?<!//)(?<!//ud[89ab][0-9a-f]{2})((?:////)*)//ud[c-f][0-9a-f]{2}', '/', chr(92)),
      replace('/1//ufffd', '/', chr(92)), 'gi')::json end
$$;
comment on function tuskline_core.storable(json) is
  'Replaces with U+FFFD what PostgreSQL cannot store in text.';

create or replace function tuskline_core.backoff(
  p_attempt smallint, p_base interval, p_cap interval, p_after_ms bigint)
returns interval language sql volatile as $$
  select case when p_after_ms is not null
              then least(p_after_ms, 315360000000) * interval '1 millisecond'
              else least(p_cap, p_base * power(2, least(p_attempt - 1, 30)))
                     * (0.75 + 0.5 * random()) end
$$;
comment on function tuskline_core.backoff(smallint, interval, interval, bigint) is
  'Delay before the next attempt: p_after_ms, at most 10 years. Without it, the base doubled per '
  'attempt, capped, with 25 % jitter.';

create or replace function tuskline_core.fingerprint(p_error_class text, p_message text)
returns text language sql immutable as $$
  select left(md5(p_error_class || ':'
                  || regexp_replace(left(p_message, 1024), '[0-9]+', '#', 'g')), 12)
$$;
comment on function tuskline_core.fingerprint(text, text) is
  'Equal for failures of one class whose messages differ in numbers only (first 1,024 characters).';

-- Computes the status and the delay that each result leads to: two arrays parallel to the ids.
--
-- A delay is null unless the task runs again. Only the tasks that may run again are read.
create or replace function tuskline_core.outcomes(
  p_ids bigint[], p_status text[], p_after_ms bigint[],
  out outcome tuskline.status[], out delay interval[])
language plpgsql as $$
begin
  select array_agg(r.outcome order by r.nth),
         array_agg(
           case when r.outcome in ('retriable_failure', 'new')
                then tuskline_core.backoff(r.attempt, r.retry_base, r.retry_cap, r.after_ms) end
           order by r.nth)
    into outcome, delay
    from (select i.nth, t.attempt, l.retry_base, l.retry_cap, i.after_ms,
                 case when i.status = 'snoozed' then 'new'
                      when i.status = 'retriable_failure' and t.attempt >= l.max_attempts
                        then 'dead'
                      else i.status::tuskline.status end as outcome
            from unnest(p_ids, p_status, p_after_ms)
                   with ordinality as i (id, status, after_ms, nth)
                 left join lateral (
                   select a.attempt, a.lambda from tuskline.task a
                    where a.id = case when i.status in ('retriable_failure', 'snoozed')
                                      then i.id end) t on true
                 left join tuskline.lambda l on l.name = t.lambda) r;
end $$;
comment on function tuskline_core.outcomes(bigint[], text[], bigint[]) is
  'Status and delay that each result leads to, in the order of the ids.';

-- Refuses results with an unknown status or field: a misspelt field would be lost silently.
create or replace function tuskline_core.check_notes(p_notes json) returns void
language plpgsql immutable as $$
declare
  v_wrong text := (
    select coalesce('unknown field ' || quote_literal(left(f.name, 80)),
             format('status must be success, retriable_failure, snoozed, fatal_failure '
                    'or cancelled, got %L', n.note->>'status'))
      from json_array_elements(p_notes) as n (note)
           left join lateral (
             select k.name from json_object_keys(n.note) as k (name)
              where k.name not in ('task', 'fence', 'status', 'error_class', 'message', 'after_ms',
                                   'output') limit 1) f on true
     where f.name is not null or coalesce(n.note->>'status', '') not in (
       'success', 'retriable_failure', 'snoozed', 'fatal_failure', 'cancelled')
     limit 1);
begin
  if v_wrong is not null then
    perform tuskline_core.refuse('TK012', 'invalid_result: ' || v_wrong,
      case when v_wrong like 'unknown field%' then
        'there are task, fence, status, error_class, message, after_ms and output' end);
  end if;
end $$;
comment on function tuskline_core.check_notes(json) is
  'Refuses (TK012) results with an unknown status, or with a field that nothing reads.';
