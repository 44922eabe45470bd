-- pop_<n>: takes rows off queue n. One function for each queue, made by add_queue and renewed with the
-- others: so the statement names its leaf, and its plan is kept. Through the parent a claim costs 37
-- instead of 4 µs a task with 400 queues, and 400 locks; planned anew at each call, an empty queue costs
-- 370,000 instructions instead of 130,000. The name is made of an integer, nothing else.
-- Asks first whether there is anything: most queues of a claim are empty, and that makes them half as dear.
-- Most others hold tasks that nobody has touched yet, and end after one statement: each further expression is
-- set up anew in every transaction, some 4,000 instructions.
-- The second statement begins at the first row that the first one saw, not at the mark: what has died between
-- them (under a held snapshot, all that was taken since) is walked over once. What becomes visible below that
-- row meanwhile is for a later look, as if it had become visible after this one.
-- Rides the leaf's primary key (seq). The ctid = any (array(...)) form is deliberate: with a join, a
-- generic plan takes LIMIT for 10 % of the table and reads all of it.
-- Returns a number below which it saw nothing, the last number, and then the tasks in id order; null: nothing
-- there.
-- p_pass: who finds the first task being taken may begin above the last that a batch took who found the
-- like. A locked row that is passed by itself costs as much as one that is taken, and of four worker processes
-- each claim passed 3,200: 22 pages a task in place of 15, and eight drained two thirds of what one does. That
-- last number is in a sequence, queue_<n>_taken, because others see it before its commit. It is a hint: who
-- finds too little above it looks from the mark after all.
create or replace function tuskline.make_pop(p_queue integer) returns void
language plpgsql as $make$
declare
  v_name text := format('tuskline.pop_%s(bigint, integer, boolean)', p_queue);
begin
  if to_regclass(format('tuskline.queue_%s_taken', p_queue)) is null then
    execute format('create sequence tuskline.queue_%1$s_taken owned by tuskline.queue_%1$s.seq', p_queue);
    execute format('comment on sequence tuskline.queue_%1$s_taken is %2$L', p_queue,
      format('Hint: the last number taken off queue %s by a batch that found others at work.', p_queue));
  end if;
  execute format($text$
create or replace function tuskline.pop_%1$s(p_mark bigint, p_limit integer, p_pass boolean) returns bigint[]
language plpgsql as $$
declare
  v_row   record;
  v_from  bigint;
  v_first bigint;
  v_last  bigint;
  v_ids   bigint[];
  v_both  boolean;
begin
  select seq, ctid, p_pass and xmax <> '0' as touched into v_row from tuskline.queue_%1$s where seq > p_mark order by seq limit 1;
  if not found then return null; end if;
  if not v_row.touched then
    with d as (delete from tuskline.queue_%1$s where ctid = any (array(
      select ctid from tuskline.queue_%1$s where seq >= v_row.seq order by seq limit p_limit for update skip locked)) returning seq, task_id)
    select min(d.seq) || (max(d.seq) || array_agg(d.task_id order by d.task_id)) into v_ids from d;
    return v_ids;
  end if;
  p_mark := v_row.seq - 1;
  v_from := p_mark;
  v_ids := '{}';
  perform from tuskline.queue_%1$s where ctid = v_row.ctid for update skip locked;
  if not found then
    v_from := greatest(p_mark, (select last_value from tuskline.queue_%1$s_taken));
    v_first := v_row.seq;
  end if;
  loop
    with d as (delete from tuskline.queue_%1$s where ctid = any (array(
      select ctid from tuskline.queue_%1$s where seq > v_from order by seq limit p_limit - cardinality(v_ids)
         for update skip locked)) returning seq, task_id)
    select least(v_first, min(d.seq)), greatest(v_last, max(d.seq)), v_ids || array_agg(d.task_id order by d.task_id)
      into v_first, v_last, v_ids from d;
    exit when v_from = p_mark or cardinality(v_ids) = p_limit;
    v_from := p_mark;
    v_both := true;
  end loop;
  if v_last is null then return null; end if;
  if v_both then v_ids := array(select i.id from unnest(v_ids) as i (id) order by i.id); end if;
  if cardinality(v_ids) >= 100 then
    perform setval('tuskline.queue_%1$s_taken', v_last);
  end if;
  return v_first || (v_last || v_ids);
end $$ $text$, p_queue);
  execute format('comment on function %s is %L', v_name, format('Takes up to p_limit rows with seq > p_mark off queue %s.', p_queue));
  execute format('revoke all on function %s from public', v_name);
end $make$;
comment on function tuskline.make_pop(integer) is 'Makes pop_<queue_id>, or makes it anew.';
