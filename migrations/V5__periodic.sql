-- Tables of periodic tasks: schedules, and the result of each of their ticks. Only servers with the
-- role periodic and calls that change a schedule touch these tables.

create sequence tuskline.periodic_version_seq;
comment on sequence tuskline.periodic_version_seq is
  'Versions of schedules. Never the same twice, also when a name is dropped and defined again.';

create table tuskline.periodic (
  name       text primary key,
  lambda     text not null references tuskline.lambda (name),
  cron       text not null,
  zone       text not null,
  payload    json,
  collection text,
  priority   tuskline.priority not null,
  missed     text not null check (missed in ('skip', 'once', 'all')),
  missed_max integer not null check (missed_max between 1 and 1000),
  grace      interval not null,
  overlap    text not null check (overlap in ('allow', 'skip', 'queue')),
  starts_at  timestamptz,
  ends_at    timestamptz,
  enabled    boolean not null,
  author     name not null default session_user,
  set_at     timestamptz not null,
  version    bigint not null,
  done_until timestamptz not null,
  next_tick  timestamptz,
  last_tick  timestamptz,
  last_task  bigint,
  trouble    text
) with (fillfactor = 50);
comment on table tuskline.periodic is
  'Schedules of repeated tasks. Define one with define_periodic(); every change is audited. The '
  'view periodics shows them.';
comment on column tuskline.periodic.name is 'Name of the schedule.';
comment on column tuskline.periodic.lambda is 'Lambda of its tasks.';
comment on column tuskline.periodic.cron is
  'Optional second, then minute, hour, day of the month, month, day of the week. Servers calculate '
  'its ticks.';
comment on column tuskline.periodic.zone is 'IANA time zone of the cron.';
comment on column tuskline.periodic.payload is 'Payload of each task. Null: none.';
comment on column tuskline.periodic.collection is 'Collection of each task. Null: none.';
comment on column tuskline.periodic.priority is 'Priority of each task.';
comment on column tuskline.periodic.missed is
  'Treatment of ticks that no server saw in time. skip: none fires. once: the last fires. all: all '
  'fire.';
comment on column tuskline.periodic.missed_max is
  'missed = all only: most ticks that fire, the latest ones.';
comment on column tuskline.periodic.grace is
  'How late a tick may be fired before it counts as missed.';
comment on column tuskline.periodic.overlap is
  'Treatment of a tick while the task of an earlier one has not ended. allow: schedule a task. '
  'skip: skip the tick. queue: schedule a task that waits for that end.';
comment on column tuskline.periodic.starts_at is
  'No tick is before. Null: from its definition on.';
comment on column tuskline.periodic.ends_at is 'No tick is then or later. Null: no end.';
comment on column tuskline.periodic.enabled is 'False while it is paused.';
comment on column tuskline.periodic.author is 'Role that defined it, or changed it last.';
comment on column tuskline.periodic.set_at is 'When it was defined, or changed last.';
comment on column tuskline.periodic.version is
  'Version, new with every change and every firing. Ticks calculated for an earlier version are '
  'refused.';
comment on column tuskline.periodic.done_until is
  'Every tick up to this time was fired or skipped, or is not owed.';
comment on column tuskline.periodic.next_tick is
  'First tick after done_until. Null: a server has to calculate it. infinity: there is none.';
comment on column tuskline.periodic.last_tick is
  'Latest tick that was fired or skipped. Null: none yet.';
comment on column tuskline.periodic.last_task is 'Latest task that it scheduled. Null: none yet.';
comment on column tuskline.periodic.trouble is
  'Error that kept a server from calculating or firing its ticks. Null: none.';

create table tuskline_core.time_zone (name text primary key);
comment on table tuskline_core.time_zone is
  'Time zones in which servers can calculate ticks. tuskline migrate writes the zones that its '
  'binary knows; PostgreSQL may know different ones.';
comment on column tuskline_core.time_zone.name is 'IANA name, for example Europe/Berlin.';

create table tuskline.tick (
  name     text not null,
  tick     timestamptz not null,
  task_id  bigint,
  reason   text check ((task_id is null) = (reason is not null)),
  fired_at timestamptz not null,
  primary key (name, tick));
comment on table tuskline.tick is
  'Result of each tick: its task, or why it has none. The primary key lets a tick fire once with '
  'any number of servers. Kept for at least 7 days.';
comment on column tuskline.tick.name is 'The schedule.';
comment on column tuskline.tick.tick is 'When it was due. Also the due time of its task.';
comment on column tuskline.tick.task_id is 'Its task.';
comment on column tuskline.tick.reason is
  'Why there is no task: missed, overlap, or an error (TK...).';
comment on column tuskline.tick.fired_at is 'When a server fired or skipped it.';
