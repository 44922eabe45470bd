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
  v_status tuskline.status;
  v_waits  boolean;
begin
  if octet_length(p_key) not between 1 and 256 then
    perform tuskline.refuse('TK019', format('invalid_key: a key must have 1 to 256 bytes, got %s%s', octet_length(p_key), p_where));
  end if;
  select * into r from tuskline.unique_rule where lambda = p_lambda;
  if not found and not exists (select from tuskline.lambda l where l.name = p_lambda) then
    perform tuskline.refuse('TK001', format('unknown_lambda: %L is not defined%s', left(p_lambda, 80), p_where), 'define it: select tuskline.define_lambda(''...'')');
  elsif not exists (select from tuskline.unique_rule u where u.lambda = p_lambda) then
    perform tuskline.refuse('TK019', format('invalid_key: lambda %s has no unique keys%s', p_lambda, p_where), format('select tuskline.set_unique(%L)', p_lambda));
  end if;
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
    perform tuskline.check_payload(p_lambda, p_payload, p_where);
    update tuskline.task set payload = p_payload where id = k.task_id and status in ('new', 'enqueued', 'retriable_failure');
    if not found then update tuskline.task_kept set payload = p_payload where id = k.task_id and status in ('new', 'retriable_failure'); end if;
  elsif v_waits and r.outcome = 'postpone' then
    perform tuskline.postpone(k.task_id, coalesce(p_due, p_now), p_now);
  end if;
  return k.task_id;
end $$;
comment on function tuskline.hold_key(text, text, bigint, timestamptz, json, timestamptz, text) is 'Gives a unique key to a task, or says who holds it, after doing to that one what the lambda''s outcome says.';

-- check_payload: of a task that is inserted, route_rest checks it.
create or replace function tuskline.check_payload(p_lambda text, p_payload json, p_where text default '') returns void
language plpgsql stable as $$
declare
  v_most integer := (select l.max_payload_bytes from tuskline.lambda l where l.name = p_lambda);
begin
  if octet_length(p_payload::text) > v_most then
    perform tuskline.refuse('TK004', format('payload_too_large: at most %s bytes, got %s%s', v_most, octet_length(p_payload::text), p_where));
  elsif strpos(p_payload::text, chr(92) || 'u0000') > 0 and not tuskline.is_storable(p_payload) then
    perform tuskline.refuse('TK003', format('invalid_payload: %su0000 cannot be stored in text%s', chr(92), p_where));
  end if;
end $$;
comment on function tuskline.check_payload(text, json, text) is 'Refuses (TK003, TK004) a payload that a lambda''s tasks cannot have.';

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

-- join_keys: what came by a plain INSERT or COPY. A row that was inserted stays one: who is not the holder
-- of its key ends as dropped, and its failure names the holder.
create or replace function tuskline.join_keys(p_ids bigint[], p_now timestamptz) returns bigint[]
language plpgsql as $$
declare
  v_first bigint := p_ids[1];
  v_last  bigint := p_ids[cardinality(p_ids)];
  v_ids   bigint[];
  v_given bigint[];
begin
  select array_agg(t.id order by t.id), tuskline.hold_keys(array_agg(t.lambda order by t.id), array_agg(t.unique_key order by t.id), array_agg(t.id order by t.id),
           array_agg(t.scheduled_at order by t.id), array_agg(t.payload order by t.id), p_now)
    into v_ids, v_given
    from tuskline.task t where t.id = any (p_ids) and t.id between v_first and v_last and t.unique_key is not null;
  if v_ids is not distinct from v_given then return p_ids; end if;
  select array_agg(h.id), array_agg(h.holder) into v_ids, v_given
    from unnest(v_ids, v_given) as h (id, holder) where h.id <> h.holder;
  perform tuskline.end_waiting(v_ids, array_fill('dropped'::tuskline.status, array[cardinality(v_ids)]),
    array_fill('duplicate'::text, array[cardinality(v_ids)]),
    array(select format('task %s holds its unique key', u.holder)
            from unnest(v_given) with ordinality as u (holder, nth) order by u.nth), p_now);
  return array(select i from unnest(p_ids) as i where i <> all (v_ids) order by i);
end $$;
comment on function tuskline.join_keys(bigint[], timestamptz) is 'Of tasks that were inserted, those whose unique key nobody else holds; the others are dropped.';

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
