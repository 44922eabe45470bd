-- Dead letters, redrive and circuit breakers: touched by tasks that fail for good, and by lambdas with a breaker.

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

create table tuskline.redrive (
  redrive_id       bigint generated always as identity primary key,
  lambda           text,
  fingerprint      text,
  ids              bigint[],
  collection       text,
  died_until       timestamptz not null,
  most             bigint,
  per_second       double precision,
  canary           boolean not null,
  payload          json,
  reason           text not null,
  author           name not null default session_user,
  set_at           timestamptz not null,
  step             integer,
  watched          bigint[] not null default '{}',
  released         bigint not null default 0,
  next_at          timestamptz not null,
  mark_fingerprint text not null default '',
  mark_id          bigint not null default 0,
  met              boolean not null default false,
  ended_at         timestamptz,
  outcome          text check ((ended_at is null) = (outcome is null) and outcome in ('done', 'died_again', 'stopped')),
  note             text
) with (fillfactor = 50);
comment on table  tuskline.redrive is 'Redrives: dead letters that return, a batch at a time. Set with redrive(); store consumers, one at a time, carry them out. Read the view redrives.';
comment on sequence tuskline.redrive_redrive_id_seq is 'Numbers of redrives.';
comment on column tuskline.redrive.redrive_id is 'Number of the redrive.';
comment on column tuskline.redrive.lambda is 'Only the dead of this lambda; null: those of ids.';
comment on column tuskline.redrive.fingerprint is 'Only those whose last failure has this fingerprint; null: all.';
comment on column tuskline.redrive.ids is 'Only these tasks; null: all.';
comment on column tuskline.redrive.collection is 'Only those of this collection; null: all.';
comment on column tuskline.redrive.died_until is 'Only those that had died by then: never what dies later, or it might go round in circles.';
comment on column tuskline.redrive.most is 'How many to let go at most; null: all.';
comment on column tuskline.redrive.per_second is 'How many a second; null: as fast as it goes.';
comment on column tuskline.redrive.canary is 'Whether it lets 1 go, then 10, then the rest, and stops when they die again.';
comment on column tuskline.redrive.payload is 'New payload of the one task of ids; null: it keeps its own.';
comment on column tuskline.redrive.reason is 'Why, in its author''s words.';
comment on column tuskline.redrive.author is 'Role that set it.';
comment on column tuskline.redrive.set_at is 'When it was set.';
comment on column tuskline.redrive.step is 'How many the present step of a canary lets go: 1 or 10; null: the rest.';
comment on column tuskline.redrive.watched is 'Tasks of the present step of a canary, whose ends it waits for.';
comment on column tuskline.redrive.released is 'How many it has let go.';
comment on column tuskline.redrive.next_at is 'When it may let the next go.';
comment on column tuskline.redrive.mark_fingerprint is 'Where the next look among the dead begins, a hint: those before may be dead rows still.';
comment on column tuskline.redrive.mark_id is 'Task above which it begins, of that fingerprint.';
comment on column tuskline.redrive.met is 'Whether it has met one that it is about since it last began at the start: at the end it begins anew.';
comment on column tuskline.redrive.ended_at is 'When it was over; null: it goes on.';
comment on column tuskline.redrive.outcome is 'done: nothing is left. died_again: the canary stopped it. stopped: by hand.';
comment on column tuskline.redrive.note is 'What made it end so.';

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
  probe_mark   bigint not null default 0
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
comment on column tuskline.breaker.probe_mark is 'The last that was let pass: the next is another, or one bad task would keep the gate closed.';

create unlogged table tuskline.recent_failure (
  lambda      text not null,
  failed_at   timestamptz not null,
  fingerprint text not null,
  attempts    integer not null,
  first_id    bigint not null,
  last_id     bigint not null,
  message     text not null);
create index recent_failure_time on tuskline.recent_failure (lambda, failed_at);
comment on table  tuskline.recent_failure is 'Failed attempts of lambdas with a breaker, a row for each cause in a batch of results. What is older than any span goes; a crash empties it.';
comment on index  tuskline.recent_failure_time is 'The latest of a lambda.';
comment on column tuskline.recent_failure.lambda is 'The lambda.';
comment on column tuskline.recent_failure.failed_at is 'When.';
comment on column tuskline.recent_failure.fingerprint is 'Of what cause.';
comment on column tuskline.recent_failure.attempts is 'How many.';
comment on column tuskline.recent_failure.first_id is 'The lowest task among them.';
comment on column tuskline.recent_failure.last_id is 'The highest.';
comment on column tuskline.recent_failure.message is 'What one of them said, shortened.';

comment on column tuskline.task_failure.fence is 'Its fence in that attempt; of an end without one (a gate, an order) a number of its own.';

-- Whoever died before there was this list.
insert into tuskline.dead_letter (task_id, lambda, status, fingerprint, died_at)
select t.id, t.lambda, t.status, coalesce(f.fingerprint, ''), t.finished_at
  from (select id, lambda, status, finished_at from tuskline.task union all select id, lambda, status, finished_at from tuskline.task_kept) t
       left join lateral (select h.fingerprint from tuskline.task_failure h
                           where h.task_id = t.id order by h.failed_at desc, h.fence desc limit 1) f on true
 where t.status in ('dead', 'fatal_failure');
