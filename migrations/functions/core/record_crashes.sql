-- Records the crashes among the notes of a call: claimed or processing -> enqueued, dead, cancelled.
--
-- An attempt is crashed if the process that ran it ended, and the worker did not. The worker has
-- seen that the attempt had begun, so it is charged with one crash, and its number is not used up.
-- error_class is the cause: 'signal 11', 'exit 1', 'oom', 'memory'.
-- Returns refused, as record_results, and rest: the notes that are no crashes.
--
-- Locks: all tasks of the call, in id order, because its other results are recorded after this.
create or replace function tuskline_core.record_crashes(
  p_executor bigint, p_tasks bigint[], p_notes json, p_now timestamptz,
  out refused bigint[], out rest json)
language plpgsql as $$
declare
  v_ids    bigint[]; -- the crashes in the order (task, fence); the next three arrays are parallel
  v_fences bigint[];
  v_class  text[]; v_message text[];
  v_all    bigint[];
  v_held   bigint[];
begin
  p_notes := tuskline_core.storable(p_notes);
  perform tuskline_core.check_notes(p_notes);
  rest := (select json_agg(n) from json_array_elements(p_notes) as n
            where n->>'status' <> 'crashed');
  select array_agg(n.task), array_agg(n.fence), array_agg(n.error_class), array_agg(n.message)
    into v_ids, v_fences, v_class, v_message
    from (select r.* from json_to_recordset(p_notes)
                       as r (task bigint, fence bigint, status text, error_class text, message text)
           where r.status = 'crashed' order by r.task, r.fence) n;
  if v_ids is null then
    refused := '{}';
    return;
  end if;
  v_fences := tuskline_core.own_fences(p_executor, v_fences);
  v_all := array(
    select u.id from unnest(p_tasks) as u (id) where u.id is not null
    union select n.task from json_to_recordset(p_notes) as n (task bigint) order by 1);
  perform from tuskline.task t
    where t.id = any (v_all) and t.id between v_all[1] and v_all[cardinality(v_all)]
    order by t.id for update;
  v_held := array(
    select t.id from tuskline.task t
     where t.id = any (v_ids) and t.id between v_ids[1] and v_ids[cardinality(v_ids)]
       and t.fence = v_fences[width_bucket(t.id, v_ids)] and t.status in ('claimed', 'processing')
     order by t.id);
  if v_held <> '{}' then
    perform from tuskline_core.return_crashed(
      v_held, array_fill(p_executor, array[cardinality(v_held)]), array(
        select distinct t.fence from tuskline.task t where t.id = any (v_held)), p_now,
      v_ids, v_class, v_message);
  end if;
  -- Refused: it changed nothing now, and the attempt has not come back already.
  refused := array(
    select r.id from unnest(v_ids, v_fences) as r (id, fence)
     where r.id <> all (v_held)
       and not exists (select from tuskline.task t
                        where t.id = r.id and t.fence = abs(r.fence) and t.fence > 0
                          and t.status in ('enqueued', 'new', 'dead', 'cancelled')));
  if refused <> '{}' then perform tuskline_core.wait_for_standby(); end if;
end $$;
comment on function tuskline_core.record_crashes(bigint, bigint[], json, timestamptz) is
  'Records the crashes among the notes of a call. Returns the refused ones, and the other notes.';
