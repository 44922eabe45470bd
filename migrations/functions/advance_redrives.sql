-- advance_redrives: the store consumer's part in redrives, called by promote: lets a batch of each go. Its row
-- is locked, so that one store consumer at a time does that. Returns when somebody should look again, if that
-- can be foreseen: the ends of a canary's tasks cannot.
create or replace function tuskline.advance_redrives(p_now timestamptz, p_limit integer) returns timestamptz
language plpgsql as $$
declare
  r      tuskline.redrive;
  v_next timestamptz;
begin
  for r in select d.* from tuskline.redrive d where d.ended_at is null order by d.redrive_id for update skip locked loop
    begin
      v_next := least(v_next, tuskline.advance_redrive(r, p_now, p_limit));
    exception when lock_not_available then -- somebody's transaction holds what goes with one of them: later
    end;
  end loop;
  return v_next;
end $$;
comment on function tuskline.advance_redrives(timestamptz, integer) is 'Lets a batch of each redrive go; says when to look again.';

create or replace function tuskline.advance_redrive(r tuskline.redrive, p_now timestamptz, p_limit integer) returns timestamptz
language plpgsql as $$
declare
  v_from timestamptz := greatest(r.next_at, p_now - interval '1 second'); -- a rest is worth a second's at most
  v_pass integer;
  v_ids  bigint[];
  v_fps  text[];
  n      record;
  v_free bigint[];
begin
  if r.canary then
    r := tuskline.heed_canary(r, p_now);
    if r.ended_at is not null or r.watched <> '{}' then return null; end if;
  end if;
  if r.next_at > p_now then return r.next_at; end if;
  v_pass := least(p_limit, r.step, r.most - r.released, 1 + floor(r.per_second * extract(epoch from p_now - v_from)));
  if v_pass > 0 then
    n := tuskline.next_dead(r, p_now, v_pass, p_limit);
    r := n.r; v_ids := n.ids; v_fps := n.fps;
  end if;
  if v_ids is null then
    perform tuskline.end_redrive(r.redrive_id, p_now, 'done', null);
    return null;
  end if;
  v_free := tuskline.release_dead(r, v_ids, v_fps, p_now);
  update tuskline.redrive d
     set released = d.released + cardinality(v_free), watched = case when r.step is null then '{}' else v_free end,
         mark_fingerprint = r.mark_fingerprint, mark_id = r.mark_id, met = r.met,
         next_at = case when v_free = '{}' and v_ids <> '{}' then p_now + interval '200 milliseconds' -- somebody has them locked
                        when r.per_second is null then d.next_at else v_from + cardinality(v_free) / r.per_second * interval '1 second' end
   where d.redrive_id = r.redrive_id returning d.next_at into r.next_at;
  return case when r.step is null or v_free = '{}' then greatest(r.next_at, p_now) end;
end $$;
comment on function tuskline.advance_redrive(tuskline.redrive, timestamptz, integer) is 'Lets the next batch of a redrive go, or ends it; says when to look again.';

-- heed_canary: has the present step ended well? Then the next begins: 1, 10, the rest. Who dies again in a small
-- step stops the redrive, of whatever; in the rest, of what it had died of: that cause is still there. When
-- all of a step were cancelled, nobody is wiser, and as many go again.
create or replace function tuskline.heed_canary(r tuskline.redrive, p_now timestamptz) returns tuskline.redrive
language plpgsql as $$
declare
  v_dead bigint;
  v_good boolean;
  v_open boolean;
begin
  select d.task_id into v_dead
    from tuskline.dead_letter d join tuskline.redriven v on v.task_id = d.task_id
   where d.redrive_id = r.redrive_id and (r.step is not null or d.fingerprint = v.fingerprint) order by d.task_id limit 1;
  if found then
    perform tuskline.end_redrive(r.redrive_id, p_now, 'died_again', (
      select format('task %s died again: %s, %s', v_dead, f.error_class, left(f.message, 200)) from tuskline.task_failure f
       where f.task_id = v_dead order by f.failed_at desc, f.fence desc limit 1));
    r.ended_at := p_now;
    return r;
  end if;
  if r.watched = '{}' then return r; end if;
  select coalesce(bool_or(t.finished_at is null), false), coalesce(bool_or(t.status = 'success'), false) into v_open, v_good
    from tuskline.tasks t where t.id = any (r.watched);
  if v_open then return r; end if;
  update tuskline.redrive d set watched = '{}', step = case when not v_good then d.step when d.step = 1 then 10 end
   where d.redrive_id = r.redrive_id returning d.* into r;
  return r;
end $$;
comment on function tuskline.heed_canary(tuskline.redrive, timestamptz) is 'Takes a canary to its next step when those of the present one have ended well; stops it when one died again.';

-- next_dead: a batch of those that a redrive is about, of the next p_look dead letters: more are not looked at in one
-- call, however few it is about. ids: null: that was all. At the end it begins anew, until it has met none in between:
-- who was locked, or committed late, is met then.
create or replace function tuskline.next_dead(
  inout r tuskline.redrive, p_now timestamptz, p_pass integer, p_look integer, out ids bigint[], out fps text[])
language plpgsql as $$
declare
  v_last record;
begin
  loop
    with d as (
      select d.*, count(*) filter (where d.is_meant) over (order by d.place) as nth
        from tuskline.dead_of(r, p_now, p_look) with ordinality as d (task_id, fingerprint, is_meant, place)
    ), o as (select d.* from d where d.nth < p_pass or (d.nth = p_pass and d.is_meant))
    select array_agg(o.task_id order by o.place) filter (where o.is_meant) as ids, array_agg(o.fingerprint order by o.place) filter (where o.is_meant) as fps,
           (array_agg(o.task_id order by o.place desc))[1] as id, (array_agg(o.fingerprint order by o.place desc))[1] as fp, count(*) as looked
      into v_last from o;
    ids := v_last.ids;
    fps := v_last.fps;
    if v_last.looked > 0 then
      r.mark_fingerprint := v_last.fp; r.mark_id := v_last.id;
      r.met := r.met or ids is not null;
    elsif r.met then
      r.mark_fingerprint := coalesce(r.fingerprint, ''); r.mark_id := 0; r.met := false;
    else
      return;
    end if;
    exit when ids is not null or v_last.looked >= p_look;
  end loop;
  ids := coalesce(ids, '{}');
end $$;
comment on function tuskline.next_dead(tuskline.redrive, timestamptz, integer, integer) is 'The next dead letters that a redrive is about, at most p_pass of p_look that it looks at; null: there are none.';

-- dead_of: the next dead letters above a redrive's mark, with what they died of, and whether it is about them. What it
-- has let go itself it takes no second time, whatever a clock that steps back says of the time of death.
create or replace function tuskline.dead_of(r tuskline.redrive, p_now timestamptz, p_look bigint)
returns table (task_id bigint, fingerprint text, is_meant boolean) language plpgsql as $$
begin
  return query
  select d.task_id, d.fingerprint,
         case when not tuskline.is_meant(r, d, p_now - tuskline.kept_for(l, d.status)) then false
              else r.collection is null or exists (select from tuskline.tasks t where t.id = d.task_id and t.collection = r.collection) end
    from tuskline.letters_of(r, p_look) d join tuskline.lambda l on l.name = d.lambda order by d.fingerprint, d.task_id;
end $$;
comment on function tuskline.dead_of(tuskline.redrive, timestamptz, bigint) is 'The next dead letters of a redrive''s lambda or ids, and whether it is about them.';

-- letters_of: rides dead_letter_group, in its order.
create or replace function tuskline.letters_of(r tuskline.redrive, p_look bigint) returns setof tuskline.dead_letter
language plpgsql as $$
begin
  if r.ids is null then
    return query
    select o.* from (
      select d.* from tuskline.dead_letter d where d.lambda = r.lambda and (d.fingerprint, d.task_id) > (r.mark_fingerprint, r.mark_id)
       order by d.fingerprint, d.task_id limit p_look) o
     where r.fingerprint is null or o.fingerprint = r.fingerprint;
  else
    return query
    select d.* from tuskline.dead_letter d
     where d.task_id = any (r.ids) and (r.lambda is null or d.lambda = r.lambda) and (r.fingerprint is null or d.fingerprint = r.fingerprint)
       and (d.fingerprint, d.task_id) > (r.mark_fingerprint, r.mark_id) order by d.fingerprint, d.task_id limit p_look;
  end if;
end $$;
comment on function tuskline.letters_of(tuskline.redrive, bigint) is 'The next dead letters above a redrive''s mark, of its lambda or ids, and of its fingerprint.';

create or replace function tuskline.is_meant(r tuskline.redrive, d tuskline.dead_letter, p_since timestamptz) returns boolean
language sql immutable as $$
  select (r.fingerprint is null or d.fingerprint = r.fingerprint) and d.died_at <= r.died_until and d.died_at > p_since
     and d.redrive_id is distinct from r.redrive_id
$$;
comment on function tuskline.is_meant(tuskline.redrive, tuskline.dead_letter, timestamptz) is 'Whether a redrive is about a dead letter, but for the collection. It must have died after p_since: what is past its retention counts as gone.';

-- release_dead: those of the tasks that nobody else has locked begin anew. Letters of tasks that are not dead go.
create or replace function tuskline.release_dead(r tuskline.redrive, p_ids bigint[], p_fps text[], p_now timestamptz) returns bigint[]
language plpgsql as $$
declare
  v_free bigint[] := tuskline.lock_to_revive(p_ids);
begin
  v_free := array(select t.id from tuskline.tasks t where t.id = any (v_free) and t.status in ('dead', 'fatal_failure') order by t.id);
  delete from tuskline.dead_letter d where d.task_id = any (p_ids) and d.task_id <> all (v_free)
     and not exists (select from tuskline.tasks t where t.id = d.task_id and t.status in ('dead', 'fatal_failure'));
  if v_free = '{}' then return v_free; end if;
  perform tuskline.revive(v_free, p_now);
  insert into tuskline.redriven (task_id, redrive_id, fingerprint)
  select u.id, r.redrive_id, u.fingerprint from unnest(p_ids, p_fps) as u (id, fingerprint) where u.id = any (v_free);
  if r.payload is not null then perform tuskline.replace_payload(v_free[1], r.payload); end if;
  return v_free;
end $$;
comment on function tuskline.release_dead(tuskline.redrive, bigint[], text[], timestamptz) is 'Lets dead letters begin anew, unless somebody else has locked them; returns them.';

-- lock_to_revive: locks what revive will lock, in its order and without waiting: segments, then tasks with those that
-- wait for them. A task of which it does not get all is left out.
create or replace function tuskline.lock_to_revive(p_ids bigint[]) returns bigint[]
language plpgsql as $$
declare
  v_segments bigint[];
  v_ids      bigint[];
  v_all      bigint[];
  v_locked   bigint[];
begin
  perform tuskline.recall_segments(p_ids);
  v_segments := array(select s.segment_no from tuskline.segment s
    where s.segment_no in (select tuskline.segment_of(id) from unnest(p_ids) as id)
    order by s.segment_no for key share of s skip locked);
  v_ids := array(select id from unnest(p_ids) as id where tuskline.segment_of(id) = any (v_segments));
  v_all := v_ids || array(select d.task_id from tuskline.dependency d where d.parent_id = any (v_ids));
  v_locked := array(
    select t.id from tuskline.task t
     where t.id = any (v_all) and t.id between (select min(id) from unnest(v_all) as id) and (select max(id) from unnest(v_all) as id)
     order by t.id for update skip locked)
    || array(select k.id from tuskline.task_kept k where k.id = any (v_ids) order by k.id for update skip locked);
  return array(select u.id from unnest(v_ids) as u (id) where u.id = any (v_locked) and not exists (
    select from tuskline.dependency d join tuskline.task t on t.id = d.task_id where d.parent_id = u.id and d.task_id <> all (v_locked)) order by u.id);
end $$;
comment on function tuskline.lock_to_revive(bigint[]) is 'Locks tasks that are to begin anew, unless somebody else has locked them or who waits for them; returns them.';

create or replace function tuskline.replace_payload(p_task bigint, p_payload json) returns void
language plpgsql as $$
begin
  update tuskline.redriven v set old_payload = coalesce((select t.payload from tuskline.tasks t where t.id = p_task), 'null') where v.task_id = p_task;
  update tuskline.task t set payload = p_payload where t.id = p_task;
  update tuskline.task_kept t set payload = p_payload where t.id = p_task;
end $$;
comment on function tuskline.replace_payload(bigint, json) is 'Gives a task another payload; the redrive keeps the old one.';
