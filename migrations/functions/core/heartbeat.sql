-- Extends the lease of an executor: one guarded UPDATE per process, not per task.
--
-- p_leases: return the leases it holds. So a worker finds a claim whose answer it never got, and
--   gives it back. It is rare, because it reads all leases held since the last vacuum.
-- p_processes: the processes of a host controller, if they have changed.
-- p_beats: heartbeats that were acknowledged to this worker; null: unknown.
-- Returns alive: false means that the executor has ended and must stop its tasks. An ended executor
-- never comes back. It is false as well if another role registered it, or if its role may no longer
-- work on one of its lambdas (is_entitled).
-- Returns the tasks it holds for which a cancellation is stored, and its claimed tasks that a gate
-- holds. It checks gates only while one that was set in the last minute is in force.
-- Returns past: true if no row of the executor knows p_beats heartbeats, and its number is of
-- another life of the database. Then this database is a copy of an earlier state: restored, or
-- promoted without the last heartbeats.
--
-- Only ended_at decides. A silent executor that no transaction has ended still holds its tasks
-- alone. The transaction that ends an executor updates the same row, so it sees this heartbeat.
create or replace function tuskline.heartbeat(
  p_executor bigint, p_draining boolean default false, p_leases boolean default true,
  p_beats bigint default null, p_processes integer[] default null,
  out alive boolean, out leases bigint[], out cancelled_tasks bigint[],
  out cancelled_fences bigint[], out gated_tasks bigint[], out gated_fences bigint[],
  out past boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now timestamptz := tuskline.clock();
begin
  update tuskline.executor e
     set beats = e.beats + 1, silent_ms = 0, beat_at = v_now, expires_at = v_now + e.lease,
         draining = e.draining or p_draining,
         processes = coalesce(p_processes, e.processes)
   where e.executor_id = p_executor and e.ended_at is null
     and (p_beats is null or e.beats >= p_beats)
     and tuskline_core.is_entitled(e.role, e.lambdas);
  alive := found;
  past := not alive and p_beats is not null and not exists (
      select from tuskline.executor e where e.executor_id = p_executor and e.beats >= p_beats)
    and tuskline_core.is_of_another_life(p_executor);
  if past then perform tuskline_core.delay_claims(v_now); end if;
  if alive then
    select array_agg(c.task_id), array_agg(c.fence) into cancelled_tasks, cancelled_fences
      from tuskline.cancellation c
           join tuskline.lease l on l.executor_id = p_executor and l.lease_id = c.fence;
    if exists (select from tuskline.gate g
                where g.opened_at is null and g.set_at > v_now - interval '1 minute') then
      select array_agg(t.id), array_agg(t.fence) into gated_tasks, gated_fences
        from tuskline.lease l cross join unnest(l.task_ids) as i (id)
             join tuskline.task t on t.id = i.id and t.fence = l.lease_id and t.status = 'claimed'
       where l.executor_id = p_executor
         and exists (select from tuskline_core.gate_of(t.lambda, t.collection, t.priority, v_now));
    end if;
    if p_leases then
      leases := array(select l.lease_id from tuskline.lease l where l.executor_id = p_executor);
    end if;
  end if;
end $$;
comment on function tuskline.heartbeat(bigint, boolean, boolean, bigint, integer[]) is
  'Extends the lease of a worker; names the tasks it must stop and (p_leases) its leases. '
  'alive is false: its bodies must stop. past is true: this database is a copy of a '
  'state in which fewer than p_beats of its heartbeats were known.';
