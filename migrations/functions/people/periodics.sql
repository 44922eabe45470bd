-- Shows each schedule with its latest and next tick, and with the problem it has, if any.
--
-- Planner: a clock in the list of columns would make a reader of a few schedules read all. With a
-- limit, a task and a tick are looked up, and no plan joins by a scan.
create or replace view tuskline.periodics as
select s.name, s.lambda, s.cron, s.zone, s.enabled, s.last_tick,
       nullif(s.next_tick, 'infinity') as next_tick, s.last_task, t.status as last_status,
       case when not s.enabled then null
            when s.last_error is not null then s.last_error
            when s.next_tick is null
              then 'no server has calculated its next tick (tuskline serve)'
            when s.next_tick < c.at - interval '1 minute'
              then 'its next tick is due, and no server fires it (tuskline serve)'
            when k.reason like 'TK%'
              then 'its last tick was refused: ' || k.reason end as problem,
       case when s.lambda <> all (b.barred) then s.payload end as payload,
       s.collection, s.priority, s.missed, s.missed_max, s.grace, s.overlap,
       s.starts_at, s.ends_at, s.author, s.set_at
  from tuskline.periodic s
       left join (select tuskline.clock() as at offset 0) c on true
       left join lateral (
         select a.status from tuskline_core.all_tasks a where a.id = s.last_task limit 1) t on true
       left join lateral (
         select i.reason from tuskline.tick i
          where i.name = s.name and i.tick = s.last_tick limit 1) k on true
       left join (select min(tuskline.barred('inspect')) as barred) b on true;
comment on view tuskline.periodics is
  'Schedules: the latest tick and its task, the next tick, and the problem, if any.';
