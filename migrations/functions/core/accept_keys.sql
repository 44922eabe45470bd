-- Accepts the unique keys of tasks that are about to be scheduled, or were just inserted.
--
-- It calls the door hold_key once for each key. If tasks of one batch share a key, the first one
-- counts. The arrays are parallel; a null key is none.
-- Returns the task that holds the key of each task: the task itself or another one.
-- Returns a mistake with the number of its task; the caller refuses it.
-- Rights are checked here: a held key may change another task, and then nothing is inserted.
-- Locks: keys in sorted order, so two batches do not deadlock.
create or replace function tuskline_core.accept_keys(
  p_ids bigint[], p_lambdas text[], p_keys text[], p_due timestamptz[], p_payloads json[],
  p_now timestamptz,
  out holders bigint[], out mistake text, out task tuskline.task, out number bigint, out said text)
language plpgsql as $$
declare
  r     record;
  v     record;
  v_row tuskline.task;
begin
  if tuskline_core.rights_in_use() then
    perform tuskline_core.need_each(array(
      select u.lambda from unnest(p_lambdas, p_keys) as u (lambda, key)
       where u.key is not null), 'schedule');
  end if;
  holders := p_ids;
  for r in select u.* from unnest(p_ids, p_lambdas, p_keys, p_due, p_payloads)
                             with ordinality as u (id, lambda, key, due, payload, number)
            where u.key is not null order by u.lambda, u.key, u.number loop
    if r.lambda is distinct from v_row.lambda or r.key <> v_row.unique_key then
      v := tuskline_core.hold_key(r.lambda, r.key, r.id, p_now);
      v_row.lambda := r.lambda;
      v_row.unique_key := r.key;
      v_row.payload := r.payload;
      case v.verdict
        when 'go', 'keep' then null;
        when 'replace' then
          mistake := tuskline_core.mistake_in_payload(r.payload,
            (select l.max_payload_bytes from tuskline.lambda l where l.name = r.lambda));
          perform tuskline_core.change_payload(v.holder, r.payload);
        when 'postpone' then
          perform tuskline_core.postpone_task(v.holder, coalesce(r.due, p_now), p_now);
        else
          mistake := v.verdict;
          said := format('is held by task %s, %s', v.holder, coalesce(v.status::text, 'gone'));
      end case;
    elsif v.rejects then
      mistake := 'duplicate';
      said := 'comes twice';
    end if;
    if mistake is not null then
      task := v_row;
      number := r.number;
      return;
    end if;
    holders[r.number] := v.holder;
  end loop;
end $$;
comment on function tuskline_core.accept_keys(
  bigint[], text[], text[], timestamptz[], json[], timestamptz) is
  'Gives unique keys to tasks. If a key is held, it does what the lambda says to the holder. '
  'Returns the holders, or the first mistake.';

create or replace function tuskline_core.change_payload(p_task bigint, p_payload json) returns void
language plpgsql as $$
begin
  update tuskline.task set payload = p_payload
   where id = p_task and status in ('new', 'enqueued', 'retriable_failure');
  if found then return; end if;
  update tuskline.task_kept set payload = p_payload
   where id = p_task and status in ('new', 'retriable_failure');
end $$;
comment on function tuskline_core.change_payload(bigint, json) is
  'Replaces the payload of a waiting task.';

-- Postpones a waiting task, as if it had been scheduled for the new time.
--
-- Its timer, its permits and its wait-list entries would wake it too early, so they are deleted.
create or replace function tuskline_core.postpone_task(
  p_task bigint, p_due timestamptz, p_now timestamptz) returns void
language plpgsql as $$
declare
  v_next timestamptz;
begin
  select next_trigger_at into v_next from tuskline.task
   where id = p_task and status in ('new', 'enqueued') for update;
  if not found then
    select next_trigger_at into v_next from tuskline.task_kept
     where id = p_task and status = 'new' for update;
  end if;
  if not found then return; end if;
  delete from tuskline.timer where due = v_next and task_id = p_task and kind = 'due';
  update tuskline.task
     set status = 'new', scheduled_at = p_due, next_trigger_at = greatest(p_due, p_now)
   where id = p_task;
  if not found then
    update tuskline.task_kept
       set scheduled_at = p_due, next_trigger_at = greatest(p_due, p_now) where id = p_task;
  end if;
  perform tuskline_core.on_postpone(array[p_task], p_now);
  perform tuskline_core.add_timers(array[p_task], array[greatest(p_due, p_now)], 'due', p_now);
end $$;
comment on function tuskline_core.postpone_task(bigint, timestamptz, timestamptz) is
  'Postpones a waiting task: new or enqueued -> new, due at that time.';
