-- Schedules up to 10,000 tasks once: a repeated call schedules nothing and returns the same ids.
--
-- For callers that cannot look whether a call was done, because its answer got lost: the Frontend
-- by RPC, or a client without transactions. The caller names the request. The row of the request
-- and the tasks are one transaction, so both exist or neither does.
--
-- Two calls at once: the second one waits for the transaction of the first. If that rolls back, the
-- second one schedules. Above READ COMMITTED, PostgreSQL refuses the second one (40001).
-- The digest leaves out trace contexts, because a repeated call may be part of another span. The
-- settings give equal tasks equal texts in every session.
create or replace function tuskline.schedule_once(
  p_request_id    text,
  p_lambdas       text[],
  p_payloads      json[]        default null,
  p_priorities    text[]        default null,
  p_collections   text[]        default null,
  p_scheduled_at  timestamptz[] default null,
  p_delays        interval[]    default null,
  p_ordering_keys text[]        default null,
  p_limit_keys    text[]        default null,
  p_fairness_keys text[]        default null,
  p_unique_keys   text[]        default null,
  p_traceparents  text[]        default null)
returns bigint[] language plpgsql security definer set search_path = pg_catalog, pg_temp
set jit = off set timezone = 'UTC' set datestyle = 'ISO' set intervalstyle = 'postgres' as $$
declare
  v_role   text := tuskline_core.caller();
  v_digest bytea := sha256(convert_to(row(
    p_lambdas, p_payloads, p_priorities, p_collections, p_scheduled_at, p_delays, p_ordering_keys,
    p_limit_keys, p_fairness_keys, p_unique_keys)::text, 'UTF8'));
  v_known  bytea; -- the digest of the first call
  v_ids    bigint[];
begin
  if length(p_request_id) between 1 and 128 is not true then
    perform tuskline_core.refuse('TK057', format(
      'invalid_request: request_id must have 1 to 128 characters, got %s',
      coalesce(length(p_request_id)::text, 'null')));
  end if;
  loop
    insert into tuskline_core.schedule_request (role, request_id, digest)
    values (v_role, p_request_id, v_digest) on conflict do nothing;
    if found then
      v_ids := tuskline.schedule_many(
        p_lambdas, p_payloads, p_priorities, p_collections, p_scheduled_at, p_delays,
        p_ordering_keys, p_limit_keys, p_fairness_keys, p_unique_keys, p_traceparents);
      update tuskline_core.schedule_request set task_ids = v_ids
       where role = v_role and request_id = p_request_id;
      return v_ids;
    end if;
    select r.digest, r.task_ids into v_known, v_ids from tuskline_core.schedule_request r
     where r.role = v_role and r.request_id = p_request_id;
    -- Not found: a janitor has deleted the row between the two statements.
    exit when found;
  end loop;
  if v_known <> v_digest then
    perform tuskline_core.refuse('TK058',
      format('other_request: request_id %L came with other tasks before', p_request_id),
      'a new request has a new request_id; a repeated one has the same tasks');
  end if;
  return v_ids;
end $$;
comment on function tuskline.schedule_once(
  text, text[], json[], text[], text[], timestamptz[], interval[], text[], text[], text[], text[],
  text[]) is
  'Schedules up to 10,000 tasks, all or none. A repeated call with the same p_request_id and tasks '
  'schedules nothing and returns the same ids, for a day at least.';

create or replace function tuskline_core.purge_requests(p_limit integer, p_now timestamptz)
returns bigint language plpgsql as $$
declare
  v_gone bigint;
begin
  delete from tuskline_core.schedule_request r where r.ctid = any (array(
    select s.ctid from tuskline_core.schedule_request s
     where s.noted_at < p_now - interval '1 day'
     order by s.noted_at limit p_limit for update skip locked));
  get diagnostics v_gone = row_count;
  return v_gone;
end $$;
comment on function tuskline_core.purge_requests(integer, timestamptz) is
  'Deletes a batch of requests that are older than a day, the oldest first.';
