-- Rights of roles on lambdas.

-- Replaced by functions/rights/caller.sql. Columns need it for their defaults.
create function tuskline_core.caller() returns name language sql stable as 'select session_user';
comment on function tuskline_core.caller() is
  'The role for which rights are checked: the role that the session has set, else its login.';

-- Altered first, because a registration reads installation and lambda, and a scheduling call reads
-- queue, before other tables.
alter table tuskline.installation alter column named_by set default tuskline_core.caller();
alter table tuskline.lambda alter column owner set default tuskline_core.caller();
alter table tuskline.queue add column schedulers text[];
comment on column tuskline.queue.schedulers is
  'Roles with the right schedule or own on the lambda. Null: the lambda is open. It stands here so '
  'that scheduling reads one row.';

-- Facts about this life of the database: whether task ids were raised since it began, which
-- executor numbers it issues, and which leases its recovery knew.

-- Unlogged, so a crash and a promotion reset it. One read of a sequence tells a call of schedule
-- that it is the first of a new life.
create unlogged sequence tuskline_core.ids_raised minvalue -9223372036854775808 start 1;
comment on sequence tuskline_core.ids_raised is
  'When task ids were raised, in microseconds of the clock. Not called yet: this life of the '
  'database has not raised them. Negative: a call did, and the recovery is still to come.';
-- The functions of this set are not there yet: a recovery that is due finds a number and raises
-- ids.
select setval('tuskline_core.ids_raised', 1);

-- Altered before other tables: an exchange reads it before them (verified_incarnation).
alter table tuskline_core.incarnation
  add column first_executor bigint not null default 0,
  add column former_lease interval not null default '20 seconds';
comment on column tuskline_core.incarnation.first_executor is
  'First executor number that this life of the database can issue. 0: not noted.';
comment on column tuskline_core.incarnation.former_lease is
  'How long claims wait after the recovery if a heartbeat shows a lost future: the longest lease '
  'that the recovery knew, and at least 20 s unless this is a copy.';

-- Claims compare these with the caller. Null: it registered before this migration (note_rights).
alter table tuskline_core.live_executor
  add column role name,
  add column queues integer[];
comment on column tuskline_core.live_executor.role is
  'Copy of executor.role: the role that registered it.';
comment on column tuskline_core.live_executor.queues is
  'Queues of the lambdas for which it registered. Read only while rights are in use.';
alter table tuskline.executor alter column role set default tuskline_core.caller();
comment on column tuskline.executor.role is
  'Role that registered it: the role that the session had set, else its login.';

create table tuskline.lambda_grant (
  lambda     text not null,
  role       name not null,
  privilege  text not null check (privilege in ('schedule', 'work', 'inspect', 'operate', 'own')),
  granted_by name not null default tuskline_core.caller(),
  granted_at timestamptz not null default tuskline.clock(),
  primary key (lambda, role, privilege));
comment on table tuskline.lambda_grant is
  'Rights of roles on lambdas. A lambda that some role owns is closed: only roles with a right use '
  'it. Change rows with grant_lambda() and revoke_lambda().';
comment on column tuskline.lambda_grant.lambda is 'The lambda. *: every closed lambda.';
comment on column tuskline.lambda_grant.role is
  'Name of the role that has the right. Roles that inherit from it have it, too.';
comment on column tuskline.lambda_grant.privilege is
  'schedule, work, inspect, operate or own. own includes all.';
comment on column tuskline.lambda_grant.granted_by is 'Role that granted it.';
comment on column tuskline.lambda_grant.granted_at is 'When it was granted.';

alter table tuskline.cancellation alter column requested_by set default tuskline_core.caller();
alter table tuskline.gate alter column author set default tuskline_core.caller();
alter table tuskline.task_limit alter column author set default tuskline_core.caller();
alter table tuskline.unique_policy alter column author set default tuskline_core.caller();
alter table tuskline.definition alter column author set default tuskline_core.caller();
alter table tuskline.periodic alter column author set default tuskline_core.caller();
alter table tuskline.breaker alter column author set default tuskline_core.caller();
alter table tuskline.audit alter column actor set default tuskline_core.caller();
alter table tuskline.audit add column person text;
alter table tuskline.audit
  alter column person set default nullif(current_setting('tuskline.person', true), '');
comment on column tuskline.audit.person is
  'The person behind the role, as the pages or another gateway say it (tuskline.person). It is not '
  'checked: the role is. Null: not said.';

-- A rate limit bounds starts. A start is a claim, so a rate permit is spent by the claim of its
-- task: permit.fence tells, and rate_state counts the permits that no claim has spent.

alter table tuskline.permit add column fence bigint;
comment on column tuskline.permit.fence is
  'Rate: the fence of the task when it acquired the permit. The next claim gives the task a new '
  'fence, which spends the permit. Null: concurrency and order.';
comment on column tuskline.permit.permit_no is
  'Concurrency and order: from 1. Rate: counts up (rate_state.last_no).';
comment on table tuskline.permit is
  'Permits that tasks hold. A task acquires one before it is enqueued and releases it when its '
  'attempt ends; under an ordering policy when the task ends. A claim spends a rate permit; its '
  'row stays until the limit counts it (settle_rate).';

alter table tuskline_core.rate_state
  add column last_no bigint not null default 0,
  add column unspent integer not null default 0,
  add column settled_no bigint not null default 0,
  add column looks_at timestamptz not null default '-infinity';
comment on table tuskline_core.rate_state is
  'Token bucket of each rate limit and key. Written under the row lock of the limit.';
comment on column tuskline_core.rate_state.next_at is
  'When the next task may start, by the claims that are counted. It counts as at most burst - 1 '
  'tokens in the past.';
comment on column tuskline_core.rate_state.last_no is 'Number of the last permit.';
comment on column tuskline_core.rate_state.unspent is
  'Permits that are not counted as spent: an upper bound of those that are not claimed yet.';
comment on column tuskline_core.rate_state.settled_no is
  'All permits up to this number are counted. A scan starts behind it, to skip dead rows.';
comment on column tuskline_core.rate_state.looks_at is
  'When the first waiter looks again. Before that, no task that joins counts the spent permits.';

-- Permits of running and ended tasks are spent; the bucket has counted them.
delete from tuskline.permit s using tuskline.task_limit r
 where r.limit_id = s.limit_id and r.kind = 'rate'
   and not exists (
     select from tuskline.task t
      where t.id = s.task_id and t.status in ('new', 'retriable_failure', 'enqueued'));
update tuskline.permit s set fence = t.fence
  from tuskline.task t, tuskline.task_limit r
 where t.id = s.task_id and r.limit_id = s.limit_id and r.kind = 'rate';
update tuskline_core.rate_state p
   set unspent = c.held, last_no = c.last_no
  from (select s.limit_id, s.key, count(*)::integer as held, max(s.permit_no) as last_no
          from tuskline.permit s where s.fence is not null group by s.limit_id, s.key) c
 where c.limit_id = p.limit_id and c.key = p.key;

-- The longest durations of the statistics. A bucket of a histogram is wide, so a quantile that is
-- interpolated within it may exceed every duration that was counted.

alter table tuskline_core.event_count add column max_ms bigint;
comment on column tuskline_core.event_count.max_ms is
  'Longest of the waits in ms. Null: it is one wait, or not known.';
comment on column tuskline_core.attempt_count.counters is
  'What was counted: 1 success, 2 retriable_failure, 3 fatal_failure, 4 snoozed, 5 cancelled, '
  '6 refused, 100 ms from due to start, 101 to 116 starts by bucket of that delay, 117 the longest '
  'of these delays in microseconds, 200 ms of run time, 201 to 216 ended attempts by bucket of '
  'their run time, 217 the longest run time in microseconds. See histogram_edges().';

alter table tuskline.queue_statistic add column start_max_us bigint, add column run_max_us bigint;
comment on column tuskline.queue_statistic.start_max_us is
  'Bound of the delays counted since the row before, in microseconds: the longest one, or the '
  'upper bound of the last bucket if a worker did not tell it. Null: not known.';
comment on column tuskline.queue_statistic.run_max_us is 'The same of the run times.';

alter table tuskline.wait_statistic add column max_ms bigint;
comment on column tuskline.wait_statistic.max_ms is
  'Bound of the waits counted since the row before, in ms. Null: not known.';

-- Erases find by it which failures belong to a payload that a redrive replaced.
alter table tuskline.redriven add column replaced_at timestamptz;
comment on column tuskline.redriven.replaced_at is
  'When its payload was replaced. Null: it was not, or an earlier version replaced it.';

-- Read by each registration of a worker.
alter table tuskline.installation add column max_lease interval not null default '1 hour';
comment on column tuskline.installation.max_lease is
  'Longest lease with which a worker may register. Change it with set_max_lease().';

comment on column tuskline.task.flags is
  'Sum of 1: it may hold permits. 2: its attempt is asked to stop. 4: it waits, or waited, for '
  'parents. 8: it was claimed more than once. 1 to 4 save verbs a read of other tables.';

comment on table tuskline_core.task_store is
  'All rows of tuskline.task, without the trigger that routes inserts. For schedule() and '
  'schedule_many(), which route plain tasks themselves.';

-- Each call of a store consumer asks whether there is one (backlogs_in_use). Both change when an
-- owner sets a backlog or one fills up, not with each task.
create index lambda_with_backlog on tuskline.lambda (name) where max_backlog > 0;
create index queue_full on tuskline.queue (queue_id) where is_full;

-- The options that make_leaf gives to the table of a new queue.
do $$
declare
  v_leaf regclass;
begin
  for v_leaf in select i.inhrelid from pg_inherits i where i.inhparent = 'tuskline.queued'::regclass
                 order by 1 loop
    execute format('alter table %s set (autovacuum_vacuum_threshold = 2000,'
      ' autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 2147483647,'
      ' vacuum_truncate = off)', v_leaf);
  end loop;
end $$;

-- A claim says in fields of their own how long a task was queued and whether it was claimed before.
-- Altered last: an exchange that is open waits for the type with locks of other tables.
alter type tuskline_core.exchanged
  add attribute queued_ms integer[],
  add attribute claimed_before boolean[];

alter table tuskline.task_failure add column retry_at timestamptz;
comment on column tuskline.task_failure.retry_at is
  'When the next attempt was due. Null: there was none, or its worker died.';

-- For pages: the newest acts, and those on one task or lambda.
create index audit_at on tuskline.audit (at);
comment on index tuskline.audit_at is 'The newest acts.';
create index audit_subject on tuskline.audit (subject, at);
comment on index tuskline.audit_subject is 'Acts on one task, lambda or other object.';

-- Where a task runs, if its worker is a host controller.
alter table tuskline.progress add column pid integer;
comment on column tuskline.progress.pid is
  'Process that ran the attempt, below its worker. Null: the worker itself.';
alter table tuskline.executor add column processes integer[];
comment on column tuskline.executor.processes is
  'Processes in which a host controller runs attempts. Null: it runs them itself.';

-- Calls that schedule tasks once (schedule_once). Callers of other verbs pay nothing for it.
create table tuskline_core.schedule_request (
  role       text not null,
  request_id text not null,
  digest     bytea not null,
  task_ids   bigint[] not null default '{}',
  noted_at   timestamptz not null default tuskline.clock(),
  primary key (role, request_id)
) with (fillfactor = 80);
comment on table tuskline_core.schedule_request is
  'Requests of each role that have scheduled tasks, for a day. A request is repeated if its answer '
  'is lost; its row tells that it was done. Written in the transaction of the tasks.';
comment on column tuskline_core.schedule_request.role is
  'Name of the calling role, as a text: the type name takes 64 bytes in each row.';
comment on column tuskline_core.schedule_request.request_id is
  'The name that the caller gave to the request.';
comment on column tuskline_core.schedule_request.digest is
  'SHA-256 of the tasks that were asked for, without their trace context.';
comment on column tuskline_core.schedule_request.task_ids is
  'What the first call returned, in the order of its tasks.';
comment on column tuskline_core.schedule_request.noted_at is 'When the first call came.';
create index schedule_request_noted_at on tuskline_core.schedule_request (noted_at);
comment on index tuskline_core.schedule_request_noted_at is 'Requests to delete, the oldest first.';
