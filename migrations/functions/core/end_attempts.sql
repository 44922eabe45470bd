-- Ends attempts: claimed or processing -> the outcome of each, if its fence is current.
--
-- This is the only way out of claimed and processing. Results, complete, release and return_crashed
-- call it.
-- p_ids: in id order; the other arrays are parallel to it.
-- p_outcome: the status to which each attempt leads; null: all succeed. Workers mostly report
--   successes, so these have a statement of their own, which returns nothing. With the general
--   statement, a drain is 12 % slower.
-- p_delay: time until the next action on the task; null for a final outcome.
-- p_charge: null for a result, which resets crashes. Otherwise the attempt does not count, and
--   crashes grows by this number. A snoozed attempt (outcome new) does not count either.
-- A task with a cancel request (flag 2) is cancelled if it would run again or has no attempts left.
-- Returns ended.flagged: tasks whose end may have effects. They have flags, or another task or a
-- session waits for them.
--
-- Race: this statement locks the row that holds the flag. So it sees a cancel request, or the
-- request finds the attempt ended.
-- Race: waiting tasks and sessions are read after the tasks are locked. A dependent that found its
-- parent running has committed by then.
-- Planner: it goes segment by segment in id order, like take. The function end_<n> of each segment
-- has its own plan. width_bucket finds a task's index in the sorted array.
create or replace function tuskline_core.end_attempts(
  p_ids bigint[], p_fences bigint[], p_outcome tuskline.status[], p_delay interval[],
  p_charge smallint[], p_now timestamptz)
returns tuskline_core.ended language plpgsql as $$
declare
  v          tuskline_core.ended;
  s          tuskline_core.ended;
  r          record;
  v_from     integer := 1;
  v_to       integer;
  v_segment  bigint;
  v_asked    boolean;
  v_guarded  boolean;
  v_followed boolean;
  v_ids      bigint[];
begin
  v.applied := 0;
  while v_from <= cardinality(p_ids) loop
    v_segment := tuskline_core.segment_of(p_ids[v_from]);
    v_to := width_bucket(p_ids[v_from] | 16777215, p_ids); -- the last id of the segment
    if to_regclass('tuskline_core.task_' || v_segment) is not null then
      execute 'select tuskline_core.end_' || v_segment || '($1, $2, $3, $4, $5, $6) as ended' into r
        using p_ids[v_from:v_to], p_fences[v_from:v_to], p_outcome[v_from:v_to],
              p_delay[v_from:v_to], p_charge[v_from:v_to], p_now;
      s := r.ended;
      v.applied := v.applied + s.applied;
      v.task_id := v.task_id || s.task_id;
      v.status := v.status || s.status;
      v.attempt := v.attempt || s.attempt;
      v.started_at := v.started_at || s.started_at;
      v.flagged := v.flagged || s.flagged;
    end if;
    v_from := v_to + 1;
  end loop;
  if p_outcome is null then v.task_id := p_ids; end if;
  select exists (select from tuskline.cancellation), exists (select from tuskline_core.policy_flag),
         exists (select from tuskline_core.followed_lambda)
    into v_asked, v_guarded, v_followed;
  if v_asked then
    delete from tuskline.cancellation c
     where c.task_id = any (p_ids) and c.fence = p_fences[width_bucket(c.task_id, p_ids)];
  end if;
  if v_asked and p_outcome is not null then
    -- The same as count_ends(), without a call. The worker counts the results that it reports as
    -- cancelled.
    insert into tuskline_core.event_count (at, lambda, priority, event, events, total_ms)
    select p_now, t.lambda, t.priority, 'cancelled', count(*), 0
      from tuskline.task t
     where t.id between v.task_id[1] and v.task_id[cardinality(v.task_id)]
       and t.id = any (v.task_id)
       and t.status = 'cancelled' and p_outcome[width_bucket(t.id, p_ids)] <> 'cancelled'
     group by t.lambda, t.priority;
  end if;
  if v_followed or v_guarded and p_outcome is null then
    select v.flagged || array_agg(t.id) filter (
             where p_outcome is null and t.flags & 7 > 0 and t.status = 'success'),
           array_agg(t.id) filter (where exists (
             select from tuskline_core.followed_lambda f where f.lambda = t.lambda))
      into v.flagged, v_ids
      from tuskline.task t
     where t.id = any (v.task_id)
       and t.id between v.task_id[1] and v.task_id[cardinality(v.task_id)];
    if v_ids is not null then
      v.flagged := array(
        select unnest(v.flagged) union select unnest(tuskline_core.followed_tasks(v_ids))
         order by 1);
    end if;
  end if;
  return v;
end $$;
comment on function tuskline_core.end_attempts(
  bigint[], bigint[], tuskline.status[], interval[], smallint[], timestamptz) is
  'Ends attempts with the outcome of each, if its fence is current. '
  'The only way out of claimed and processing.';

create or replace function tuskline_core.make_end(p_segment bigint) returns void
language plpgsql as $make$
declare
  v_name text := format('tuskline_core.end_%s(bigint[], bigint[], tuskline.status[], interval[], '
    'smallint[], timestamptz)', p_segment);
begin
  execute format($text$
create or replace function tuskline_core.end_%1$s(
  p_ids bigint[], p_fences bigint[], p_outcome tuskline.status[], p_delay interval[],
  p_charge smallint[], p_now timestamptz)
returns tuskline_core.ended language plpgsql as $$
declare
  v tuskline_core.ended;
begin
  if p_outcome is null then
    update tuskline_core.task_%1$s t
       set status = 'success', finished_at = p_now, next_trigger_at = null, crashes = 0
     where t.id = any (p_ids) and t.fence = p_fences[width_bucket(t.id, p_ids)]
       and t.status in ('claimed', 'processing');
    get diagnostics v.applied = row_count;
    return v;
  end if;
  with u as (
    update tuskline_core.task_%1$s t
       set status = case when t.flags & 2 > 0 and p_outcome[width_bucket(t.id, p_ids)]
                                in ('new', 'enqueued', 'retriable_failure', 'dead')
                         then 'cancelled' else p_outcome[width_bucket(t.id, p_ids)] end,
           finished_at = case when t.flags & 2 > 0 or p_delay[width_bucket(t.id, p_ids)] is null
                              then p_now end,
           next_trigger_at = case when t.flags & 2 = 0
                                  then p_now + p_delay[width_bucket(t.id, p_ids)] end,
           crashes = case when p_charge is null then 0
                          else t.crashes + p_charge[width_bucket(t.id, p_ids)] end,
           attempt = t.attempt - (p_charge is not null
                                  or p_outcome[width_bucket(t.id, p_ids)] = 'new')::integer
     where t.id = any (p_ids) and t.fence = p_fences[width_bucket(t.id, p_ids)]
       and t.status in ('claimed', 'processing')
    returning t.id, t.status, t.attempt, t.started_at, t.flags)
  select count(*), array_agg(u.id), array_agg(u.status), array_agg(u.attempt),
         array_agg(u.started_at), array_agg(u.id) filter (where u.flags & 7 > 0)
    into v.applied, v.task_id, v.status, v.attempt, v.started_at, v.flagged from u;
  return v;
end $$ $text$, p_segment);
  perform tuskline_core.finish_leaf_verb(v_name, format(
    'claimed or processing -> what the attempt led to, for tasks of segment %s.', p_segment));
end $make$;
comment on function tuskline_core.make_end(bigint) is 'Makes or replaces end_<segment_no>.';
