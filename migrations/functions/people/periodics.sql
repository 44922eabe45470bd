-- Shows each schedule with its latest and next tick, and with the problem it has, if any.
create or replace view tuskline.periodics as
select s.name, s.lambda, s.cron, s.zone, s.enabled, s.last_tick,
       nullif(s.next_tick, 'infinity') as next_tick, s.last_task, t.status as last_status,
       case when not s.enabled then null
            when s.last_error is not null then s.last_error
            when s.next_tick is null
              then 'no server has calculated its next tick (tuskline serve)'
            when s.next_tick < tuskline.clock() - interval '1 minute'
              then 'its next tick is due, and no server fires it (tuskline serve)'
            when k.reason like 'TK%'
              then 'its last tick was refused: ' || k.reason end as problem,
       case when s.lambda <> all (b.barred) then s.payload end as payload,
       s.collection, s.priority, s.missed, s.missed_max, s.grace, s.overlap,
       s.starts_at, s.ends_at, s.author, s.set_at
  from tuskline.periodic s
       left join tuskline_core.all_tasks t on t.id = s.last_task
       left join tuskline.tick k on k.name = s.name and k.tick = s.last_tick
       left join (select min(tuskline.barred('inspect')) as barred) b on true;
comment on view tuskline.periodics is
  'Schedules: the latest tick and its task, the next tick, and the problem, if any.';
