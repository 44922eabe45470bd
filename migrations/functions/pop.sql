-- pop_<n>: takes rows off queue n. One function for each queue, made by add_queue and renewed with the
-- others: so the statement names its leaf, and its plan is kept. Through the parent a claim costs 37
-- instead of 4 µs a task with 400 queues, and 400 locks; planned anew at each call, an empty queue costs
-- 370,000 instructions instead of 130,000. The name is made of an integer, nothing else.
-- Asks first whether there is anything: most queues of a claim are empty, and that makes them half as dear.
-- Rides the leaf's primary key (seq). The ctid = any (array(...)) form is deliberate: with a join, a
-- generic plan takes LIMIT for 10 % of the table and reads all of it.
-- Returns the first number, the last number and then the tasks in id order; null: nothing there.
create or replace function tuskline.make_pop(p_queue integer) returns void
language plpgsql as $make$
declare
  v_name text := format('tuskline.pop_%s(bigint, integer)', p_queue);
begin
  execute format($text$
create or replace function tuskline.pop_%1$s(p_mark bigint, p_limit integer) returns bigint[]
language plpgsql as $$
declare
  v_popped bigint[];
begin
  if not exists (select from tuskline.queue_%1$s where seq > p_mark) then return null; end if;
  with d as (delete from tuskline.queue_%1$s where ctid = any (array(
    select ctid from tuskline.queue_%1$s where seq > p_mark order by seq limit p_limit for update skip locked)) returning seq, task_id)
  select min(d.seq) || (max(d.seq) || array_agg(d.task_id order by d.task_id)) into v_popped from d;
  return v_popped;
end $$ $text$, p_queue);
  execute format('comment on function %s is %L', v_name, format('Takes up to p_limit rows with seq > p_mark off queue %s.', p_queue));
  execute format('revoke all on function %s from public', v_name);
end $make$;
comment on function tuskline.make_pop(integer) is 'Makes pop_<queue_id>, or makes it anew.';
