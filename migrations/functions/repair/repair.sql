-- Makes the parts that damage() finds missing.
--
-- One repair may show another: raised ids need a segment. So it repeats until it finds nothing new.
-- Loaded rows are of an earlier state. Numbers that were issued after it are unknown, so fences and
-- executor numbers are raised as well, as in a copy of the database.
-- Returns a row for each part. With p_dry_run it only lists them.
-- Guarantees: a second call makes nothing. No task is ever deleted.
-- Locks: those of recovery, of new segments and of new queues.
create or replace function tuskline.repair(p_dry_run boolean default false)
returns table (part text, name text, problem text, remedy text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off set lock_timeout = '10s' as $$
declare
  v_made text[] := '{}';
  v_key  text;
  v_more boolean := true;
  d      record;
begin
  if p_dry_run is not false then
    return query select w.part, w.name, w.problem, w.remedy from tuskline.damage() w;
    return;
  end if;
  perform tuskline_core.lock_guard('recovery');
  perform tuskline_core.lock_guard('segment');
  perform tuskline_core.lock_guard('queue');
  while v_more loop
    v_more := false;
    for d in select * from tuskline.damage() loop
      v_key := concat_ws(' ', d.part, d.name, d.number);
      continue when v_key = any (v_made);
      perform tuskline_core.repair_step(d.part, d.name, d.number);
      v_made := v_made || v_key;
      v_more := true;
      part := d.part;
      name := d.name;
      problem := d.problem;
      remedy := d.remedy;
      return next;
    end loop;
  end loop;
  if v_made <> '{}' then
    perform tuskline_core.raise_numbers();
    insert into tuskline.audit (at, verb, subject, detail)
    values (tuskline.clock(), 'repair', 'database', left(array_to_string(v_made, ', '), 1000));
  end if;
end $$;
comment on function tuskline.repair(boolean) is
  'Makes the parts that the rows need and the catalogue does not have, and returns a row for each. '
  'p_dry_run: only lists. Audited.';

-- Mends one row of damage().
create or replace function tuskline_core.repair_step(p_part text, p_name text, p_number bigint)
returns void language plpgsql as $$
begin
  case p_part
    when 'sequence' then
      -- A sequence that is further on by now keeps its place.
      if nextval(('tuskline.' || p_name)::regclass) < p_number then
        perform setval(('tuskline.' || p_name)::regclass, p_number);
      end if;
    when 'ids' then perform tuskline_core.make_ids_raised();
    when 'installation' then
      insert into tuskline.installation (cell)
      select tuskline_core.cell_of(s.last_value) from tuskline.task_seq s on conflict do nothing;
    when 'lambda' then
      perform tuskline_core.add_queue(l.name, e.p, l.direct, l.max_payload_bytes)
         from tuskline.lambda l cross join unnest(enum_range(null::tuskline.priority)) as e (p)
        where l.name = p_name
          and not exists (select from tuskline.queue q
                           where q.lambda = l.name and q.priority = e.p);
      perform tuskline_core.make_pops(p_name);
      perform tuskline_core.update_policy_flags(p_name);
    when 'queue' then
      perform tuskline_core.make_leaf(p_number::integer);
      perform tuskline_core.make_pops(q.lambda) from tuskline.queue q where q.queue_id = p_number;
    when 'table' then perform tuskline_core.make_tables();
    when 'segment' then perform tuskline_core.repair_segment(p_number);
    when 'segments' then perform tuskline_core.repair_segments(p_number);
    when 'cast' then perform tuskline_core.make_casts();
    when 'trigger' then perform tuskline_core.make_route_trigger();
    when 'rights' then perform tuskline_core.close_functions(), tuskline_core.note_rights();
    when 'queue rows' then perform tuskline_core.refill_queues();
    when 'queues' then perform tuskline.rebuild_queues();
  end case;
end $$;
comment on function tuskline_core.repair_step(text, text, bigint) is
  'Does what one row of damage() proposes.';

-- Makes the missing parts of one segment.
--
-- If its retirement had begun, its waiting tasks are in task_kept. They return to it.
create or replace function tuskline_core.repair_segment(p_no bigint) returns void
language plpgsql as $$
declare
  v_table text := 'task_' || p_no;
begin
  if not tuskline_core.add_segment(p_no) then
    if not tuskline_core.is_attached(p_no) then
      execute format('alter table tuskline_core.task_store attach partition tuskline_core.%I'
        ' for values from (%s) to (%s)', v_table, p_no << 24, (p_no + 1) << 24);
    end if;
    perform tuskline_core.make_key(('tuskline_core.' || v_table)::regclass, 'id');
    insert into tuskline.segment (segment_no) values (p_no) on conflict do nothing;
    perform tuskline_core.make_segment_verbs(p_no);
  end if;
  perform tuskline.add_segments();
  perform tuskline.return_kept(p_no);
end $$;
comment on function tuskline_core.repair_segment(bigint) is
  'Makes the missing parts of a segment: table, primary key, row and functions.';

-- Makes the segments from the last one that exists up to p_current, and 8 ahead.
--
-- Tasks of the segments between may still be loaded from the dump. The janitor drops the segments
-- that stay empty. At most 2000 segments before p_current are made.
create or replace function tuskline_core.repair_segments(p_current bigint) returns void
language plpgsql as $$
declare
  v_last bigint := (
    select max(g.segment_no)
      from tuskline_core.id_range() i
           join tuskline.segment g on g.segment_no >= tuskline_core.segment_of(i.first_id)
     where p_current between tuskline_core.segment_of(i.first_id)
                         and tuskline_core.segment_of(i.last_id)
       and g.segment_no < p_current);
begin
  perform tuskline_core.add_segment(n)
     from generate_series(greatest(coalesce(v_last + 1, p_current), p_current - 2000), p_current) n;
  perform tuskline.add_segments();
end $$;
comment on function tuskline_core.repair_segments(bigint) is
  'Makes the segments from the last one that exists to this one (at most 2000), and 8 ahead.';

-- Deletes queue rows that name a task of another lambda, and adds the queue rows that are missing.
--
-- Inserts and claims change a task and its queue row in one transaction. So an enqueued task
-- without a queue row in this snapshot has none. Both statements read all queues.
create or replace function tuskline_core.refill_queues() returns void
language plpgsql as $$
begin
  delete from tuskline.queued d using tuskline.queue q, tuskline.task t
   where q.queue_id = d.queue_id and t.id = d.task_id and t.lambda <> q.lambda;
  perform tuskline_core.queue_segment(g.segment_no, true)
     from (select s.segment_no from tuskline.segment s
            where s.sealed_at is null and tuskline_core.is_attached(s.segment_no)
            order by s.segment_no) g;
  perform tuskline_core.notify('tuskline_queue');
end $$;
comment on function tuskline_core.refill_queues() is
  'Deletes queue rows that name a task of another lambda, '
  'and adds one for each enqueued task that has none.';

-- Makes the trigger of tuskline.task if it is missing, or enables it.
--
-- Locks: making the trigger takes a lock that every insert waits for. So an intact one is left.
create or replace function tuskline_core.make_route_trigger() returns void
language plpgsql as $$
begin
  if not exists (select from pg_trigger
                  where tgrelid = 'tuskline.task'::regclass and tgname = 'route') then
    create trigger route after insert on tuskline.task
      referencing new table as new_rows for each statement execute function tuskline_core.route();
    comment on trigger route on tuskline.task is
      'Puts every inserted task into its queue or a timer, in the same transaction.';
  elsif exists (select from pg_trigger where tgrelid = 'tuskline.task'::regclass
                   and tgname = 'route' and tgenabled = 'D') then
    alter table tuskline.task enable trigger route;
  end if;
end $$;
comment on function tuskline_core.make_route_trigger() is
  'Makes the trigger of tuskline.task if it is missing, or enables it.';

create or replace function tuskline_core.make_casts() returns void
language plpgsql as $$
declare
  c record;
begin
  for c in select * from tuskline_core.missing_casts() loop
    execute format('create cast (%s as %s) with inout as assignment', c.source, c.target);
  end loop;
end $$;
comment on function tuskline_core.make_casts() is 'Makes the casts that are missing.';

-- Revokes every function from PUBLIC but those of the manifest.
--
-- Column defaults and views call these with the rights of their caller. They tell it nothing but its
-- own rights on lambdas.
create or replace function tuskline_core.close_functions() returns void
language plpgsql as $$
declare
  r record;
begin
  revoke all on all functions in schema tuskline, tuskline_core from public;
  for r in select w.privilege from tuskline_core.wanted_grants() w
            where w.grantee = 'public' order by w.privilege loop
    execute format('grant %s to public', r.privilege);
  end loop;
end $$;
comment on function tuskline_core.close_functions() is
  'Revokes every function from PUBLIC but those that the manifest of verbs names for it.';
