-- Tables of dead letters and circuit breakers. Only tasks that fail for good and lambdas with a
-- breaker touch them.

create table tuskline.dead_letter (
  task_id     bigint primary key,
  lambda      text not null,
  status      tuskline.status not null,
  fingerprint text not null,
  died_at     timestamptz not null,
  redrive_id  bigint);
create index dead_letter_group on tuskline.dead_letter (lambda, fingerprint, task_id);
create index dead_letter_redrive on tuskline.dead_letter (redrive_id) where redrive_id is not null;
comment on table tuskline.dead_letter is
  'Index of tasks that are dead or fatal_failure: no index of task covers the status. Written by '
  'the transaction that ends the task, deleted when the task starts again.';
comment on index tuskline.dead_letter_group is 'Dead letters of a lambda, grouped by cause.';
comment on index tuskline.dead_letter_redrive is 'Tasks that died again after a redrive.';
comment on column tuskline.dead_letter.task_id is 'The task.';
comment on column tuskline.dead_letter.lambda is 'Its lambda.';
comment on column tuskline.dead_letter.status is
  'dead or fatal_failure. Each may have its own retention.';
comment on column tuskline.dead_letter.fingerprint is 'Fingerprint of its last failure.';
comment on column tuskline.dead_letter.died_at is 'When it ended.';
comment on column tuskline.dead_letter.redrive_id is
  'Redrive that had released it before it died again. Null: none had.';

create table tuskline.redriven (
  task_id     bigint primary key,
  redrive_id  bigint not null,
  fingerprint text not null,
  old_payload json);
comment on table tuskline.redriven is
  'Tasks that a redrive released, so that their next death is counted against it. Deleted with the '
  'task, or when it is retried.';
comment on column tuskline.redriven.task_id is 'The task.';
comment on column tuskline.redriven.redrive_id is 'Latest redrive that released it.';
comment on column tuskline.redriven.fingerprint is
  'Fingerprint of the failure that it had died of.';
comment on column tuskline.redriven.old_payload is
  'Its payload before the redrive replaced it. Null: it was not replaced.';

create table tuskline.breaker (
  lambda       text primary key references tuskline.lambda (name),
  failures     integer not null,
  span         interval not null,
  share        double precision not null,
  probe_after  interval not null,
  author       name not null default session_user,
  set_at       timestamptz not null,
  looked_at    timestamptz not null,
  counted_from timestamptz not null,
  trips        integer not null default 0,
  gate_id      bigint,
  fingerprint  text,
  tripped_at   timestamptz,
  probe_id     bigint,
  probe_at     timestamptz,
  probe_seq    bigint not null default 0
) with (fillfactor = 50);
comment on table tuskline.breaker is
  'Circuit breakers. One sets a gate when too many attempts of a lambda fail of one cause, and '
  'opens it when a probe succeeds. Set with set_breaker(). Read the view breakers.';
comment on column tuskline.breaker.lambda is 'Lambda that it watches.';
comment on column tuskline.breaker.failures is
  'Fewest failed attempts of one fingerprint within the span that trip it.';
comment on column tuskline.breaker.span is 'How far back it counts.';
comment on column tuskline.breaker.share is
  'Least share of these failures in all attempts that ended in the span that trips it, 0 to 1.';
comment on column tuskline.breaker.probe_after is
  'Time from its trip, or from a failed probe, to the next probe.';
comment on column tuskline.breaker.author is 'Role that set it last.';
comment on column tuskline.breaker.set_at is 'When it was set last.';
comment on column tuskline.breaker.looked_at is 'When a store consumer last checked it.';
comment on column tuskline.breaker.counted_from is
  'Earlier failures do not count: when it was first set, or when its gate was last opened.';
comment on column tuskline.breaker.trips is 'How often it has tripped.';
comment on column tuskline.breaker.gate_id is 'Gate that it has set. Null: it is not tripped.';
comment on column tuskline.breaker.fingerprint is
  'Fingerprint of the failures that tripped it last. Null: it never tripped.';
comment on column tuskline.breaker.tripped_at is
  'When it tripped last. Null: it never tripped.';
comment on column tuskline.breaker.probe_id is
  'Task that runs as a probe and has not ended. Null: none.';
comment on column tuskline.breaker.probe_at is 'When the next probe may start.';
comment on column tuskline.breaker.probe_seq is
  'Row of the queue of the probe, see flagged_queue.passing.';

create unlogged table tuskline_core.recent_failure (
  lambda      text not null,
  failed_at   timestamptz not null,
  fingerprint text not null,
  attempts    integer not null,
  first_id    bigint not null,
  last_id     bigint not null,
  message     text not null);
create index recent_failure_time on tuskline_core.recent_failure (lambda, failed_at);
comment on table tuskline_core.recent_failure is
  'Failed attempts of lambdas with a breaker, one row per cause and id range in a batch of '
  'results. Rows older than the span of the breaker are deleted; a crash empties the table.';
comment on index tuskline_core.recent_failure_time is 'Latest failures of a lambda.';
comment on column tuskline_core.recent_failure.lambda is 'The lambda.';
comment on column tuskline_core.recent_failure.failed_at is 'When the attempts failed.';
comment on column tuskline_core.recent_failure.fingerprint is 'Fingerprint of the cause.';
comment on column tuskline_core.recent_failure.attempts is 'Number of failed attempts.';
comment on column tuskline_core.recent_failure.first_id is 'Lowest task id among them.';
comment on column tuskline_core.recent_failure.last_id is 'Highest task id among them.';
comment on column tuskline_core.recent_failure.message is
  'Message of one of the failures, shortened.';

comment on column tuskline.task_failure.fence is
  'Its fence in that attempt. An end without an attempt (gate, ordering policy) has its own '
  'number.';

-- Lists the tasks that died before this table existed.
insert into tuskline.dead_letter (task_id, lambda, status, fingerprint, died_at)
select t.id, t.lambda, t.status, coalesce(f.fingerprint, ''), t.finished_at
  from (select id, lambda, status, finished_at from tuskline.task
        union all
        select id, lambda, status, finished_at from tuskline.task_kept) t
       left join lateral (
         select h.fingerprint from tuskline.task_failure h
          where h.task_id = t.id
          order by h.failed_at desc, h.fence desc limit 1) f on true
 where t.status in ('dead', 'fatal_failure');
