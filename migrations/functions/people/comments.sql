-- Describes the columns of all views, for psql (d+) and other clients of a DBA.
--
-- A column that a view takes from a table has the comment of that table. The block copies it, so
-- the text is written once. Then each column gets its text that a view computes, or whose null
-- means something else there.
do $$
declare
  r record;
begin
  for r in
    select format('comment on column %s.%I is %L', v.attrelid::regclass, v.attname,
                  col_description(t.attrelid, t.attnum)) as copy
      from (select s.*, row_number() over () as no from (values
             ('all_tasks', 'task'), ('tasks', 'task'), ('queues', 'queue'), ('lambdas', 'lambda'),
             ('executors', 'executor'), ('attempts', 'task_failure'), ('waiting', 'task'),
             ('gates', 'gate'), ('limits', 'task_limit'), ('blocked_keys', 'task'),
             ('chain_tasks', 'task'), ('chain_tasks', 'chain_task'),
             ('unique_keys', 'unique_policy'), ('periodics', 'periodic'),
             ('dead_letters', 'task'), ('dead_letters', 'dead_letter'),
             ('breakers', 'breaker'), ('operations', 'operation'),
             ('queue_statistics', 'queue'), ('queue_statistics', 'queue_statistic'),
             ('wait_statistics', 'wait_statistic'), ('executor_statistics', 'executor'),
             ('executor_statistics', 'executor_statistic'),
             ('lambda_grants', 'lambda_grant'), ('acts', 'audit')) as s (view, source)) u
           join pg_attribute v on v.attrelid = coalesce(
             to_regclass('tuskline.' || u.view), to_regclass('tuskline_core.' || u.view))
           join pg_attribute t
             on t.attrelid = to_regclass('tuskline.' || u.source) and t.attname = v.attname
     where v.attnum > 0 and t.attnum > 0
     order by u.no -- if both tables have the column, the second comment is used
  loop
    execute r.copy;
  end loop;
end $$;

comment on column tuskline.tasks.due_at is
  'When its first attempt is due: scheduled_at, or created_at if it was scheduled for no later '
  'time. next_trigger_at has the due time of a retry.';

comment on column tuskline_core.all_tasks.due_at is 'See tuskline.tasks.due_at.';

comment on column tuskline.lambda_grants.role_is_gone is
  'No role has this name. A new role of the name would have the right.';

comment on column tuskline.queues.depth is 'Rows in the queue now (counted).';
comment on column tuskline.queues.leaf is 'Table of its rows, in schema tuskline_core.';
comment on column tuskline.queues.live_workers is
  'Workers that serve its lambda and have not ended, are not silent and are not draining.';

comment on column tuskline.lambdas.depth is 'Rows in its queues now (counted).';
comment on column tuskline.lambdas.live_workers is
  'Workers that serve it and have not ended, are not silent and are not draining.';

comment on column tuskline.executors.state is
  'alive. draining: claims nothing more. silent: no heartbeat for a lease, by the clock of the '
  'database. Or end_reason: stopped, expired, adopted, copied, replaced.';
comment on column tuskline.executors.leases is 'Leases that it holds: batches of claimed tasks.';

comment on column tuskline.attempts.fence is 'Fence of the task in that attempt.';
comment on column tuskline.attempts.executor_id is
  'Worker of the attempt. Null: the attempt did not fail and its lease is gone.';
comment on column tuskline.attempts.outcome is
  'running, success, cancelled, retriable_failure, fatal_failure, dead. crashed: its worker died.';
comment on column tuskline.attempts.started_at is 'When it was handed to a worker.';
comment on column tuskline.attempts.ended_at is 'When it ended. Null: it is running.';
comment on column tuskline.attempts.error_class is
  'error, fatal, panic, decode, timeout, crash or a class that the lambda gave. Null: no failure.';
comment on column tuskline.attempts.message is
  'Error message, at most 8 KB. Null: the attempt has not failed.';
comment on column tuskline.attempts.fingerprint is
  'Hash of class and message with the digits masked: equal for failures of one cause. Null: no '
  'failure.';

comment on column tuskline.waiting.due is
  'When the wait is over: the due time, or the end of the gate. Null: no time is known.';
comment on column tuskline.waiting.due_in is
  'Time until due. Negative: it is overdue. Null: no time is known.';
comment on column tuskline.waiting.reason is
  'Reason of the wait: due time, last failure, gate, limit, ordering policy or parent.';

comment on column tuskline.gates.parked is 'Tasks that it holds now (counted).';

comment on column tuskline.limits.held is 'Permits that tasks hold now (counted).';
comment on column tuskline.limits.waiting is 'Tasks that wait for a permit now (counted).';

comment on column tuskline.blocked_keys.ordering_key is 'Key that is blocked.';
comment on column tuskline.blocked_keys.task_id is 'Task that failed and blocks the key.';
comment on column tuskline.blocked_keys.status is 'Status of that task: dead or fatal_failure.';
comment on column tuskline.blocked_keys.blocked_since is 'When that task ended.';
comment on column tuskline.blocked_keys.waiting is 'Tasks that wait for the key (counted).';

comment on column tuskline.chain_tasks.lambda is
  'Lambda that executes it. Null: the task was deleted.';
comment on column tuskline.chain_tasks.status is
  'Its state, see the type tuskline.status. Null: the task was deleted.';
comment on column tuskline.chain_tasks.parents is 'Tasks that it depends on, in id order.';
comment on column tuskline.chain_tasks.conditions is
  'End that it waits for, of each parent: success, failure or always.';
comment on column tuskline.chain_tasks.created_at is
  'When it was scheduled. Null: the task was deleted.';
comment on column tuskline.chain_tasks.started_at is
  'When its latest attempt was handed to a worker. Null: none was, or the task was deleted.';
comment on column tuskline.chain_tasks.finished_at is
  'When it became terminal. Null: it has not ended, or the task was deleted.';

comment on column tuskline.chains.chain_id is 'Number of the chain: the id of its first task.';
comment on column tuskline.chains.tasks is 'Tasks of the chain (counted).';
comment on column tuskline.chains.ended is 'Tasks that have ended, in any way.';
comment on column tuskline.chains.failed is 'Tasks that ended as dead or fatal_failure.';
comment on column tuskline.chains.cancelled is 'Tasks that ended as cancelled.';
comment on column tuskline.chains.created_at is
  'When its first task was scheduled. Null: all its tasks were deleted.';
comment on column tuskline.chains.finished_at is
  'When the latest of its ended tasks ended. Null: none has ended.';

comment on column tuskline.unique_keys.keys is
  'Keys on record (counted), also those that no task holds any more.';

comment on column tuskline.periodics.next_tick is
  'First tick after the last one that was fired or skipped. Null: there is none, or a server has '
  'to calculate it (see problem).';
comment on column tuskline.periodics.last_status is
  'Status of last_task. Null: there is none, or it was deleted.';
comment on column tuskline.periodics.problem is
  'Problem that keeps its ticks from firing, or the error of the last tick. Null: none, or it is '
  'paused.';

comment on column tuskline.dead_letters.error_class is
  'Class of its last failure. Null: it has no record of one.';
comment on column tuskline.dead_letters.message is
  'Message of its last failure. Null: it has no record of one.';
comment on column tuskline.dead_letters.failures is 'Failed attempts on record.';
comment on column tuskline.dead_letters.first_failed_at is
  'When its first attempt failed. Null: no failure is on record.';
comment on column tuskline.dead_letters.last_failed_at is
  'When its last attempt failed. Null: no failure is on record.';
comment on column tuskline.dead_letters.finished_at is 'When it ended.';
comment on column tuskline.dead_letters.expires_at is
  'When its retention is over. A redrive can restart it until then.';

comment on column tuskline.dead_groups.lambda is 'The lambda.';
comment on column tuskline.dead_groups.fingerprint is
  'Fingerprint of their last failure: the cause.';
comment on column tuskline.dead_groups.tasks is 'Dead letters of this lambda and cause (counted).';
comment on column tuskline.dead_groups.error_class is
  'Class of the last failure of latest_id. Null: it has no record of one.';
comment on column tuskline.dead_groups.message is
  'Message of the last failure of latest_id. Null: it has no record of one.';
comment on column tuskline.dead_groups.first_died_at is 'When the first of them ended.';
comment on column tuskline.dead_groups.last_died_at is 'When the last of them ended.';
comment on column tuskline.dead_groups.oldest_id is 'Lowest task id among them.';
comment on column tuskline.dead_groups.latest_id is 'Highest task id among them.';

comment on column tuskline.breakers.state is
  'watching. tripped: its gate holds the lambda. probing: one task runs as a probe.';
comment on column tuskline.breakers.next_probe_at is
  'When the next probe may start. Null: it is not tripped, or a probe runs.';
comment on column tuskline.breakers.parked is 'Tasks that its gate holds now. 0: no gate is set.';

comment on column tuskline.operations.state is
  'running. canary: it waits for the ends of the watched tasks. done: nothing is left to do. '
  'died_again: stopped by its canary. stopped: by stop_operation().';
comment on column tuskline.operations.ids is 'Number of tasks that it was given. Null: no ids.';
comment on column tuskline.operations.locked is
  'Tasks that another transaction had locked. The operation returns to them.';
comment on column tuskline.operations.died_again is
  'Tasks that it released and that died again (counted). Redrive only, else 0.';

comment on column tuskline.queue_statistics.from_at is 'Begin of the interval.';
comment on column tuskline.queue_statistics.at is 'End of the interval, usually a minute later.';
comment on column tuskline.queue_statistics.start_p50_ms is
  'Median delay from due to the start of the first attempt, in ms. Null: none started.';
comment on column tuskline.queue_statistics.start_p95_ms is
  '95th percentile of that delay, in ms. The objective is 5000. Null: none started.';
comment on column tuskline.queue_statistics.run_p50_ms is
  'Median run time of attempts, in ms. Null: none ended.';
comment on column tuskline.queue_statistics.run_p95_ms is
  '95th percentile of the run times, in ms. Null: none ended.';

comment on column tuskline.wait_statistics.from_at is 'Begin of the interval.';
comment on column tuskline.wait_statistics.at is 'End of the interval, usually a minute later.';
comment on column tuskline.wait_statistics.waits is 'Waits that ended.';
comment on column tuskline.wait_statistics.p50_ms is 'Median of these waits, in ms.';
comment on column tuskline.queue_statistics.start_max_ms is
  'Bound of these delays in ms: the longest one, or the end of its bucket. Null: not known.';
comment on column tuskline.queue_statistics.run_max_ms is 'The same of these run times.';
comment on column tuskline.wait_statistics.p95_ms is '95th percentile of these waits, in ms.';

comment on column tuskline.executor_statistics.from_at is 'Begin of the interval.';
comment on column tuskline.executor_statistics.at is
  'End of the interval, usually a minute later.';
comment on column tuskline.executor_statistics.busy is
  'Attempts that it ran at the same time, on average: run time divided by the length of the '
  'interval. An attempt counts in the interval in which it ends.';
