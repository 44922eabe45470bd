-- Periodic tasks: schedules, and what became of each of their ticks. Touched by whoever defines one and by
-- servers with the role periodic only.

create sequence tuskline.periodic_version_seq;
comment on sequence tuskline.periodic_version_seq is 'Versions of schedules: never the same twice, though a name be dropped and defined again.';

create table tuskline.periodic (
  name        text primary key,
  lambda      text not null references tuskline.lambda (name),
  cron        text not null,
  zone        text not null,
  payload     json,
  collection  text,
  priority    tuskline.priority not null,
  missed      text not null check (missed in ('skip', 'once', 'all')),
  missed_max integer not null check (missed_max between 1 and 1000),
  grace       interval not null,
  overlap     text not null check (overlap in ('allow', 'skip', 'queue')),
  starts_at   timestamptz,
  ends_at     timestamptz,
  enabled     boolean not null,
  author      name not null default session_user,
  set_at      timestamptz not null,
  version     bigint not null,
  done_until  timestamptz not null,
  next_tick   timestamptz,
  last_tick   timestamptz,
  last_task   bigint,
  trouble     text)
  with (fillfactor = 50);
comment on table  tuskline.periodic is 'Schedules of tasks that come again and again. Define one with tuskline.define_periodic(); audit has every change. The view periodics shows them.';
comment on column tuskline.periodic.name is 'Name of the schedule.';
comment on column tuskline.periodic.lambda is 'Lambda of its tasks.';
comment on column tuskline.periodic.cron is 'When: minute, hour, day of the month, month, day of the week; seconds before these, as you like. Servers calculate its ticks.';
comment on column tuskline.periodic.zone is 'IANA time zone whose clocks the cron is read by.';
comment on column tuskline.periodic.payload is 'Payload of each task.';
comment on column tuskline.periodic.collection is 'Collection of each task.';
comment on column tuskline.periodic.priority is 'Priority of each task.';
comment on column tuskline.periodic.missed is 'What becomes of ticks that no server saw in time: skip them, fire the last of them once, or fire all of them.';
comment on column tuskline.periodic.missed_max is 'Of all: at most so many, the latest.';
comment on column tuskline.periodic.grace is 'How late a tick may be fired before it counts as missed.';
comment on column tuskline.periodic.overlap is 'While the task of an earlier tick has not ended: allow another, skip the tick, or queue: the new task waits for that one.';
comment on column tuskline.periodic.starts_at is 'No tick before; null: from its definition on.';
comment on column tuskline.periodic.ends_at is 'No tick then or later; null: for ever.';
comment on column tuskline.periodic.enabled is 'False while it is paused.';
comment on column tuskline.periodic.author is 'Role that defined it, or changed it last.';
comment on column tuskline.periodic.set_at is 'When that was.';
comment on column tuskline.periodic.version is 'Another with every change and every firing: who calculated for an earlier one is refused.';
comment on column tuskline.periodic.done_until is 'Every tick up to here was dealt with, or is not owed.';
comment on column tuskline.periodic.next_tick is 'The first tick after that; null: a server is to calculate it; infinity: there is none.';
comment on column tuskline.periodic.last_tick is 'The latest tick that was dealt with.';
comment on column tuskline.periodic.last_task is 'The latest task that it scheduled.';
comment on column tuskline.periodic.trouble is 'Why a server could not calculate its ticks, or fire them.';

create table tuskline_core.time_zone (name text primary key);
comment on table  tuskline_core.time_zone is 'Time zones by which servers can calculate ticks. tuskline migrate writes what its binary knows; the zones of PostgreSQL may be others.';
comment on column tuskline_core.time_zone.name is 'IANA name, as Europe/Berlin.';

create table tuskline.tick (
  name     text not null,
  tick     timestamptz not null,
  task_id  bigint,
  reason   text check ((task_id is null) = (reason is not null)),
  fired_at timestamptz not null,
  primary key (name, tick));
comment on table  tuskline.tick is 'What became of each tick: its task, or why it has none. Its key lets a tick be fired once, whatever the number of servers. Kept for 7 days.';
comment on column tuskline.tick.name is 'The schedule.';
comment on column tuskline.tick.tick is 'When it was due: the due time of its task, too.';
comment on column tuskline.tick.task_id is 'Its task.';
comment on column tuskline.tick.reason is 'Why there is none: missed, overlap, or a refusal (TK...).';
comment on column tuskline.tick.fired_at is 'When a server dealt with it.';
