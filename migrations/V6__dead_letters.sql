-- Dead letters and circuit breakers: touched by tasks that fail for good, and by lambdas with a breaker.

create table tuskline.dead_letter (
  task_id     bigint primary key,
  lambda      text not null,
  status      tuskline.status not null,
  fingerprint text not null,
  died_at     timestamptz not null,
  redrive_id  bigint);
create index dead_letter_group on tuskline.dead_letter (lambda, fingerprint, task_id);
create index dead_letter_redrive on tuskline.dead_letter (redrive_id) where redrive_id is not null;
comment on table  tuskline.dead_letter is 'Where to find tasks that are dead or fatal_failure, as no index of task says that. Written by whoever ends one so; gone when it begins anew.';
comment on index  tuskline.dead_letter_group is 'The dead of a lambda, those of one cause together.';
comment on index  tuskline.dead_letter_redrive is 'Which of those that a redrive let go have died again.';
comment on column tuskline.dead_letter.task_id is 'The task.';
comment on column tuskline.dead_letter.lambda is 'Its lambda.';
comment on column tuskline.dead_letter.status is 'dead or fatal_failure: each may have a retention of its own.';
comment on column tuskline.dead_letter.fingerprint is 'Of its last failure.';
comment on column tuskline.dead_letter.died_at is 'When it ended.';
comment on column tuskline.dead_letter.redrive_id is 'The redrive that had let it go before it died again, if any.';

create table tuskline.redriven (
  task_id     bigint primary key,
  redrive_id  bigint not null,
  fingerprint text not null,
  old_payload json);
comment on table  tuskline.redriven is 'Tasks that a redrive let go, so that their next death can be laid at its door. Gone with the task, or when it is retried otherwise.';
comment on column tuskline.redriven.task_id is 'The task.';
comment on column tuskline.redriven.redrive_id is 'The latest redrive that let it go.';
comment on column tuskline.redriven.fingerprint is 'What it had died of.';
comment on column tuskline.redriven.old_payload is 'Its payload before it was replaced; null: it was not.';

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
  probe_seq   bigint not null default 0
) with (fillfactor = 50);
comment on table  tuskline.breaker is 'Circuit breakers: when too many attempts of a lambda fail of one cause, a gate is set, and opened when a task that was let pass succeeds. Set with set_breaker(). Read the view breakers.';
comment on column tuskline.breaker.lambda is 'Lambda it watches.';
comment on column tuskline.breaker.failures is 'Failed attempts of one fingerprint within the span that trip it, at least.';
comment on column tuskline.breaker.span is 'How far back it counts.';
comment on column tuskline.breaker.share is 'Share of these failures in all attempts that ended in the span, at least; 0 to 1.';
comment on column tuskline.breaker.probe_after is 'How long after it tripped, or after a probe failed, one task may pass.';
comment on column tuskline.breaker.author is 'Role that set it.';
comment on column tuskline.breaker.set_at is 'When it was set.';
comment on column tuskline.breaker.looked_at is 'When a store consumer last looked.';
comment on column tuskline.breaker.counted_from is 'What failed before counts no more: when it was set, or when its gate was last opened.';
comment on column tuskline.breaker.trips is 'How often it has tripped.';
comment on column tuskline.breaker.gate_id is 'The gate it has set; null: it has not tripped.';
comment on column tuskline.breaker.fingerprint is 'Of the failures that tripped it last.';
comment on column tuskline.breaker.tripped_at is 'When it tripped last.';
comment on column tuskline.breaker.probe_id is 'The task that was let pass and has not ended.';
comment on column tuskline.breaker.probe_at is 'When the next task may pass.';
comment on column tuskline.breaker.probe_seq is
  'Row of the queue of that task: see flagged_queue.passing.';

create unlogged table tuskline_core.recent_failure (
  lambda      text not null,
  failed_at   timestamptz not null,
  fingerprint text not null,
  attempts    integer not null,
  first_id    bigint not null,
  last_id     bigint not null,
  message     text not null);
create index recent_failure_time on tuskline_core.recent_failure (lambda, failed_at);
comment on table  tuskline_core.recent_failure is 'Failed attempts of lambdas with a breaker, a row for each cause in a batch of results. What is older than any span goes; a crash empties it.';
comment on index  tuskline_core.recent_failure_time is 'The latest of a lambda.';
comment on column tuskline_core.recent_failure.lambda is 'The lambda.';
comment on column tuskline_core.recent_failure.failed_at is 'When.';
comment on column tuskline_core.recent_failure.fingerprint is 'Of what cause.';
comment on column tuskline_core.recent_failure.attempts is 'How many.';
comment on column tuskline_core.recent_failure.first_id is 'The lowest task among them.';
comment on column tuskline_core.recent_failure.last_id is 'The highest.';
comment on column tuskline_core.recent_failure.message is 'What one of them said, shortened.';

comment on column tuskline.task_failure.fence is 'Its fence in that attempt; of an end without one (a gate, an order) a number of its own.';

-- Whoever died before there was this list.
insert into tuskline.dead_letter (task_id, lambda, status, fingerprint, died_at)
select t.id, t.lambda, t.status, coalesce(f.fingerprint, ''), t.finished_at
  from (select id, lambda, status, finished_at from tuskline.task union all select id, lambda, status, finished_at from tuskline.task_kept) t
       left join lateral (select h.fingerprint from tuskline.task_failure h
                           where h.task_id = t.id order by h.failed_at desc, h.fence desc limit 1) f on true
 where t.status in ('dead', 'fatal_failure');
