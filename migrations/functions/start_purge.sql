-- start_purge: tasks that have ended go before their retention is over, by filter. It walks over the ids, a batch a
-- call of advance_purge; tasks that ended less than p_older_than before it began are left alone. Rows that go
-- from live segments leave dead rows behind: to drop whole segments (a shorter retention) stays the cheap way.
create or replace function tuskline.start_purge(
  p_lambda text default null, p_statuses text[] default null, p_collection text default null,
  p_older_than interval default null, p_limit bigint default null, p_reason text default null)
returns bigint language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now   timestamptz := tuskline.clock();
  v_purge bigint;
begin
  perform tuskline.check_purge(p_lambda, p_statuses, p_collection, p_older_than, p_limit);
  insert into tuskline.purge_run (lambda, statuses, collection, ended_until, most, reason, begun_at)
  values (p_lambda, coalesce(p_statuses, '{success,fatal_failure,dead,cancelled,dropped}')::tuskline.status[], p_collection,
          v_now - coalesce(p_older_than, '1 minute'), p_limit, p_reason, v_now)
  returning purge_id into v_purge;
  insert into tuskline.audit (at, verb, subject, detail)
  values (v_now, 'start_purge', coalesce(p_lambda, 'all lambdas'),
          concat_ws(' ', 'purge', v_purge, p_statuses::text, 'collection ' || p_collection, 'older than ' || p_older_than, 'at most ' || p_limit, p_reason));
  return v_purge;
end $$;
comment on function tuskline.start_purge(text, text[], text, interval, bigint, text) is
  'Begins to delete tasks that have ended, of a lambda, statuses or a collection, that ended at least p_older_than ago (null: a minute); returns its number for advance_purge(). At least one of these must be given. Audited.';

create or replace function tuskline.check_purge(
  p_lambda text, p_statuses text[], p_collection text, p_older_than interval, p_limit bigint) returns void
language plpgsql stable as $$
declare
  v_wrong text := case
    when num_nonnulls(p_lambda, p_statuses, p_collection, p_older_than) = 0 then 'say which tasks: give a lambda, statuses, a collection or an age'
    when not p_statuses <@ '{success,fatal_failure,dead,cancelled,dropped}' or p_statuses = '{}'
      then format('statuses must be some of success, fatal_failure, dead, cancelled, dropped, got %s', left(p_statuses::text, 200))
    when p_older_than not between '0' and '3650 days' then format('older_than must be 0 to 3650 days, got %s', p_older_than)
    when p_limit < 1 then format('limit must be at least 1, got %s', p_limit)
  end;
begin
  if v_wrong is not null then perform tuskline.refuse('TK030', 'invalid_purge: ' || v_wrong); end if;
  if p_lambda is not null and not exists (select from tuskline.lambda l where l.name = p_lambda) then
    perform tuskline.refuse('TK001', format('unknown_lambda: %L is not defined', left(p_lambda, 80)));
  end if;
end $$;
comment on function tuskline.check_purge(text, text[], text, interval, bigint) is 'Refuses (TK001, TK030) what does not say which tasks are to go.';

create or replace function tuskline.is_for(
  r tuskline.purge_run, p_lambda text, p_status tuskline.status, p_collection text, p_finished_at timestamptz)
returns boolean language sql immutable as $$
  select p_status = any (r.statuses) and p_finished_at <= r.ended_until and p_lambda = coalesce(r.lambda, p_lambda)
     and p_collection is not distinct from coalesce(r.collection, p_collection)
$$;
comment on function tuskline.is_for(tuskline.purge_run, text, tuskline.status, text, timestamptz) is 'Whether a purge is about such a task.';

-- preview_purge: reads everything once. What it counts and others need will be left alone.
create or replace function tuskline.preview_purge(p_purge bigint)
returns table (lambda text, status text, tasks bigint) language sql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  select t.lambda, t.status::text, count(*)
    from tuskline.purge_run r join tuskline.tasks t on tuskline.is_for(r, t.lambda, t.status, t.collection, t.finished_at)
   where r.purge_id = p_purge group by t.lambda, t.status order by t.lambda, t.status
$$;
comment on function tuskline.preview_purge(bigint) is 'How many tasks a purge is about, by lambda and status.';

-- is_needed: what no purge deletes: is_wanted; somebody waits for its end and has not been told; a redrive under
-- way watches it, or is to let it go.
create or replace function tuskline.is_needed(p_task bigint, p_collection text) returns boolean
language sql stable as $$
  select tuskline.is_wanted(p_task) or exists (select from tuskline.awaited a where a.task_id = p_task)
      or exists (select from tuskline.redriven v join tuskline.redrive r on r.redrive_id = v.redrive_id
                  where v.task_id = p_task and r.ended_at is null)
      or exists (select from tuskline.dead_letter d, tuskline.redrive r
                  where d.task_id = p_task and r.ended_at is null and tuskline.is_meant(r, d, '-infinity')
                    and d.lambda = coalesce(r.lambda, d.lambda) and d.task_id = any (coalesce(r.ids, array[d.task_id]))
                    and p_collection is not distinct from coalesce(r.collection, p_collection))
$$;
comment on function tuskline.is_needed(bigint, text) is 'Whether others still need a task that has ended: a chain, an ordering key, a wait or a redrive.';
