-- settle: set_results for batches in which somebody failed or returned something. Still in id order,
-- segment by segment (settle_<n>). A retriable failure backs off (base doubled each attempt, capped, 25 %
-- jitter both ways); after max_attempts it is dead; if somebody asked to cancel, cancelled. A snoozed task is
-- new again, due after_ms from now, as if this attempt had not been. What a batch
-- has none of, retries, failures or outputs, costs it nothing.
create or replace function tuskline.settle(
  p_executor bigint, p_tasks bigint[], p_fences bigint[], p_notes json, p_now timestamptz)
returns bigint[] language plpgsql as $$
declare
  v_ids     bigint[];
  v_fences  bigint[];
  v_status  text[];
  v_class   text[];
  v_message text[];
  v_after   bigint[];
  v_output  json[];
  v_outputs boolean;
  v_outcome tuskline.status[];
  v_delay   interval[];
  v_done    tuskline.ended;
  v_due     timestamptz;
begin
  if p_notes is not null then
    p_notes := tuskline.storable(p_notes);
    perform tuskline.check_notes(p_notes);
  end if;
  select array_agg(r.id), array_agg(r.fence), array_agg(r.status),
         array_agg(r.error_class), array_agg(r.message),
         array_agg(r.after_ms), array_agg(r.output), bool_or(r.output is not null)
    into v_ids, v_fences, v_status, v_class, v_message, v_after, v_output, v_outputs
    from (select u.id, u.fence, 'success' as status, null as error_class, null as message, null::bigint as after_ms, null::json as output
            from unnest(p_tasks, p_fences) as u (id, fence)
          union all
          select n.task, n.fence, tuskline.check_outcome(n.status), n.error_class, n.message, n.after_ms, n.output
            from json_to_recordset(p_notes) as n (task bigint, fence bigint, status text, error_class text, message text, after_ms bigint, output json)
          order by 1, 2) r;
  if v_status && '{retriable_failure,snoozed}' then
    select o.outcome, o.delay into v_outcome, v_delay from tuskline.outcomes(v_ids, v_fences, v_status, v_after) o;
  else
    v_outcome := v_status::tuskline.status[];
  end if;
  v_done := tuskline.end_attempts(v_ids, v_fences, v_outcome, v_delay, p_now);
  if v_outcome && '{retriable_failure,new}' then
    with w as (
      insert into tuskline.timer (due, task_id)
      select p_now + v_delay[d.at], d.id from (select id, width_bucket(id, v_ids) as at from unnest(v_done.task_id) as id) d
       where v_outcome[d.at] in ('retriable_failure', 'new') returning due)
    select min(w.due) into v_due from w;
  end if;
  if v_outcome && '{retriable_failure,fatal_failure,dead}' then
    insert into tuskline.task_failure (task_id, fence, attempt, executor_id, error_class, message, fingerprint, failed_at, outcome, started_at)
    select d.id, v_fences[d.at], d.attempt, p_executor, coalesce(left(v_class[d.at], 80), 'error'), coalesce(left(v_message[d.at], 8192), ''),
           tuskline.fingerprint(coalesce(v_class[d.at], 'error'), coalesce(v_message[d.at], '')), p_now, v_outcome[d.at], d.started_at
      from (select u.id, u.attempt, u.started_at, width_bucket(u.id, v_ids) as at
              from unnest(v_done.task_id, v_done.attempt, v_done.started_at) as u (id, attempt, started_at)) d
     where v_outcome[d.at] in ('retriable_failure', 'fatal_failure', 'dead');
    if v_outcome && '{fatal_failure,dead}' then perform tuskline.bury(v_done.task_id); end if;
    if exists (select from tuskline.breaker) then perform tuskline.note_failures(v_done.task_id, p_now); end if;
  end if;
  if v_outputs then
    insert into tuskline.task_output (task_id, output, finished_at)
    select d.id, v_output[d.at], p_now from (select id, width_bucket(id, v_ids) as at from unnest(v_done.task_id) as id) d
     where v_outcome[d.at] = 'success' and v_output[d.at] is not null;
  end if;
  perform tuskline.heed_requests(v_done.task_id, p_now);
  perform tuskline.hand_on(v_done.task_id, p_now);
  if v_due is not null then perform tuskline.wake_timer(v_due, p_now); end if;
  if cardinality(v_done.task_id) = cardinality(v_ids) then return '{}'; end if;
  perform tuskline.witness();
  -- Refused: what did not change now and does not already say what this result says.
  return array(select r.id from unnest(v_ids, v_fences, v_status) as r (id, fence, status)
    where r.id <> all (coalesce(v_done.task_id, '{}')) and not exists (select from tuskline.task t
      where t.id = r.id and t.fence = r.fence and (t.status::text = r.status or r.status = 'retriable_failure' and t.status = 'dead'
        or r.status = 'snoozed' and t.status = 'new' and t.fence > 0)));
end $$;
comment on function tuskline.settle(bigint, bigint[], bigint[], json, timestamptz) is 'set_results for batches with failures or outputs.';

-- end_attempts: what each result makes of its task, segment by segment like take; the ids are sorted, the
-- other arrays beside them. Returns the tasks that it changed, which attempt that was and
-- when it began.
create or replace function tuskline.make_settle(p_segment bigint) returns void
language plpgsql as $make$
declare
  v_name text := format('tuskline.settle_%s(bigint[], bigint[], tuskline.status[], interval[], timestamptz)', p_segment);
begin
  execute format($text$
create or replace function tuskline.settle_%1$s(
  p_ids bigint[], p_fences bigint[], p_outcome tuskline.status[], p_delay interval[], p_now timestamptz) returns tuskline.ended
language plpgsql as $$
declare
  v tuskline.ended;
begin
  with u as (
    update tuskline.task_%1$s t
       set status = p_outcome[width_bucket(t.id, p_ids)], crashes = 0,
           attempt = t.attempt - (p_outcome[width_bucket(t.id, p_ids)] = 'new')::integer,
           finished_at = case when p_delay[width_bucket(t.id, p_ids)] is null then p_now end,
           next_trigger_at = p_now + p_delay[width_bucket(t.id, p_ids)]
     where t.id = any (p_ids) and t.fence = p_fences[width_bucket(t.id, p_ids)] and t.status in ('claimed', 'processing')
    returning t.id, t.attempt, t.started_at)
  select array_agg(u.id), array_agg(u.attempt), array_agg(u.started_at) into v.task_id, v.attempt, v.started_at from u;
  return v;
end $$ $text$, p_segment);
  perform tuskline.finish_leaf_verb(v_name,
    format('claimed or processing -> what the lambda said, for tasks of segment %s.', p_segment));
end $make$;
comment on function tuskline.make_settle(bigint) is 'Makes settle_<segment_no>, or makes it anew.';

create or replace function tuskline.end_attempts(
  p_ids bigint[], p_fences bigint[], p_outcome tuskline.status[], p_delay interval[], p_now timestamptz)
returns tuskline.ended language plpgsql as $$
declare
  v         tuskline.ended;
  s         tuskline.ended;
  r         record;
  v_from    integer := 1;
  v_to      integer;
  v_segment bigint;
begin
  while v_from <= cardinality(p_ids) loop
    v_segment := tuskline.segment_of(p_ids[v_from]);
    v_to := width_bucket(p_ids[v_from] | 16777215, p_ids); -- the last id of the segment
    if to_regclass('tuskline.task_' || v_segment) is not null then
      execute 'select tuskline.settle_' || v_segment || '($1, $2, $3, $4, $5) as ended' into r
        using p_ids[v_from:v_to], p_fences[v_from:v_to], p_outcome[v_from:v_to], p_delay[v_from:v_to], p_now;
      s := r.ended;
      v.task_id := v.task_id || s.task_id;
      v.attempt := v.attempt || s.attempt;
      v.started_at := v.started_at || s.started_at;
    end if;
    v_from := v_to + 1;
  end loop;
  return v;
end $$;
comment on function tuskline.end_attempts(bigint[], bigint[], tuskline.status[], interval[], timestamptz) is
  'claimed or processing -> what the lambda said, in id order, if the fence is right.';

-- heed_requests: whoever asks a task to stop holds its row's lock until it commits. A verb that waited
-- for that lock in one statement has read the requests as they were before; it looks once more, now
-- that it holds the row itself: a request is visible here or comes too late. What would run again is
-- cancelled after all. For tasks that the caller's transaction has just changed.
create or replace function tuskline.heed_requests(p_ids bigint[], p_now timestamptz) returns void
language plpgsql as $$
begin
  if not exists (select from tuskline.cancellation) then return; end if;
  with s as (
    select t.id, t.fence, t.next_trigger_at from tuskline.cancellation c join tuskline.task t on t.id = c.task_id and t.fence = c.fence
     where c.task_id = any (p_ids) and t.status in ('retriable_failure', 'new')
  ), u as (
    update tuskline.task t set status = 'cancelled', finished_at = p_now, next_trigger_at = null from s where t.id = s.id
  ), m as (delete from tuskline.timer m using s where m.due = s.next_trigger_at and m.task_id = s.id
  ), f as (delete from tuskline.task_failure f using s where f.task_id = s.id and f.fence = s.fence)
  delete from tuskline.cancellation c where c.task_id = any (p_ids);
end $$;
comment on function tuskline.heed_requests(bigint[], timestamptz) is
  'Cancels tasks that were just left to a retry, if a request to stop them came in between.';

-- storable: a NUL or half a surrogate pair in one error text would make the server refuse the whole
-- batch, again and again. JSON has them as escapes only; an even number of backslashes may precede.
create or replace function tuskline.storable(p_notes json) returns json language sql immutable as $$
  select case when p_notes::text !~* replace('//u(0000|d[89a-f])', '/', chr(92)) then p_notes else
    regexp_replace(regexp_replace(p_notes::text,
      replace('(?<!//)((?:////)*)(?://u0000|//ud[89ab][0-9a-f]{2}(?!//ud[c-f][0-9a-f]{2}))',
              '/', chr(92)), replace('/1//ufffd', '/', chr(92)), 'gi'),
      replace('(?<!//)(?<!//ud[89ab][0-9a-f]{2})((?:////)*)//ud[c-f][0-9a-f]{2}', '/', chr(92)),
      replace('/1//ufffd', '/', chr(92)), 'gi')::json end
$$;
comment on function tuskline.storable(json) is 'Notes with U+FFFD in place of what PostgreSQL cannot store in text.';

create or replace function tuskline.backoff(p_attempt smallint, p_base interval, p_cap interval, p_after_ms bigint)
returns interval language sql volatile as $$
  select case when p_after_ms is not null then least(p_after_ms, 315360000000) * interval '1 millisecond'
         else least(p_cap, p_base * power(2, least(p_attempt - 1, 30))) * (0.75 + 0.5 * random()) end
$$;
comment on function tuskline.backoff(smallint, interval, interval, bigint) is
  'Delay before the next attempt: what the lambda asked for (ms), else base doubled per attempt, capped, with 25 % jitter.';

create or replace function tuskline.fingerprint(p_error_class text, p_message text) returns text
language sql immutable as $$
  select left(md5(p_error_class || ':' || regexp_replace(left(p_message, 1024), '[0-9]+', '#', 'g')), 12)
$$;
comment on function tuskline.fingerprint(text, text) is 'Equal for failures of one class whose messages differ in digits only.';

-- outcomes: what each result makes of its task: two arrays beside the sorted ids. A delay stands only
-- where the task will be tried again.
create or replace function tuskline.outcomes(
  p_ids bigint[], p_fences bigint[], p_status text[], p_after_ms bigint[], out outcome tuskline.status[], out delay interval[])
language plpgsql as $$
begin
  select array_agg(r.outcome),
         array_agg(case when r.outcome in ('retriable_failure', 'new') then tuskline.backoff(r.attempt, r.retry_base, r.retry_cap, r.after_ms) end)
    into outcome, delay
    from (select i.id, i.fence, t.attempt, l.retry_base, l.retry_cap, i.after_ms,
                 case when i.status not in ('retriable_failure', 'snoozed') then i.status::tuskline.status
                      when exists (select from tuskline.cancellation c where c.task_id = i.id and c.fence = i.fence) then 'cancelled'
                      when i.status = 'snoozed' then 'new'
                      when t.attempt >= l.max_attempts then 'dead'
                      else 'retriable_failure' end as outcome
            from unnest(p_ids, p_fences, p_status, p_after_ms) as i (id, fence, status, after_ms)
                 left join lateral (select a.attempt, a.lambda from tuskline.task a where a.id = i.id) t on true
                 left join tuskline.lambda l on l.name = t.lambda
           order by i.id, i.fence) r;
end $$;
comment on function tuskline.outcomes(bigint[], bigint[], text[], bigint[]) is 'Status and delay that each result leads to, in the order of the ids.';

-- check_notes: a field that is misspelt would be lost without a word.
create or replace function tuskline.check_notes(p_notes json) returns void
language plpgsql immutable as $$
declare
  v_field text := (
    select k.field from json_array_elements(p_notes) as n (note), json_object_keys(n.note) as k (field)
     where k.field not in ('task', 'fence', 'status', 'error_class', 'message', 'after_ms', 'output')
     limit 1);
begin
  if v_field is not null then
    perform tuskline.refuse('TK012', format('invalid_result: unknown field %L', left(v_field, 80)),
      'there are task, fence, status, error_class, message, after_ms and output');
  end if;
end $$;
comment on function tuskline.check_notes(json) is 'Refuses (TK012) results with a field that nothing reads.';

create or replace function tuskline.check_outcome(p_status text) returns text language plpgsql immutable as $$
begin
  if p_status in ('success', 'retriable_failure', 'snoozed', 'fatal_failure', 'cancelled') then return p_status; end if;
  perform tuskline.refuse('TK012', format('invalid_result: status must be success, retriable_failure, snoozed, fatal_failure or cancelled, got %L', p_status));
end $$;
comment on function tuskline.check_outcome(text) is 'Refuses (TK012) results with an unknown status.';
