-- Creates pop_<n>, which takes tasks off queue n.
--
-- It takes at most p_limit tasks, whose payloads have at most p_bytes together. It always takes
-- one: a payload over that bound would wait for ever.
-- Returns null if nothing was taken, else an array:
--
--   1            the first number that it saw
--   2            the last number that it took
--   3            the bytes taken
--   4            1 if the bound in bytes left some rows, else 0
--   5 and later  the tasks, in id order
--
-- The first statement only checks for a row. Most queues of a claim are empty, and this halves
-- their cost. The later statements start at that row and not at the mark. So the dead rows between
-- them (under an old snapshot all that were taken since) are read once.
--
-- The cut by bytes comes before the row locks: a row that is locked and not taken costs a write.
-- So it counts only untouched rows (xmax is 0) and takes exactly these. A touched row is being
-- taken by another claim, or it is free again because that claim rolled back.
-- To read past a touched row costs a fifth of an attempt to lock it. So 16 workers on one queue
-- drain it in two thirds of the time, 32 workers in half. The steps are:
--
--   plain    the first p_limit rows, if the first is untouched. Ends here if none of them was
--            touched or the bound in bytes is reached: one statement
--   rest     all untouched rows
--   touched  the free ones among the touched rows, of the first 4,000 rows
--
-- If the first row is touched, there is no plain step. If it is also free, touched comes before
-- rest. Otherwise touched comes first by chance, once in 16 times. Free rows behind a row that a
-- transaction holds for long must not wait for ever.
--
-- Planner: one function for each queue, so each statement names its leaf and its plan is kept. The
-- name contains an integer and nothing else. add_queue creates the function; make_leaf_verbs renews
-- all of them.
-- Through the parent, a claim costs 37 instead of 4 µs a task with 400 queues. It takes 400 locks.
-- Planned at each call, an empty queue costs 370,000 instead of 130,000 instructions.
-- The statements use the leaf's primary key (seq). The form ctid = any (array) is deliberate. With
-- a join, a generic plan assumes that LIMIT takes 10 % of the table, and reads all of it.
create or replace function tuskline_core.make_pop(p_queue integer) returns void
language plpgsql as $make$
declare
  v_name text := format('tuskline_core.pop_%s(bigint, integer, bigint)', p_queue);
begin
  perform tuskline_core.make_pop_free(p_queue);
  execute format($text$
create or replace function tuskline_core.pop_%1$s(
  p_mark bigint, p_limit integer, p_bytes bigint)
returns bigint[] language plpgsql as $$
declare
  v_row   record;
  v_new   record;
  v_last  bigint;
  v_bytes bigint := 0;
  v_ids   bigint[] := '{}';
  v_step  text;
  v_steps text[] := '{plain,rest,touched}';
begin
  select seq, ctid, xmax <> '0' as touched into v_row
    from tuskline_core.queue_%1$s where seq > p_mark order by seq limit 1;
  if not found then return null; end if;
  if v_row.touched then
    perform from tuskline_core.queue_%1$s where ctid = v_row.ctid for update skip locked;
    v_steps := case when found or random() < 0.0625 then '{touched,rest}' else '{rest,touched}' end;
  end if;
  foreach v_step in array v_steps loop
    if v_step = 'touched' then
      select * into v_new from tuskline_core.pop_free_%1$s(
        v_row.seq, p_limit - cardinality(v_ids), p_bytes - v_bytes, v_ids = '{}');
    else
      with w as materialized (
        select array_agg(s.at) filter (where s.free and (
                 s.so_far <= p_bytes - v_bytes or s.place = 1 and v_ids = '{}')) as fitting,
               count(*) filter (where s.free) as rows, count(*) filter (where not s.free) as touched
          from (select r.at, r.free, sum(r.bytes) filter (where r.free) over o as so_far,
                       count(*) filter (where r.free) over o as place
                  from (select ctid as at, seq, bytes, xmax = '0' as free
                          from tuskline_core.queue_%1$s
                         where seq >= v_row.seq and (v_step = 'plain' or xmax = '0')
                         order by seq limit p_limit - cardinality(v_ids)) r
                window o as (order by r.seq rows unbounded preceding)) s
      ), d as (
        delete from tuskline_core.queue_%1$s where ctid = any (array(
          select ctid from tuskline_core.queue_%1$s
           where ctid = any ((select w.fitting from w)::tid[]) for update skip locked))
        returning seq, bytes, task_id)
      select max(d.seq) as last, sum(d.bytes) as bytes,
             array_agg(d.task_id order by d.task_id) as ids,
             (select w.rows > coalesce(cardinality(w.fitting), 0) from w) as cut,
             count(*) = (select w.rows + w.touched from w) as whole
        into v_new from d;
      if v_step = 'plain' and v_new.ids is not null and (v_new.whole or v_new.cut) then
        return array[v_row.seq, v_new.last, v_new.bytes, v_new.cut::integer] || v_new.ids;
      end if;
    end if;
    v_last := greatest(v_last, v_new.last);
    v_bytes := v_bytes + coalesce(v_new.bytes, 0);
    v_ids := v_ids || v_new.ids;
    exit when v_new.cut and v_new.ids is not null or cardinality(v_ids) = p_limit;
  end loop;
  if v_last is null then return null; end if;
  return array[v_row.seq, v_last, v_bytes, v_new.cut::integer]
    || array(select i.id from unnest(v_ids) as i (id) order by i.id);
end $$ $text$, p_queue);
  perform tuskline_core.finish_leaf_verb(v_name, format(
    'Takes up to p_limit rows above p_mark, of p_bytes together, off queue %s.', p_queue));
end $make$;
comment on function tuskline_core.make_pop(integer) is
  'Creates or replaces pop_<queue_id>.';

-- Creates pop_free_<n>: the step touched of pop_<n>.
--
-- It locks the rows before the cut by bytes: a rollback leaves few of them.
create or replace function tuskline_core.make_pop_free(p_queue integer) returns void
language plpgsql as $make$
declare
  v_name text := format('tuskline_core.pop_free_%s(bigint, integer, bigint, boolean)', p_queue);
begin
  execute format($text$
create or replace function tuskline_core.pop_free_%1$s(
  p_from bigint, p_limit integer, p_bytes bigint, p_first boolean,
  out last bigint, out bytes bigint, out ids bigint[], out cut boolean)
language plpgsql as $$
#variable_conflict use_column
begin
  with r as materialized (
    select ctid as at, seq, bytes from tuskline_core.queue_%1$s
     where ctid = any (array(
       select i.at from (select ctid as at, xmax as toucher from tuskline_core.queue_%1$s
                          where seq >= p_from order by seq limit 4000) i
        where i.toucher <> '0'))
     order by seq limit p_limit for update skip locked
  ), w as materialized (
    select array_agg(s.at) filter (
             where s.so_far <= p_bytes or s.place = 1 and p_first) as fitting
      from (select r.at, sum(r.bytes) over o as so_far, row_number() over o as place
              from r window o as (order by r.seq rows unbounded preceding)) s
  ), d as (
    delete from tuskline_core.queue_%1$s where ctid = any ((select w.fitting from w)::tid[])
    returning seq, bytes, task_id)
  select max(d.seq), sum(d.bytes), array_agg(d.task_id), count(*) < (select count(*) from r)
    into last, bytes, ids, cut from d;
end $$ $text$, p_queue);
  perform tuskline_core.finish_leaf_verb(v_name, format(
    'Takes rows off queue %s that another transaction has touched and left.', p_queue));
end $make$;
comment on function tuskline_core.make_pop_free(integer) is
  'Creates or replaces pop_free_<queue_id>.';
