-- Says when the next task of a rate limit may start, or that tasks with permits wait for a worker.
create or replace function tuskline_core.explain_rate(r tuskline.task_limit, p_key text)
returns text language sql stable as $$
  select case
    when c.unspent >= r.burst
    then format('%s before it may start and wait for a worker', c.unspent)
    else 'the next may start at ' || greatest(s.next_at, c.moved
           + c.unspent / r.per_second * interval '1 second') end
    from tuskline_core.rate_state s
         cross join lateral (
           select count(o.permit_no) filter (where o.claimed_at is null) as unspent,
                  tuskline_core.moved_by_claims(s.next_at, r,
                    array_agg(o.claimed_at order by o.claimed_at)
                      filter (where o.claimed_at is not null), n.now) as moved
             from tuskline.clock() as n (now)
                  left join lateral tuskline_core.rate_permits(
                    r.limit_id, p_key, s.settled_no, n.now) o on true
            group by n.now) c
   where s.limit_id = r.limit_id and s.key = p_key
$$;
comment on function tuskline_core.explain_rate(tuskline.task_limit, text) is
  'When the next task of a rate limit may start, or how many have a permit and wait for a worker.';

-- Lists the wait lists in which a task waits, and the tasks ahead of it (for explain).
create or replace function tuskline_core.explain_wait_list(p_task bigint)
returns table (reason text, detail text, cause text, remedy text)
language sql stable as $$
  select case r.kind when 'order' then 'ordered' when 'rate' then 'rate' else 'limit' end,
         case r.kind
           when 'order' then concat_ws('; ',
             format('task %s of key %L ', h.holder, l.key)
             || case when h.runs then 'is not done yet' else 'has failed and blocks it' end,
             format('%s ahead', a.ahead))
           when 'rate' then format('%s a second%s; %s ahead, %s%s',
             r.per_second, k.of_key, a.ahead, tuskline_core.explain_rate(r, l.key),
             case when r.reason is not null
                  then format('; a throttle, set by %s at %s%s: %s',
                              r.author, r.set_at, ' until ' || r.until, r.reason) end)
           else format('%s at a time%s, %s running; %s ahead',
                       r.max_concurrency, k.of_key, h.held, a.ahead) end
         || coalesce('; held up by ' || tuskline_core.lock_holders(
              'tuskline.task_limit', '{RowShareLock,RowExclusiveLock}', '1 second'), ''),
         format('tuskline.task_limit %s on %s', r.limit_id,
                tuskline_core.scope_of(r.lambda, r.collection, r.priority)),
         case when r.kind <> 'order'
              then format('select tuskline.set_limit(...), or tuskline.drop_limit(%s)',
                          r.limit_id)
              when h.holder is not null and not h.runs
              then format('select tuskline.unblock(%L, %L)', r.lambda, l.key) end
    from tuskline.wait_list l
         join tuskline.task_limit r using (limit_id)
         cross join lateral (
           select case when l.key <> '' then format(' for key %L', l.key) end as of_key) k
         cross join lateral (
           select count(*) as ahead from tuskline.wait_list o
            where o.limit_id = l.limit_id and o.key = l.key
              and (o.position, o.task_id) < (l.position, l.task_id)) a
         cross join lateral (
           select count(*) as held, min(s.task_id) as holder,
                  bool_or(b.finished_at is null) as runs
             from tuskline.permit s left join tuskline_core.all_tasks b on b.id = s.task_id
            where s.limit_id = r.limit_id and s.key = l.key) h
   where l.task_id = p_task and r.dropped_at is null
     and (r.kind <> 'order' or h.held + a.ahead > 0)
$$;
comment on function tuskline_core.explain_wait_list(bigint) is
  'The limits and ordering policies whose permit a task waits for, for explain.';

create or replace function tuskline_core.explain_parents(p_task bigint)
returns table (reason text, detail text, cause text, remedy text)
language sql stable as $$
  select 'held_by_parent',
         format('task %s (%s), for whose %s it waits, ended as %s',
                b.parent_id, n.name, d.condition, d.outcome),
         format('tuskline.unmet_dependency %s', p_task),
         format('select tuskline.retry(%s), or tuskline.cancel(%s)', b.parent_id, p_task)
    from tuskline.unmet_dependency b
         join tuskline.dependency d on d.task_id = b.task_id and d.parent_id = b.parent_id
         left join tuskline.chain_task n on n.task_id = b.parent_id
   where b.task_id = p_task
  union all
  select 'parents',
         format('waits for task %s (%s), which is %s',
                c.waits_for, n.name, coalesce(t.status::text, 'gone'))
         || case when o.more > 0 then format('; more parents that have not ended: %s', o.more)
                 else '' end,
         format('tuskline.dependency %s', p_task),
         format('select * from tuskline.explain(%s)', c.waits_for)
    from tuskline.chain_task c
         left join tuskline.chain_task n on n.task_id = c.waits_for
         left join tuskline_core.all_tasks t on t.id = c.waits_for
         cross join lateral (
           select count(*) as more from tuskline.dependency d
            where d.task_id = p_task and d.outcome is null and d.parent_id <> c.waits_for) o
   where c.task_id = p_task and c.waits_for is not null
     and not exists (select from tuskline.unmet_dependency b where b.task_id = p_task)
$$;
comment on function tuskline_core.explain_parents(bigint) is
  'The parents that a task of a chain waits for, for explain.';

create or replace function tuskline_core.explain_gate(g tuskline.gate)
returns table (reason text, detail text, cause text, remedy text)
language sql stable as $$
  select 'gated',
         format('%s, set by %s at %s%s: %s',
                g.action, g.author, g.set_at, ' until ' || g.until, g.reason),
         format('tuskline.gate %s on %s', g.gate_id,
                tuskline_core.scope_of(g.lambda, g.collection, g.priority)),
         format('select tuskline.ungate(%s)', g.gate_id)
$$;
comment on function tuskline_core.explain_gate(tuskline.gate) is
  'A gate that holds a task, for explain.';

create or replace function tuskline_core.explain_waiting(
  p_task bigint, p_status tuskline.status, p_attempt smallint, p_now timestamptz)
returns table (reason text, detail text, cause text, remedy text)
language sql stable as $$
  select e.*
    from tuskline.parked k join tuskline.gate g using (gate_id)
         cross join lateral tuskline_core.explain_gate(g) e
   where k.task_id = p_task and g.opened_at is null
  union all
  select 'gate_opened',
         format('gate %s has been opened, %s tasks of it are on their way', k.gate_id,
                (select count(*) from tuskline.parked o where o.gate_id = k.gate_id)),
         format('tuskline.parked %s', p_task), 'run: tuskline serve'
    from tuskline.parked k left join tuskline.gate g using (gate_id)
   where k.task_id = p_task and (g.gate_id is null or g.opened_at is not null)
  union all
  select s.* from tuskline_core.explain_wait_list(p_task) s
  union all
  select s.* from tuskline_core.explain_parents(p_task) s where p_status = 'new'
  union all
  select case when m.due <= p_now then 'due'
              when p_status = 'new' then 'not_due'
              else 'backing_off' end,
         case when m.due <= p_now
              then format('due since %s, waits for a store consumer', m.due)
              when p_status = 'new'
              then format('due in %s, at %s', m.due - p_now, m.due)
              else format('attempt %s failed (%s), the next is due in %s, at %s', p_attempt,
                          (select left(f.message, 200) from tuskline.task_failure f
                            where f.task_id = p_task order by f.failed_at desc limit 1),
                          m.due - p_now, m.due) end,
         format('tuskline.timer %s', p_task),
         case when m.due <= p_now then 'run: tuskline serve' end
    from tuskline.timer m where m.task_id = p_task and m.kind = 'due'
  union all
  select 'stalled', 'nothing points to it; the janitor finds such tasks',
         format('tuskline.task %s', p_task),
         format('select tuskline.find_stalled(%s, ''0'')', tuskline_core.segment_of(p_task))
   where not exists (select from tuskline.parked k where k.task_id = p_task)
     and not exists (select from tuskline.timer m where m.task_id = p_task)
     and not exists (select from tuskline.wait_list l where l.task_id = p_task)
     and not exists (select from tuskline.chain_task c
                      where c.task_id = p_task and c.waits_for is not null)
$$;
comment on function tuskline_core.explain_waiting(
  bigint, tuskline.status, smallint, timestamptz) is
  'Reasons why a task waits: its due time, a gate, a limit, an ordering policy or a parent. '
  'For explain.';

-- Names the transaction that holds the row lock of a task (for explain).
--
-- Functions skip a locked row, so its task does not move until that transaction ends.
create or replace function tuskline_core.explain_lock(p_task bigint)
returns table (reason text, detail text, cause text, remedy text)
language sql stable as $$
  select 'locked', 'its row is locked by ' || h.holder, format('tuskline.task %s', p_task),
         'end that transaction'
    from tuskline.task t
         join pg_locks l on l.locktype = 'transactionid' and l.transactionid = t.xmax
                        and l.mode = 'ExclusiveLock' and l.granted
                        and l.pid is distinct from pg_backend_pid()
         cross join lateral
           tuskline_core.name_transaction(l.virtualtransaction, '1 second') as h (holder)
   where t.id = p_task and h.holder is not null
$$;
comment on function tuskline_core.explain_lock(bigint) is
  'The transaction that holds the row lock of a task, if it began at least a second ago. '
  'For explain.';
