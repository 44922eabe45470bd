-- Changes the given settings of a lambda. Null leaves a setting as it is.
--
-- p_as_others names statuses (cancelled, dropped, fatal_failure) that lose their own retention.
--
-- Nothing is restarted. Retry settings, max_attempts and max_crashes apply to every attempt that
-- ends from now on. A worker reads attempt_timeout only when it registers.
create or replace function tuskline.alter_lambda(
  p_name                text,
  p_attempt_timeout     interval default null,
  p_max_attempts        integer  default null,
  p_retry_base          interval default null,
  p_retry_cap           interval default null,
  p_retention           interval default null,
  p_dead_retention      interval default null,
  p_direct              boolean  default null,
  p_max_payload_bytes   integer  default null,
  p_max_crashes         integer  default null,
  p_max_backlog         integer  default null,
  p_cancelled_retention interval default null,
  p_dropped_retention   interval default null,
  p_fatal_retention     interval default null,
  p_archive             text     default null,
  p_as_others           text[]   default '{}')
returns void language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now timestamptz := tuskline.clock();
  l     tuskline.lambda;
begin
  select * into l from tuskline.lambda where name = p_name for update;
  if not found then
    perform tuskline_core.refuse_lambda(p_name);
  end if;
  l.attempt_timeout   := coalesce(p_attempt_timeout, l.attempt_timeout);
  l.retry_base        := coalesce(p_retry_base, l.retry_base);
  l.retry_cap         := coalesce(p_retry_cap, l.retry_cap);
  l.retention         := coalesce(p_retention, l.retention);
  l.dead_retention    := coalesce(p_dead_retention, l.dead_retention);
  l.direct            := coalesce(p_direct, l.direct);
  l.max_payload_bytes := coalesce(p_max_payload_bytes, l.max_payload_bytes);
  p_max_attempts      := coalesce(p_max_attempts, l.max_attempts);
  p_max_crashes       := coalesce(p_max_crashes, l.max_crashes);
  l.max_backlog       := coalesce(p_max_backlog, l.max_backlog);
  l.archive           := coalesce(p_archive, l.archive);
  if not coalesce(p_as_others, '{}') <@ '{cancelled,dropped,fatal_failure}' then
    perform tuskline_core.refuse('TK009', format(
      'invalid_setting: as_others must name cancelled, dropped or fatal_failure, got %s',
      left(p_as_others::text, 80)));
  end if;
  l.cancelled_retention := coalesce(p_cancelled_retention,
    case when 'cancelled' = any (p_as_others) then null else l.cancelled_retention end);
  l.dropped_retention := coalesce(p_dropped_retention,
    case when 'dropped' = any (p_as_others) then null else l.dropped_retention end);
  l.fatal_retention := coalesce(p_fatal_retention,
    case when 'fatal_failure' = any (p_as_others) then null else l.fatal_retention end);
  perform tuskline_core.check_settings(
    l.attempt_timeout, p_max_attempts, l.retry_base, l.retry_cap, l.retention, l.dead_retention,
    l.direct, l.max_payload_bytes, p_max_crashes, l.max_backlog);
  perform tuskline_core.check_retention(
    l.cancelled_retention, l.dropped_retention, l.fatal_retention, l.archive);
  update tuskline.lambda
     set attempt_timeout = l.attempt_timeout, max_attempts = p_max_attempts,
         max_crashes = p_max_crashes, retry_base = l.retry_base, retry_cap = l.retry_cap,
         retention = l.retention, dead_retention = l.dead_retention,
         cancelled_retention = l.cancelled_retention, dropped_retention = l.dropped_retention,
         fatal_retention = l.fatal_retention, archive = l.archive, direct = l.direct,
         max_payload_bytes = l.max_payload_bytes, max_backlog = l.max_backlog,
         altered_at = v_now
   where name = p_name;
  update tuskline.queue set max_payload_bytes = l.max_payload_bytes where lambda = p_name;
  perform tuskline_core.note_backlogs(p_name);
  perform tuskline_core.update_policy_flags(p_name);
  if num_nonnulls(p_retention, p_cancelled_retention, p_dropped_retention, p_archive) > 0
     or p_as_others <> '{}' then
    -- Lock and reset all segments, also where ripe_at is null: a segments_to_retire that runs now
    -- still uses the old settings. We wait for it and reset what it saved.
    update tuskline.segment set ripe_at = null
     where segment_no = any (array(
       select g.segment_no from tuskline.segment g order by g.segment_no for no key update));
  end if;
  insert into tuskline.audit (at, verb, subject, detail)
  select v_now, 'alter_lambda', p_name, to_jsonb(n)::text
    from tuskline.lambda n where n.name = p_name;
end $$;
comment on function tuskline.alter_lambda(
  text, interval, integer, interval, interval, interval, interval, boolean, integer, integer,
  integer, interval, interval, interval, text, text[]) is
  'Changes the given settings of a lambda; null leaves a setting as it is. Audited.';
