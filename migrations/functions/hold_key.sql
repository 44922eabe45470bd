-- hold_key: who holds a unique key from now on: the task that is being scheduled (p_task), or the one that
-- holds it already, to which the lambda's outcome is done. Nothing gives a key back: whether its holder still
-- holds it is decided here, by the state of its task, so that a claim or a result pays nothing for keys, and
-- no later change of a task can collide with another.
-- Two that schedule one key at the same time wait for each other in the key's row, also for one that has not
-- committed. A holder that waits is locked (FOR SHARE) until the caller's transaction ends, so that no worker
-- begins it before it can see what that transaction commits; claims step around it meanwhile.
create or replace function tuskline.hold_key(
  p_lambda text, p_key text, p_task bigint, p_due timestamptz, p_payload json, p_now timestamptz, p_where text default '')
returns bigint language plpgsql as $$
declare
  r tuskline.unique_rule;
  k tuskline.unique_key;
  v_row     tuskline.task;
  v_mistake text;
  v_status tuskline.status;
  v_waits  boolean;
begin
  select * into r from tuskline.unique_rule where lambda = p_lambda;
  v_row.lambda := p_lambda; v_row.unique_key := p_key; v_row.payload := p_payload;
  v_mistake := case
    when not exists (select from tuskline.lambda l where l.name = p_lambda) then 'unknown_lambda'
    when not tuskline.is_key(p_key) then 'invalid_key'
    when r.lambda is null then 'no_unique_keys'
    when r.outcome = 'replace' then tuskline.mistake_in_payload(p_payload,
      (select l.max_payload_bytes from tuskline.lambda l where l.name = p_lambda))
  end;
  if v_mistake is not null then perform tuskline.refuse_task(v_mistake, v_row, p_where); end if;
  loop
    insert into tuskline.unique_key as u (lambda, key, task_id, scope, until) values (p_lambda, p_key, p_task, r.scope, p_now + r.period)
    on conflict (lambda, key) do nothing;
    if found then return p_task; end if;
    select * into k from tuskline.unique_key where lambda = p_lambda and key = p_key for update;
    continue when not found;
    if k.task_id = p_task then return p_task; end if;
    select t.status into v_status from tuskline.task t
     where t.id = k.task_id and t.status in ('new', 'enqueued', 'retriable_failure') for share;
    if not found then select t.status into v_status from tuskline.task_kept t where t.id = k.task_id for share; end if;
    if not found then
      select t.status into v_status from tuskline.task t where t.id = k.task_id;
      continue when v_status in ('new', 'enqueued', 'retriable_failure'); -- it came back between the looks
    end if;
    v_waits := coalesce(v_status in ('new', 'enqueued', 'retriable_failure'), false);
    exit when case k.scope when 'queued' then v_waits when 'running' then v_waits or coalesce(v_status in ('claimed', 'processing'), false)
                           when 'period' then k.until > p_now else true end;
    update tuskline.unique_key set task_id = p_task, scope = r.scope, until = p_now + r.period where lambda = p_lambda and key = p_key;
    return p_task;
  end loop;
  if r.outcome = 'reject' then
    perform tuskline.refuse('TK027', format('duplicate: key %L of %s is held by task %s, %s%s', p_key, p_lambda, k.task_id, coalesce(v_status::text, 'gone'), p_where));
  elsif v_waits and r.outcome = 'replace' then
    update tuskline.task set payload = p_payload where id = k.task_id and status in ('new', 'enqueued', 'retriable_failure');
    if not found then update tuskline.task_kept set payload = p_payload where id = k.task_id and status in ('new', 'retriable_failure'); end if;
  elsif v_waits and r.outcome = 'postpone' then
    perform tuskline.postpone(k.task_id, coalesce(p_due, p_now), p_now);
  end if;
  return k.task_id;
end $$;
comment on function tuskline.hold_key(text, text, bigint, timestamptz, json, timestamptz, text) is 'Gives a unique key to a task, or says who holds it, after doing to that one what the lambda''s outcome says.';

-- hold_keys: the same for a batch, in the order of the keys, so that two batches do not wait for each other.
-- Of one batch the first of a key counts.
create or replace function tuskline.hold_keys(
  p_lambdas text[], p_keys text[], p_tasks bigint[], p_due timestamptz[], p_payloads json[], p_now timestamptz) returns bigint[]
language plpgsql as $$
declare
  r        record;
  v_lambda text;
  v_key    text;
  v_task   bigint;
begin
  for r in select u.*, tuskline.row_of(u.row, cardinality(p_tasks)) as place
             from unnest(p_lambdas, p_keys, p_tasks, p_due, p_payloads) with ordinality as u (lambda, key, task, due, payload, row)
            where u.key is not null order by u.lambda, u.key, u.row loop
    if r.lambda is distinct from v_lambda or r.key <> v_key then
      v_task := tuskline.hold_key(r.lambda, r.key, r.task, r.due, r.payload, p_now, r.place);
      v_lambda := r.lambda; v_key := r.key;
    elsif exists (select from tuskline.unique_rule u where u.lambda = r.lambda and u.outcome = 'reject') then
      perform tuskline.refuse('TK027', format('duplicate: key %L of %s comes twice%s', r.key, r.lambda, r.place));
    end if;
    p_tasks[r.row] := v_task;
  end loop;
  return p_tasks;
end $$;
comment on function tuskline.hold_keys(text[], text[], bigint[], timestamptz[], json[], timestamptz) is 'Who holds the key of each task of a batch: the task itself, or another.';

-- hold_unique_keys: for tasks that an INSERT or COPY has brought. Such a row stays: a task whose key
-- another task holds ends as dropped, and its failure names the holder.
create or replace function tuskline.hold_unique_keys(p_ids bigint[], p_now timestamptz)
returns tuskline.verdicts language plpgsql as $$
declare
  v         tuskline.verdicts;
  v_first   bigint := p_ids[1];
  v_last    bigint := p_ids[cardinality(p_ids)];
  v_ids     bigint[];
  v_holders bigint[];
begin
  select array_agg(t.id order by t.id),
         tuskline.hold_keys(array_agg(t.lambda order by t.id), array_agg(t.unique_key order by t.id),
           array_agg(t.id order by t.id), array_agg(t.scheduled_at order by t.id),
           array_agg(t.payload order by t.id), p_now)
    into v_ids, v_holders
    from tuskline.task t
   where t.id = any (p_ids) and t.id between v_first and v_last and t.unique_key is not null;
  select array_agg(h.id order by h.id), array_agg('dropped'::tuskline.status),
         array_agg('duplicate'::text),
         array_agg(format('task %s holds its unique key', h.holder) order by h.id)
    into v.doomed, v.outcome, v.error_class, v.message
    from unnest(v_ids, v_holders) as h (id, holder) where h.id <> h.holder;
  v.go := array(select id from unnest(p_ids) as id where id <> all (coalesce(v.doomed, '{}')) order by id);
  return v;
end $$;
comment on function tuskline.hold_unique_keys(bigint[], timestamptz) is
  'Verdict of the unique keys on tasks that were inserted: a task whose key another task holds is dropped.';

-- postpone: a task that waits gets another due time, and is from then on as one that was scheduled for it. What
-- pointed to it goes: a timer would wake it too early, and so would a turn in a line.
create or replace function tuskline.postpone(p_task bigint, p_due timestamptz, p_now timestamptz) returns void
language plpgsql as $$
declare
  v_next timestamptz;
begin
  select next_trigger_at into v_next from tuskline.task where id = p_task and status in ('new', 'enqueued') for update;
  if not found then select next_trigger_at into v_next from tuskline.task_kept where id = p_task and status = 'new' for update; end if;
  if not found then return; end if;
  delete from tuskline.timer where due = v_next and task_id = p_task and kind = 'due';
  update tuskline.task set status = 'new', scheduled_at = p_due, next_trigger_at = greatest(p_due, p_now) where id = p_task;
  if not found then update tuskline.task_kept set scheduled_at = p_due, next_trigger_at = greatest(p_due, p_now) where id = p_task; end if;
  if exists (select from tuskline.guarded) then
    delete from tuskline.parked where task_id = p_task;
    perform tuskline.give_up(array[p_task], null, p_now);
  end if;
  perform tuskline.add_timers(array[p_task], array[greatest(p_due, p_now)], 'due', p_now);
end $$;
comment on function tuskline.postpone(bigint, timestamptz, timestamptz) is 'new or enqueued -> new, due then.';
