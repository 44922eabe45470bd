-- Sets the circuit breaker of a lambda, or changes its settings.
--
-- The breaker trips when both are true within p_window:
--
--   at least p_failures attempts failed with the same cause (fingerprint)
--   these are at least p_share of all attempts that ended
--
-- It then sets a gate that pauses the lambda and states the cause. After p_probe_after one waiting
-- task may run as a probe. If the probe succeeds, the gate opens. Otherwise the next probe follows
-- after the same time. Null means the default: 20 failures, half of all attempts, in 1 minute; a
-- probe after 30 seconds.
create or replace function tuskline.set_breaker(
  p_lambda      text,
  p_failures    integer          default null,
  p_window      interval         default null,
  p_share       double precision default null,
  p_probe_after interval         default null)
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now         timestamptz      := tuskline.clock();
  v_failures    integer          := coalesce(p_failures, 20);
  v_window      interval         := coalesce(p_window, '1 minute');
  v_share       double precision := coalesce(p_share, 0.5);
  v_probe_after interval         := coalesce(p_probe_after, '30 seconds');
  v_wrong       text := case
    when v_failures not between 1 and 1000000
      then format('failures must be 1 to 1000000, got %s', v_failures)
    when v_window not between '1 second' and '1 day'
      then format('window must be 1 second to 1 day, got %s', v_window)
    when v_share not between 0.001 and 1
      then format('share must be 0.001 to 1, got %s', v_share)
    when v_probe_after not between '1 second' and '1 day'
      then format('probe_after must be 1 second to 1 day, got %s', v_probe_after)
  end;
begin
  perform tuskline_core.need(p_lambda, 'own');
  if v_wrong is not null then
    perform tuskline_core.refuse('TK026', 'invalid_breaker: ' || v_wrong);
  end if;
  if p_lambda is null or not exists (select from tuskline.lambda l where l.name = p_lambda) then
    perform tuskline_core.refuse_lambda(p_lambda);
  end if;
  insert into tuskline.breaker (lambda, failures, span, share, probe_after,
                                set_at, looked_at, counted_from)
  values (p_lambda, v_failures, v_window, v_share, v_probe_after, v_now, v_now, v_now)
  on conflict (lambda) do update
     set failures = excluded.failures, span = excluded.span, share = excluded.share,
         probe_after = excluded.probe_after, author = excluded.author, set_at = excluded.set_at;
  insert into tuskline.audit (at, verb, subject, detail)
  values (v_now, 'set_breaker', p_lambda,
          format('%s failures and %s %% of the attempts in %s, probe after %s',
                 v_failures, 100 * v_share, v_window, v_probe_after));
  perform tuskline_core.notify('tuskline_timer');
end $$;
comment on function tuskline.set_breaker(text, integer, interval, double precision, interval) is
  'Sets a circuit breaker: it pauses a lambda when p_failures attempts fail with one cause within '
  'p_window, and these are p_share of all (default 20 in 1 minute, 0.5). After p_probe_after '
  '(default 30 s) a probe runs; its success opens the gate. Audited.';

-- Removes the circuit breaker of a lambda and opens the gate that it has set.
--
-- Returns false if the lambda has none.
create or replace function tuskline.drop_breaker(p_lambda text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now  timestamptz := tuskline.clock();
  v_gate bigint;
begin
  perform tuskline_core.need(p_lambda, 'own');
  delete from tuskline.breaker b where b.lambda = p_lambda returning b.gate_id into v_gate;
  if not found then return false; end if;
  delete from tuskline_core.recent_failure f where f.lambda = p_lambda;
  if v_gate is not null then
    perform tuskline_core.open_gate(v_gate, v_now, 'its breaker was dropped');
  end if;
  insert into tuskline.audit (at, verb, subject) values (v_now, 'drop_breaker', p_lambda);
  return true;
end $$;
comment on function tuskline.drop_breaker(text) is
  'Removes the circuit breaker of a lambda and opens the gate that it has set. '
  'False: the lambda has none. Audited.';

-- Records failed attempts for the circuit breakers, if their lambda has one.
--
-- The caller has just recorded these attempts as failed, at p_now. One row covers one cause in one
-- batch; the two ranges of ids (task_seq and future_seq) get rows of their own.
create or replace function tuskline_core.note_failures(p_ids bigint[], p_now timestamptz)
returns void language plpgsql as $$
declare
  v_first bigint := (select min(id) from unnest(p_ids) as id);
  v_last  bigint := (select max(id) from unnest(p_ids) as id);
begin
  insert into tuskline_core.recent_failure (lambda, failed_at, fingerprint, attempts,
                                            first_id, last_id, message)
  select t.lambda, p_now, f.fingerprint, count(*), min(t.id), max(t.id), left(min(f.message), 300)
    from tuskline.task t
         join tuskline.task_failure f on f.task_id = t.id and f.fence = t.fence
   where t.id = any (p_ids) and t.id between v_first and v_last and f.failed_at = p_now
     and exists (select from tuskline.breaker b where b.lambda = t.lambda)
   group by t.lambda, f.fingerprint, t.id >= 1125899906842624; -- 2^50: ids of future_seq
end $$;
comment on function tuskline_core.note_failures(bigint[], timestamptz) is
  'Records failed attempts of lambdas that have a circuit breaker.';
