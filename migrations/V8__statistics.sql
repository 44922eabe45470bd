-- Tables of statistics. Counts wait in two unlogged tables, which have no hot row: each worker and
-- each verb adds rows of its own. Once a minute fold_statistics() moves them into three tables of
-- totals, one row per active queue, lambda or worker. A crash loses the counts of the last minute.

create unlogged table tuskline_core.attempt_count (
  seq         bigint generated always as identity primary key,
  at          timestamptz not null,
  executor_id bigint not null,
  queue_ids   integer[] not null,
  counters    smallint[] not null,
  amounts     bigint[] not null);
comment on table tuskline_core.attempt_count is
  'Counts of attempts that workers have sent with report_attempts(), until they are folded.';
comment on sequence tuskline_core.attempt_count_seq_seq is 'Order of arrival.';
comment on column tuskline_core.attempt_count.seq is 'Order of arrival.';
comment on column tuskline_core.attempt_count.at is 'When they arrived.';
comment on column tuskline_core.attempt_count.executor_id is 'Worker that sent them.';
comment on column tuskline_core.attempt_count.queue_ids is
  'Queue of each count. counters and amounts are parallel.';
comment on column tuskline_core.attempt_count.counters is
  'What was counted: 1 success, 2 retriable_failure, 3 fatal_failure, 4 snoozed, 5 cancelled, '
  '6 refused, 100 ms from due to start, 101 to 116 starts by bucket of that delay, 200 ms of '
  'run time, 201 to 216 ended attempts by bucket of their run time. See histogram_edges().';
comment on column tuskline_core.attempt_count.amounts is 'How many, or how many ms.';

create type tuskline_core.counted_event as enum (
  'dead', 'crashed', 'cancelled', 'dropped', 'due', 'gate', 'limit', 'order', 'dependency');
comment on type tuskline_core.counted_event is
  'dead, cancelled, dropped: ends of tasks. crashed: attempts whose worker died. The rest are ends '
  'of waits, by cause.';

create unlogged table tuskline_core.event_count (
  seq      bigint generated always as identity primary key,
  at       timestamptz not null,
  lambda   text not null,
  priority tuskline.priority,
  event    tuskline_core.counted_event not null,
  bucket   smallint,
  events   integer not null,
  total_ms bigint not null);
comment on table tuskline_core.event_count is
  'Counts of events that verbs have noted with count_ends() and count_waits(), until they are '
  'folded.';
comment on sequence tuskline_core.event_count_seq_seq is 'Order of arrival.';
comment on column tuskline_core.event_count.seq is 'Order of arrival.';
comment on column tuskline_core.event_count.at is 'When they happened.';
comment on column tuskline_core.event_count.lambda is 'Lambda of the tasks.';
comment on column tuskline_core.event_count.priority is
  'Priority of the tasks. Null: they are counted for the lambda.';
comment on column tuskline_core.event_count.event is 'The event.';
comment on column tuskline_core.event_count.bucket is
  'Bucket of the waits, see histogram_edges(). Null: the event is no wait.';
comment on column tuskline_core.event_count.events is 'How many.';
comment on column tuskline_core.event_count.total_ms is 'Sum of the waits in ms.';

create table tuskline_core.statistics_mark (
  is_only      boolean primary key default true check (is_only),
  attempt_seq  bigint not null default 0,
  event_seq    bigint not null default 0,
  folded_at    timestamptz not null default '-infinity',
  swept_at     timestamptz not null default '-infinity',
  purged_at    timestamptz not null default '-infinity'
) with (fillfactor = 50);
insert into tuskline_core.statistics_mark default values;
comment on table tuskline_core.statistics_mark is
  'One row, locked by the janitor that folds the counts.';
comment on column tuskline_core.statistics_mark.is_only is 'True: there is one row.';
comment on column tuskline_core.statistics_mark.attempt_seq is
  'Rows of attempt_count up to this number are folded, except those that were committed late.';
comment on column tuskline_core.statistics_mark.event_seq is 'The same for event_count.';
comment on column tuskline_core.statistics_mark.folded_at is 'When the counts were last folded.';
comment on column tuskline_core.statistics_mark.swept_at is
  'When the counts were last searched from the first row, for late commits.';
comment on column tuskline_core.statistics_mark.purged_at is
  'When statistics past their retention were last deleted.';

create table tuskline.queue_statistic (
  queue_id          integer not null,
  at                timestamptz not null,
  success           bigint not null,
  retriable_failure bigint not null,
  fatal_failure     bigint not null,
  snoozed           bigint not null,
  cancelled         bigint not null,
  refused           bigint not null,
  dead              bigint not null,
  crashed           bigint not null,
  dropped           bigint not null,
  start_ms          bigint not null,
  starts            bigint[] not null,
  run_ms            bigint not null,
  runs              bigint[] not null,
  primary key (queue_id, at));
comment on table tuskline.queue_statistic is
  'Totals of each queue since it was made, one row per minute in which it was active. Append-only. '
  'The view queue_statistics shows the differences.';
comment on column tuskline.queue_statistic.queue_id is 'The queue.';
comment on column tuskline.queue_statistic.at is 'Time up to which the totals count.';
comment on column tuskline.queue_statistic.success is 'Attempts that succeeded.';
comment on column tuskline.queue_statistic.retriable_failure is
  'Attempts that failed and may be retried, also the last one of a task that is dead then.';
comment on column tuskline.queue_statistic.fatal_failure is 'Attempts that failed for good.';
comment on column tuskline.queue_statistic.snoozed is 'Attempts that ended with a snooze.';
comment on column tuskline.queue_statistic.cancelled is
  'Tasks that were cancelled, before or during an attempt.';
comment on column tuskline.queue_statistic.refused is
  'Results that were refused, because the attempt was no longer the current one.';
comment on column tuskline.queue_statistic.dead is 'Tasks that became dead.';
comment on column tuskline.queue_statistic.crashed is 'Attempts that ended with their worker.';
comment on column tuskline.queue_statistic.dropped is 'Tasks that a gate dropped.';
comment on column tuskline.queue_statistic.start_ms is
  'Sum of the delays from due to the start of the first attempt, in ms.';
comment on column tuskline.queue_statistic.starts is
  'First attempts by bucket of that delay, see histogram_edges().';
comment on column tuskline.queue_statistic.run_ms is 'Sum of the run times of attempts, in ms.';
comment on column tuskline.queue_statistic.runs is 'Ended attempts by bucket of their run time.';

create table tuskline.wait_statistic (
  lambda   text not null,
  cause    text not null check (cause in ('due', 'gate', 'limit', 'order', 'dependency')),
  at       timestamptz not null,
  total_ms bigint not null,
  waits    bigint[] not null,
  primary key (lambda, cause, at));
comment on table tuskline.wait_statistic is
  'Totals of ended waits of each lambda by cause, one row per minute in which one ended. '
  'Append-only. The view wait_statistics shows the differences.';
comment on column tuskline.wait_statistic.lambda is 'The lambda.';
comment on column tuskline.wait_statistic.cause is
  'due: from the schedule to the due time. gate: parked behind a gate on a collection. limit: for '
  'a permit. order: for an earlier task of the key. dependency: for parents.';
comment on column tuskline.wait_statistic.at is 'Time up to which the totals count.';
comment on column tuskline.wait_statistic.total_ms is 'Sum of the waits in ms.';
comment on column tuskline.wait_statistic.waits is 'Waits by bucket, see histogram_edges().';

create table tuskline.executor_statistic (
  executor_id bigint not null,
  at          timestamptz not null,
  success     bigint not null,
  failed      bigint not null,
  refused     bigint not null,
  run_ms      bigint not null,
  primary key (executor_id, at));
comment on table tuskline.executor_statistic is
  'Totals of each worker since it registered, one row per minute in which it was active. '
  'Append-only. The view executor_statistics shows the differences.';
comment on column tuskline.executor_statistic.executor_id is 'The worker.';
comment on column tuskline.executor_statistic.at is 'Time up to which the totals count.';
comment on column tuskline.executor_statistic.success is 'Attempts that succeeded.';
comment on column tuskline.executor_statistic.failed is
  'Attempts that failed, for good or to be retried.';
comment on column tuskline.executor_statistic.refused is 'Results that were refused.';
comment on column tuskline.executor_statistic.run_ms is 'Sum of the run times, in ms.';
