create or replace function tuskline.set_rule(
  p_lambda text, p_collection text, p_priority tuskline.priority, p_kind text, p_by_key boolean,
  p_fair boolean, p_most integer, p_per_second double precision, p_burst integer, p_on_failure text,
  p_reason text default null, p_until timestamptz default null)
returns bigint language plpgsql as $$
declare
  v_now  timestamptz := tuskline.clock();
  v_rule bigint;
  v_new  boolean;
begin
  perform tuskline.lock_lambda(p_lambda);
  insert into tuskline.rule (lambda, collection, priority, kind, by_key, fair, most, per_second,
                             burst, on_failure, reason, until, set_at)
  values (p_lambda, p_collection, p_priority, p_kind, p_by_key, p_fair, p_most, p_per_second,
          p_burst, p_on_failure, p_reason, p_until, v_now)
  on conflict (lambda, coalesce(collection, ''), (num_nonnulls(priority)),
               coalesce(priority, 'low'), kind, by_key, (reason is null))
     where dropped_at is null do update
     set fair = excluded.fair, most = excluded.most, per_second = excluded.per_second, burst = excluded.burst, on_failure = excluded.on_failure,
         reason = excluded.reason, until = excluded.until, author = excluded.author,
         set_at = excluded.set_at
  returning rule_id, xmax = '0' into v_rule, v_new;
  insert into tuskline.audit (at, verb, subject, detail)
  values (v_now, 'set_rule', tuskline.scope_of(p_lambda, p_collection, p_priority),
          concat_ws(' ', 'rule', v_rule, p_kind, case when p_by_key then 'by key' end,
                    case when p_fair then 'fair' end, p_most, p_per_second || '/s', p_on_failure,
                    'until ' || p_until, p_reason));
  perform tuskline.guard_queues(p_lambda, case
    when v_new and p_priority is null then enum_range(null::tuskline.priority)
    when v_new then array[p_priority] else '{}' end);
  -- The update above has waited for a transaction that granted permits by the former settings (enter
  -- locks the rule's row). The tasks that it left in the wait lists are seen from here on.
  update tuskline.pace p set next_at = v_now + interval '1 second' / p_per_second
   where p.rule_id = v_rule and p.next_at > v_now + interval '1 second' / p_per_second;
  perform tuskline.kick(v_rule, v_now);
  return v_rule;
end $$;
comment on function tuskline.set_rule(
  text, text, tuskline.priority, text, boolean, boolean, integer, double precision, integer, text,
  text, timestamptz) is
  'What set_limit, set_order and throttle share.';

create or replace function tuskline.drop_rule(p_rule bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  return tuskline.end_rule(p_rule, tuskline.clock(), null);
end $$;
comment on function tuskline.drop_rule(bigint) is
  'Takes a limit, an order or a throttle away; the tasks that waited for it go on. Audited.';

-- The row stays until its wait lists are empty; promote releases the tasks in them. The update
-- waits for
-- a transaction that grants permits (acquire_permits locks the row): then no task joins by that.
create or replace function tuskline.end_rule(p_rule bigint, p_now timestamptz, p_why text)
returns boolean language plpgsql as $$
declare
  r tuskline.rule;
begin
  perform from tuskline.lambda l where l.name = (select s.lambda from tuskline.rule s where s.rule_id = p_rule) for update;
  update tuskline.rule set dropped_at = p_now
   where rule_id = p_rule and dropped_at is null returning * into r;
  if not found then return false; end if;
  delete from tuskline.slot where rule_id = p_rule;
  delete from tuskline.pace where rule_id = p_rule;
  delete from tuskline.tenant where rule_id = p_rule;
  insert into tuskline.audit (at, verb, subject, detail)
  values (p_now, 'drop_rule', tuskline.scope_of(r.lambda, r.collection, r.priority),
          concat_ws(' ', 'rule', p_rule, r.kind, p_why));
  perform tuskline.guard_queues(r.lambda);
  perform tuskline.notify('tuskline_timer');
  return true;
end $$;
comment on function tuskline.end_rule(bigint, timestamptz, text) is
  'Ends a limit, an order or a throttle, by hand or because its time is over.';

-- kick: whoever is first in a line looks again, now.
create or replace function tuskline.kick(p_rule bigint, p_now timestamptz) returns void
language plpgsql as $$
declare
  v_ids bigint[];
  v_key text := (select min(key) from tuskline.line where rule_id = p_rule);
begin
  while v_key is not null loop
    v_ids := v_ids || (select l.task_id from tuskline.line l
                        where l.rule_id = p_rule and l.key = v_key order by l.turn, l.task_id limit 1);
    v_key := (select min(key) from tuskline.line where rule_id = p_rule and key > v_key);
  end loop;
  perform tuskline.add_timers(v_ids, array[p_now], 'recheck', p_now);
end $$;
comment on function tuskline.kick(bigint, timestamptz) is 'The first of each line of a rule looks again.';
