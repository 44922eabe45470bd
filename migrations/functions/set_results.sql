-- set_results: claimed or processing -> what the lambda said. The guard carries the attempt: a result
-- under another fence, or for a task that is finished, changes nothing and comes back as refused, a
-- value, once the standby agrees (witness). Sending the same result twice is harmless. p_tasks and p_fences: plain successes. p_notes:
-- everything that has something to say: a JSON array of {task, fence, status, error_class, message,
-- after_ms, output} with status success, retriable_failure, snoozed, fatal_failure or cancelled.
-- p_done_leases: leases of which every task is settled by this. It waits for rows that others have
-- locked, as long as the caller's lock_timeout allows; exchange steps around them.
-- record_results is what set_results and exchange share; their settings pin its plans.
create or replace function tuskline.record_results(
  p_executor bigint, p_tasks bigint[], p_fences bigint[], p_notes json, p_done_leases bigint[])
returns bigint[] language plpgsql as $$
declare
  v_now     timestamptz := tuskline.clock();
  v_applied bigint;
  v_refused bigint[] := '{}';
  v_requests boolean;
  v_rules    boolean;
  v_chains   boolean;
begin
  if p_notes is not null then
    v_refused := tuskline.settle(p_executor, p_tasks, p_fences, p_notes, v_now);
  elsif cardinality(p_tasks) > 0 then
    if cardinality(p_tasks) > 1 then
      select array_agg(r.id), array_agg(r.fence) into p_tasks, p_fences
        from (select u.id, u.fence from unnest(p_tasks, p_fences) as u (id, fence) order by u.id, u.fence) r;
    end if;
    v_applied := tuskline.succeed(p_tasks, p_fences, v_now);
    if v_applied < cardinality(p_tasks) then
      perform tuskline.witness();
      v_refused := array(select r.id from unnest(p_tasks, p_fences) as r (id, fence)
        where not exists (select from tuskline.task t where t.id = r.id and t.fence = r.fence and t.status = 'success'));
    end if;
    -- A success that won the race against a request to cancel settles the request, too. Whoever
    -- requests holds the task's row lock, so the request is visible here or comes too late.
    select exists (select from tuskline.cancellation), exists (select from tuskline.guarded), exists (select from tuskline.in_use)
      into v_requests, v_rules, v_chains;
    if v_requests then
      delete from tuskline.cancellation c
       where c.task_id = any (p_tasks) and c.fence = p_fences[width_bucket(c.task_id, p_tasks)];
    end if;
    if v_rules or v_chains then perform tuskline.hand_on(p_tasks, v_now); end if;
  end if;
  if p_done_leases is not null then
    perform tuskline.drop_leases(p_executor, p_done_leases);
  end if;
  return v_refused;
end $$;
comment on function tuskline.record_results(bigint, bigint[], bigint[], json, bigint[]) is 'What set_results and exchange share.';

create or replace function tuskline.set_results(
  p_executor bigint, p_tasks bigint[], p_fences bigint[], p_notes json default null, p_done_leases bigint[] default null)
returns bigint[] language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set enable_bitmapscan = off as $$
begin
  return tuskline.record_results(p_executor, p_tasks, p_fences, p_notes, p_done_leases);
end $$;
comment on function tuskline.set_results(bigint, bigint[], bigint[], json, bigint[]) is
  'Records results under their fences; returns the tasks whose result was refused because the attempt is no longer theirs.';

-- succeed: plain successes, segment by segment like take; the ids are sorted. Returns how many it changed.
create or replace function tuskline.make_succeed(p_segment bigint) returns void
language plpgsql as $make$
declare
  v_name text := format('tuskline.succeed_%s(bigint[], bigint[], timestamptz)', p_segment);
begin
  execute format($text$
create or replace function tuskline.succeed_%1$s(p_ids bigint[], p_fences bigint[], p_now timestamptz) returns bigint
language plpgsql as $$
declare
  v_applied bigint;
begin
  update tuskline.task_%1$s t set status = 'success', finished_at = p_now, next_trigger_at = null, crashes = 0
   where t.id = any (p_ids) and t.fence = p_fences[width_bucket(t.id, p_ids)] and t.status in ('claimed', 'processing');
  get diagnostics v_applied = row_count;
  return v_applied;
end $$ $text$, p_segment);
  perform tuskline.finish_leaf_verb(v_name,
    format('claimed or processing -> success, for tasks of segment %s.', p_segment));
end $make$;
comment on function tuskline.make_succeed(bigint) is 'Makes succeed_<segment_no>, or makes it anew.';

create or replace function tuskline.succeed(p_ids bigint[], p_fences bigint[], p_now timestamptz) returns bigint
language plpgsql as $$
declare
  v_applied bigint := 0;
  v_some    bigint;
  v_from    integer := 1;
  v_to      integer;
  v_segment bigint;
begin
  while v_from <= cardinality(p_ids) loop
    v_segment := tuskline.segment_of(p_ids[v_from]);
    v_to := width_bucket(p_ids[v_from] | 16777215, p_ids); -- the last id of the segment
    if to_regclass('tuskline.task_' || v_segment) is not null then
      execute 'select tuskline.succeed_' || v_segment || '($1, $2, $3)' into v_some
        using p_ids[v_from:v_to], p_fences[v_from:v_to], p_now;
      v_applied := v_applied + v_some;
    end if;
    v_from := v_to + 1;
  end loop;
  return v_applied;
end $$;
comment on function tuskline.succeed(bigint[], bigint[], timestamptz) is 'claimed or processing -> success, in id order, if the fence is right.';

-- drop_leases: each looked up by both columns of the key. A join or = any may become, once the table was
-- analyzed and looked small, a walk over all that this executor ever held; under a snapshot that some
-- session keeps, these are thousands of dead rows for each exchange.
create or replace function tuskline.drop_leases(p_executor bigint, p_leases bigint[]) returns void
language plpgsql as $$
declare
  v_lease bigint;
begin
  foreach v_lease in array p_leases loop
    delete from tuskline.lease l where l.executor_id = p_executor and l.lease_id = v_lease;
  end loop;
end $$;
comment on function tuskline.drop_leases(bigint, bigint[]) is 'Forgets leases of which every task has been reported or given back.';
