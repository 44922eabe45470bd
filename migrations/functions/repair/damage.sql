-- Compares the rows with the catalogue, and lists the damage that repair() can mend.
--
-- After a restore of the data only, or one that stopped half-way, rows name tables, functions and
-- numbers that do not exist. Each row of damage() says what is wrong and what repair() will do.
-- Locks: only those of a reader.
-- Guarantees: damage() reads one snapshot, in which a task and its queue row appear together.

-- Lists the sequences that stand below a number in the rows.
--
-- A number issued twice makes an insert fail, or makes one worker pass for another. Task ids of
-- another cell do not count: no sequence of this installation issues them.
-- A sequence that was set and not called since has issued the number before the next one.
-- Planner: each maximum uses a primary key. For fences it reads the leases, which are few.
create or replace function tuskline_core.sequences_behind()
returns table (name text, issued bigint, used bigint)
language sql stable as $$
  with s (name, last_value, is_called) as (
    select 'task_seq', last_value, is_called from tuskline.task_seq
    union all select 'future_seq', last_value, is_called from tuskline.future_seq
    union all select 'fence_seq', last_value, is_called from tuskline.fence_seq
    union all select 'executor_seq', last_value, is_called from tuskline.executor_seq
    union all select 'queue_queue_id_seq', last_value, is_called from tuskline.queue_queue_id_seq
    union all select 'gate_gate_id_seq', last_value, is_called from tuskline.gate_gate_id_seq
    union all
    select 'task_limit_limit_id_seq', last_value, is_called from tuskline.task_limit_limit_id_seq
    union all
    select 'operation_operation_id_seq', last_value, is_called
      from tuskline.operation_operation_id_seq
    union all
    select 'periodic_version_seq', last_value, is_called from tuskline.periodic_version_seq
  )
  select u.name, i.issued, u.used
    from (
      select i.name,
             (select max(t.id) from tuskline.task t
               where t.id between i.first_id and i.last_id) as used
        from tuskline_core.id_range() i
      union all select 'fence_seq', (select max(s.lease_id) from tuskline.lease s)
      union all select 'executor_seq', (select max(e.executor_id) from tuskline.executor e)
      union all select 'queue_queue_id_seq', greatest(
             (select max(q.queue_id) from tuskline.queue q),
             (select max(substr(c.relname, 7)::bigint) from pg_class c
               where c.relnamespace in ('tuskline'::regnamespace,
                                        'tuskline_core'::regnamespace)
                 and c.relkind = 'r' and c.relname ~ '^queue_[0-9]{1,9}$'))
      union all select 'gate_gate_id_seq', (select max(g.gate_id) from tuskline.gate g)
      union all select 'task_limit_limit_id_seq',
             (select max(r.limit_id) from tuskline.task_limit r)
      union all select 'operation_operation_id_seq',
             (select max(o.operation_id) from tuskline.operation o)
      union all select 'periodic_version_seq', (select max(p.version) from tuskline.periodic p)) u
         join s on s.name = u.name
         cross join lateral (select s.last_value - (not s.is_called)::integer as issued) i
   where u.used > i.issued
$$;
comment on function tuskline_core.sequences_behind() is
  'Sequences that stand below a number in the rows, and this number.';

-- Lists the queues that lack a part.
--
-- A row of tuskline.queue needs an attached leaf table with a primary key, statements in the
-- function of its block (pop_<n>), and a call of that function in pop.
create or replace function tuskline_core.damaged_queues()
returns table (name text, number bigint, problem text, remedy text)
language sql stable as $$
  select 'queue_' || d.queue_id, d.queue_id, concat_ws(', ', d.leaf, d.verb),
         'make what is missing (' || d.lambda || ', ' || d.priority || ')'
    from (
      select q.*,
             case when c.oid is null then 'no table'
                  when i.inhrelid is null then 'table not attached'
                  when not exists (select from pg_index x
                                    where x.indrelid = c.oid and x.indisprimary)
                    then 'no primary key' end as leaf,
             case when (select count(*) from pg_proc p
                         where p.proname = 'pop_' || b.block
                           and p.pronamespace = 'tuskline_core'::regnamespace
                           and position(format('queue_%s ', q.queue_id) in p.prosrc) > 0
                            or p.proname = 'pop'
                           and p.pronamespace = 'tuskline_core'::regnamespace
                           and position(format('pop_%s(', b.block) in p.prosrc) > 0) < 2
                    then 'no statements in pop_' || b.block end as verb
        from tuskline.queue q
             cross join lateral (select tuskline_core.block_of(q.queue_id) as block) b
             left join pg_class c on c.relname = 'queue_' || q.queue_id and c.relkind = 'r'
              and c.relnamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace)
             left join pg_inherits i on i.inhrelid = c.oid
              and i.inhparent = 'tuskline.queued'::regclass) d
   where coalesce(d.leaf, d.verb) is not null
   order by d.queue_id
$$;
comment on function tuskline_core.damaged_queues() is
  'Queues whose leaf table, primary key or statements are missing.';

-- Lists the segments that lack a part, and the id ranges whose current segment is missing.
--
-- A row of tuskline.segment needs an attached table with a primary key, and two functions
-- (take_<n>, end_<n>). An attached table needs a row.
--
-- Race: a janitor that retires a segment leaves parts of it missing for a while. A segment before
-- the current one counts only while no session holds the retention guard, unless it still has its
-- table. A segment that was set aside (gone_<n>) never counts.
create or replace function tuskline_core.damaged_segments()
returns table (name text, number bigint, problem text, remedy text)
language sql stable as $$
  with a as (
    select tuskline_core.segment_of(i.last_value) as current,
           tuskline_core.segment_of(i.first_id) as first,
           tuskline_core.segment_of(i.last_id) as last
      from tuskline_core.id_range() i
  ), t as (
    select c.oid, substr(c.relname, 6)::bigint as no, i.inhrelid is not null as attached,
           coalesce(i.inhdetachpending, false) as pending
      from pg_class c
           left join pg_inherits i on i.inhrelid = c.oid
            and i.inhparent = 'tuskline_core.task_store'::regclass
     where c.relnamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace)
       and c.relkind = 'r' and c.relname ~ '^task_[0-9]{1,12}$'
  ), d as (
    select coalesce(g.segment_no, t.no) as no,
           case when t.oid is null then 'no table'
                when not t.attached then 'table not attached'
                when not exists (select from pg_index x
                                  where x.indrelid = t.oid and x.indisprimary)
                  then 'no primary key' end as leaf,
           case when g.segment_no is null then 'no row in tuskline.segment' end as listed,
           (select 'no function ' || string_agg(v.verb, ', ')
              from unnest('{take_,end_}'::text[]) as w (stem)
                   cross join lateral (select w.stem || coalesce(g.segment_no, t.no) as verb) v
             where not exists (select from pg_proc p
                                where p.proname = v.verb
                                  and p.pronamespace in ('tuskline'::regnamespace,
                                                         'tuskline_core'::regnamespace))) as verbs
      from tuskline.segment g full join t on t.no = g.segment_no
     where not coalesce(t.pending, false)
       and (g.segment_no is not null or t.attached)
       and to_regclass('tuskline_core.gone_' || coalesce(g.segment_no, t.no)) is null
  )
  select 'task_' || d.no, d.no, concat_ws(', ', d.leaf, d.listed, d.verbs),
         'make what is missing'
    from d
   where coalesce(d.leaf, d.listed, d.verbs) is not null
     and (d.leaf is null or d.leaf = 'no primary key'
          or d.no >= (select a.current from a where d.no between a.first and a.last)
          or tuskline_core.lock_holders(
               'tuskline_core.retention_guard', '{ShareRowExclusiveLock}') is null)
  union all
  select 'next', a.current, format('ids begin at segment %s, which is missing', a.current),
         'make the segments up to there, and 8 ahead'
    from a
   where not exists (select from tuskline.segment g where g.segment_no = a.current)
   order by 2
$$;
comment on function tuskline_core.damaged_segments() is
  'Segments whose table, primary key, row or functions are missing, '
  'without those that are being retired.';

-- Tells which functions PUBLIC may execute and should not, or should and may not.
--
-- The manifest of verbs names those that it should execute.
-- The data of a dump may bring rights into a schema whose rights_in_use says that there are none.
create or replace function tuskline_core.wrong_rights() returns table (problem text)
language sql stable set search_path = pg_catalog, pg_temp as $$
  with w as (
    select replace(w.privilege, 'execute on function ', '') as name
      from tuskline_core.wanted_grants() w where w.grantee = 'public'),
  f as (
    select p.oid::regprocedure::text as name
      from pg_proc p
           cross join lateral aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) x
     where p.pronamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace)
       and x.grantee = 0)
  select format('may execute %s functions', count(*))
    from f where f.name not in (select w.name from w) having count(*) > 0
  union all
  select format('may not execute %s', w.name)
    from w where w.name not in (select f.name from f)
  union all
  select 'rights_in_use() contradicts lambda_grant'
   where tuskline_core.rights_in_use() <> exists (select from tuskline.lambda_grant)
$$;
comment on function tuskline_core.wrong_rights() is
  'Functions that PUBLIC may execute and should not, or should and may not. And rights on lambdas '
  'that no verb checks.';

-- Lists the queues that have rows of another lambda, or no row although a task is enqueued.
--
-- With a row of another lambda, a worker would execute a task that it does not serve. An enqueued
-- task without a queue row waits for find_stalled, up to half an hour.
-- Both are samples, so that `tuskline doctor` stays cheap: 20 rows of each of 200 queues, and the
-- last 1000 tasks of each segment that is not sealed. An enqueued task counts only if its queue is
-- empty. Each queue is looked up once, not once for each of these tasks.
--
-- Planner: the settings pin scans of the primary keys in order. Otherwise a bitmap scan reads the
-- whole segment before the limit applies.
create or replace function tuskline_core.wrong_queue_rows() returns table (name text, problem text)
language sql stable
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
  (select 'queue_' || q.queue_id, format('names tasks of lambda %s, is of %s', w.lambda, q.lambda)
     from (select * from tuskline.queue order by queue_id limit 200) q
          cross join lateral (
            select t.lambda
              from (select d.task_id from tuskline.queued d where d.queue_id = q.queue_id
                     order by d.seq limit 20) s
                   cross join lateral (select t.lambda from tuskline.task t
                                        where t.id = s.task_id) t
             where t.lambda <> q.lambda limit 1) w limit 5)
  union all
  (select 'queue_' || q.queue_id, format('is empty, and task %s is enqueued', e.id)
     from (select t.lambda, t.priority, min(t.id) as id
             from tuskline.segment g
                  cross join lateral (
                    select t.id, t.lambda, t.priority, t.status from tuskline.task t
                     where t.id between g.segment_no << 24 and ((g.segment_no + 1) << 24) - 1
                     order by t.id desc limit 1000) t
            where g.sealed_at is null and t.status = 'enqueued'
            group by t.lambda, t.priority) e
          join tuskline.queue q on q.lambda = e.lambda and q.priority = e.priority
    where not exists (select from tuskline.queued d where d.queue_id = q.queue_id)
    limit 5)
$$;
comment on function tuskline_core.wrong_queue_rows() is
  'Queues with rows of another lambda, or empty although tasks are enqueued. A sample.';

-- Lists the casts from text and varchar to the enum types that do not exist.
--
-- A cast belongs to no schema, so a dump of one schema leaves it out. Without these casts
-- SQLAlchemy cannot insert.
create or replace function tuskline_core.missing_casts()
returns table (source regtype, target regtype)
language sql stable as $$
  select s.source, t.target
    from unnest('{text,varchar}'::regtype[]) as s (source)
         cross join unnest('{tuskline.status,tuskline.priority}'::regtype[]) as t (target)
   where not exists (select from pg_cast c
                      where c.castsource = s.source and c.casttarget = t.target)
   order by t.target::text, s.source::text
$$;
comment on function tuskline_core.missing_casts() is
  'Casts from text and varchar to the enum types that are missing.';

create or replace function tuskline.damage()
returns table (part text, name text, number bigint, problem text, remedy text)
language sql stable security definer set search_path = pg_catalog, pg_temp set jit = off as $$
  select 'sequence', s.name, s.used,
         format('stands at %s, rows have %s', s.issued, s.used),
         'raise the sequence'
    from tuskline_core.sequences_behind() s
  union all
  select 'ids', 'ids_raised', null, 'no sequence', 'make it, and raise task ids'
   where to_regclass('tuskline_core.ids_raised') is null
  union all
  select 'installation', null, null, 'no row', 'write the name default'
   where not exists (select from tuskline.installation)
  union all
  select 'lambda', l.name, null,
         'no queue of priority ' || string_agg(e.p::text, ', ' order by e.p), 'make the queues'
    from tuskline.lambda l cross join unnest(enum_range(null::tuskline.priority)) as e (p)
   where not exists (select from tuskline.queue q where q.lambda = l.name and q.priority = e.p)
   group by l.name
  union all
  select 'queue', d.name, d.number, d.problem, d.remedy from tuskline_core.damaged_queues() d
  union all
  select 'table', m.name, null, 'missing', 'make the table' from tuskline_core.missing_tables() m
  union all
  select case d.name when 'next' then 'segments' else 'segment' end, d.name, d.number,
         d.problem, d.remedy
    from tuskline_core.damaged_segments() d
  union all
  select 'cast', format('%s as %s', c.source, c.target), null, 'missing', 'make the cast'
    from tuskline_core.missing_casts() c
  union all
  select 'trigger', 'route', null, case when t.oid is null then 'missing' else 'disabled' end,
         'every INSERT is routed again'
    from (values ('tuskline.task'::regclass)) as r (task)
         left join pg_trigger t on t.tgrelid = r.task and t.tgname = 'route'
   where t.oid is null or t.tgenabled = 'D'
  union all
  select 'rights', 'PUBLIC', null, string_agg(r.problem, ', ' order by r.problem),
         'revoke and grant'
    from tuskline_core.wrong_rights() r having count(*) > 0
  union all
  select 'queue rows', 'all', null, string_agg(d.name || ' ' || d.problem, ', ' order by d.name),
         'fill the queues from the task store'
    from tuskline_core.wrong_queue_rows() d
   where exists (select from tuskline_core.queues_complete) -- else the line queues says it
  having count(*) > 0
  union all
  select 'queues', 'all', null, 'lost in a crash or failover', 'rebuild'
   where not exists (select from tuskline_core.verified_incarnation)
$$;
comment on function tuskline.damage() is
  'Parts that the rows need and the catalogue does not have, and what repair() does about each.';
