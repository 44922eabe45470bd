-- Creates or changes a limit: what set_limit, set_order and throttle have in common.
--
-- A limit is identified by lambda, collection, priority, kind, by_key, and whether it is a throttle
-- (has a reason). Saving it again changes it. A change takes effect at once: the head of each wait
-- list rechecks. A raised rate does not wait for a token of the old rate.
--
-- Locks: the row of the lambda, then the row of the limit.
-- Returns the number of the limit.
create or replace function tuskline_core.save_limit(
  p_lambda text, p_collection text, p_priority tuskline.priority, p_kind text, p_by_key boolean,
  p_fair boolean, p_max_concurrency integer, p_per_second double precision, p_burst integer,
  p_on_failure text, p_reason text default null, p_until timestamptz default null)
returns bigint language plpgsql as $$
declare
  v_now      timestamptz := tuskline.clock();
  v_limit_id bigint;
  v_new      boolean;
  v_burst    integer; -- before this call
begin
  perform tuskline_core.lock_lambda(p_lambda);
  v_burst := (
    select r.burst from tuskline.task_limit r
     where r.lambda = p_lambda and r.collection is not distinct from p_collection
       and r.priority is not distinct from p_priority and r.kind = p_kind and r.by_key = p_by_key
       and (r.reason is null) = (p_reason is null) and r.dropped_at is null);
  insert into tuskline.task_limit (lambda, collection, priority, kind, by_key, fair,
                                   max_concurrency, per_second, burst, on_failure, reason, until,
                                   set_at)
  values (p_lambda, p_collection, p_priority, p_kind, p_by_key, p_fair,
          p_max_concurrency, p_per_second, p_burst, p_on_failure, p_reason, p_until,
          v_now)
  on conflict (lambda, coalesce(collection, ''), (num_nonnulls(priority)),
               coalesce(priority, 'low'), kind, by_key, (reason is null))
     where dropped_at is null
  do update
     set fair = excluded.fair, max_concurrency = excluded.max_concurrency,
         per_second = excluded.per_second, burst = excluded.burst,
         on_failure = excluded.on_failure, reason = excluded.reason, until = excluded.until,
         author = excluded.author, set_at = excluded.set_at
  returning limit_id, xmax = '0' into v_limit_id, v_new;
  insert into tuskline.audit (at, verb, subject, detail)
  values (v_now, case when p_reason is not null then 'throttle' when p_kind = 'order'
                        then 'set_order' else 'set_limit' end,
          tuskline_core.scope_of(p_lambda, p_collection, p_priority),
          concat_ws(' ', 'limit', v_limit_id, p_kind, case when p_by_key then 'by key' end,
                    case when p_fair then 'fair' end, p_max_concurrency, p_per_second || '/s',
                    p_on_failure, 'until ' || p_until, p_reason));
  perform tuskline_core.update_policy_flags(p_lambda, case
    when not v_new and coalesce(p_burst >= v_burst, true) then '{}'
    when p_priority is null then enum_range(null::tuskline.priority)
    else array[p_priority] end);
  -- The upsert above waited for each transaction that granted permits by the old settings: it holds
  -- the row lock of the limit (acquire_permits). From here on we see the waiters that it left.
  if p_burst < v_burst then perform tuskline_core.withdraw_above_burst(v_limit_id, v_now); end if;
  perform tuskline_core.recheck_wait_lists(v_limit_id, v_now);
  return v_limit_id;
end $$;
comment on function tuskline_core.save_limit(
  text, text, tuskline.priority, text, boolean, boolean, integer, double precision, integer, text,
  text, timestamptz) is
  'Creates or changes a limit, for set_limit, set_order and throttle. Audited.';

-- Takes back the unspent permits above the burst of a rate limit, the latest first.
--
-- Their tasks are in a queue. The caller flags it as unsorted, so the tasks ask for a permit again.
create or replace function tuskline_core.withdraw_above_burst(
  p_limit_id bigint, p_now timestamptz)
returns void language plpgsql as $$
declare
  r tuskline.task_limit;
begin
  select * into r from tuskline.task_limit u where u.limit_id = p_limit_id;
  delete from tuskline.permit d
   using (select s.key, o.permit_no,
                 row_number() over (partition by s.key order by o.permit_no) as nth
            from tuskline_core.rate_state s
                 cross join tuskline_core.rate_permits(s.limit_id, s.key, s.settled_no, p_now) o
           where s.limit_id = p_limit_id and s.unspent > r.burst and o.claimed_at is null) o
   where d.limit_id = p_limit_id and d.key = o.key and d.permit_no = o.permit_no
     and o.nth > r.burst;
end $$;
comment on function tuskline_core.withdraw_above_burst(bigint, timestamptz) is
  'Takes back the unspent permits above the burst of a rate limit: it was lowered.';

-- Removes a limit, an ordering policy or a throttle. Returns false if there is none of that number.
--
-- The store consumer releases the tasks in its wait lists in batches.
create or replace function tuskline.drop_limit(p_limit_id bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  perform tuskline_core.need(r.lambda, 'own')
     from tuskline.task_limit r where r.limit_id = p_limit_id;
  return tuskline_core.end_limit(p_limit_id, tuskline.clock(), null);
end $$;
comment on function tuskline.drop_limit(bigint) is
  'Removes a limit, an ordering policy or a throttle, and releases the tasks in its wait lists. '
  'False: there is none of that number. Audited.';

-- Ends a limit, for drop_limit and for the end time of a throttle (run_policies).
--
-- The row stays until its wait lists are empty; run_policies releases the tasks in them
-- (release_wait_list).
--
-- Locks: the row of the lambda, then the row of the limit. The update waits for a transaction that
-- grants permits (acquire_permits locks the row). A later one reads the limit as dropped, so no
-- task joins through it. join_wait_lists takes no lock; release_wait_list waits for late joiners.
create or replace function tuskline_core.end_limit(
  p_limit_id bigint, p_now timestamptz, p_why text)
returns boolean language plpgsql as $$
declare
  r tuskline.task_limit;
begin
  perform from tuskline.lambda l
    where l.name = (select s.lambda from tuskline.task_limit s where s.limit_id = p_limit_id)
      for update;
  update tuskline.task_limit set dropped_at = p_now
   where limit_id = p_limit_id and dropped_at is null returning * into r;
  if not found then return false; end if;
  delete from tuskline.permit where limit_id = p_limit_id;
  delete from tuskline_core.rate_state where limit_id = p_limit_id;
  delete from tuskline.tenant where limit_id = p_limit_id;
  insert into tuskline.audit (at, verb, subject, detail)
  values (p_now, 'drop_limit', tuskline_core.scope_of(r.lambda, r.collection, r.priority),
          concat_ws(' ', 'limit', p_limit_id, r.kind, p_why));
  perform tuskline_core.update_policy_flags(r.lambda);
  perform tuskline_core.notify('tuskline_timer');
  return true;
end $$;
comment on function tuskline_core.end_limit(bigint, timestamptz, text) is
  'Ends a limit, an ordering policy or a throttle, by hand or because its time is over.';

-- Lets the first waiter (head) of each wait list of a limit recheck now.
--
-- Planner: the loop reads one index entry per key. A select distinct would read every waiter.
create or replace function tuskline_core.recheck_wait_lists(
  p_limit_id bigint, p_now timestamptz)
returns void language plpgsql as $$
declare
  v_ids bigint[];
  v_key text := (select min(key) from tuskline.wait_list where limit_id = p_limit_id);
begin
  while v_key is not null loop
    v_ids := v_ids || (select l.task_id from tuskline.wait_list l
                        where l.limit_id = p_limit_id and l.key = v_key
                        order by l.position, l.task_id limit 1);
    v_key := (select min(key) from tuskline.wait_list
               where limit_id = p_limit_id and key > v_key);
  end loop;
  perform tuskline_core.add_timers(v_ids, array[p_now], 'recheck', p_now);
end $$;
comment on function tuskline_core.recheck_wait_lists(bigint, timestamptz) is
  'Lets the first waiter of each wait list of a limit recheck now.';
