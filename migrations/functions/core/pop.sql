-- Takes tasks off queues: pop, and for each block of 32 queues a function pop_<n> that it calls.
--
-- A pop takes at most p_limit tasks above p_mark, whose payloads have at most p_bytes together. It
-- always takes one: a payload over that bound would wait for ever.
-- Returns an empty array if there is no such queue, else:
--
--   1            the first number that it saw, or null
--   2            the last number that it took, or null
--   3            the bytes taken
--   4            1: the bound in bytes left some rows, 2: it did not take the first row
--   5 and later  the tasks, in the order of the queue
--
-- It does what this statement says, here for queue 7:
--
--   delete from tuskline_core.queue_7 where ctid = any (array(
--     select ctid from tuskline_core.queue_7 where seq > p_mark
--      order by seq limit p_limit for update skip locked))
--   returning seq, bytes, task_id
--
-- in three steps, each for a cost that it saves:
--
--   look    the first row. Most queues of a claim are empty. The next step starts at that row, so
--           the dead rows between it and the mark are read once (under an old snapshot: all that
--           were taken since). It is the first number returned, although another claim may be
--           taking it: a mark that passed it would lose it if that claim rolls back.
--   lock    the rows that nobody is taking. A row without xmax was never touched. If its xmax is
--           older than all transactions that run (p_old), its toucher rolled back, or only locked
--           it. To read past a row that another claim is taking costs a fifth of an attempt to lock
--           it: 16 workers on one queue drain it in two thirds of the time, 32 in half.
--   delete  these. In one statement with lock, two tasks cost 22 in place of 15 µs: it sorts and
--           joins.
--
-- While a transaction of any database runs that began earlier, a row that a rollback left looks as
-- if it were being taken. A claim with p_old = -1 tries each lock. One in 16 does so from the
-- start, and each does for a queue where it found too few rows and not the first one (pop_queues).
--
-- The cut by bytes comes after the delete, because few claims need it (put_back).
--
-- Planner: each queue has statements of its own, so that their plans are kept. The names contain an
-- integer and nothing else. Through the parent, a claim costs 37 instead of 4 µs a task with 400
-- queues, and takes 400 locks. By EXECUTE, a look into an empty queue costs 16 instead of 6 µs.
-- Each expression costs a queue 8 kB in each backend: pop_<n> has all conditions once.
-- The form ctid = any (array) is deliberate. With a join, a generic plan assumes that LIMIT takes
-- 10 % of the table, and reads all of it.

create or replace function tuskline_core.make_pop(p_block integer) returns void
language plpgsql as $make$
declare
  v_queues integer[] := array(
    select q.queue_id from tuskline.queue q
     where tuskline_core.block_of(q.queue_id) = p_block order by 1);
  v_name   text := format(
    'tuskline_core.pop_%s(integer, bigint, integer, bigint, integer)', p_block);
  v_pop    text := $text$select seq into v_first
    from tuskline_core.queue_%1$s where seq > p_mark order by seq limit 1;
  exit when not found;
  select array_agg(ctid), array_agg(seq), array_agg(bytes), sum(bytes), array_agg(task_id)
    into v_rows, v_seqs, v_sizes, v_bytes, v_ids
    from (select ctid, seq, bytes, task_id from tuskline_core.queue_%1$s
           where seq >= v_first and age(xmax) > p_old
           order by seq limit p_limit for update skip locked) r;
  delete from tuskline_core.queue_%1$s where ctid = any (v_rows);$text$;
begin
  execute format($text$
create or replace function tuskline_core.pop_%1$s(
  p_queue integer, p_mark bigint, p_limit integer, p_bytes bigint, p_old integer)
returns bigint[] language plpgsql as $$
declare
  v_first bigint;
  v_rows  tid[];
  v_seqs  bigint[];
  v_sizes integer[];
  v_bytes bigint;
  v_ids   bigint[];
begin
  if (p_queue = any (%3$L)) is not true then return '{}'; end if;
  loop
%2$s
    exit;
  end loop;
  if v_ids is null then return array[v_first, null, 0, case when v_first > 0 then 2 end]; end if;
  if v_bytes > p_bytes and cardinality(v_ids) > 1 then
    return v_first || tuskline_core.put_back(p_queue, v_seqs, v_sizes, v_ids, p_bytes);
  end if;
  return array[v_first, v_seqs[cardinality(v_seqs)], v_bytes,
               case when v_seqs[1] > v_first then 2 end] || v_ids;
end $$ $text$, p_block, tuskline_core.branches(v_queues, array(
    select format(v_pop, q) from unnest(v_queues) as q)), v_queues);
  perform tuskline_core.finish_leaf_verb(v_name, format(
    'Takes up to p_limit rows above p_mark, of p_bytes together, off a queue from %s to %s.',
    v_queues[1], v_queues[cardinality(v_queues)]));
end $make$;
comment on function tuskline_core.make_pop(integer) is
  'Creates or replaces pop_<block>, which holds the statements of up to 32 queues.';

-- Renews pop_<n> for the queues of a lambda, or for all queues, and pop, which finds the pop_<n> of
-- a queue.
--
-- Locks: the caller has the guard of queues.
create or replace function tuskline_core.make_pops(p_lambda text default null) returns void
language plpgsql as $make$
declare
  v_blocks integer[];
  v_last   integer[]; -- last queue of each block
begin
  perform tuskline_core.make_pop(b.block)
     from (select distinct tuskline_core.block_of(q.queue_id) as block from tuskline.queue q
            where q.lambda = coalesce(p_lambda, q.lambda)) b;
  select array_agg(b.block order by b.block), array_agg(b.last order by b.block)
    into v_blocks, v_last
    from (select tuskline_core.block_of(q.queue_id) as block, max(q.queue_id) as last
            from tuskline.queue q group by 1) b;
  execute format($text$
create or replace function tuskline_core.pop(
  p_queue integer, p_mark bigint, p_limit integer, p_bytes bigint, p_old integer)
returns bigint[] language plpgsql as $$
begin
%s
  return '{}';
end $$ $text$, tuskline_core.branches(v_last, array(
    select format('  return tuskline_core.pop_%s(p_queue, p_mark, p_limit, p_bytes, p_old);', b)
      from unnest(v_blocks) as b)));
  perform tuskline_core.finish_leaf_verb(
    'tuskline_core.pop(integer, bigint, integer, bigint, integer)',
    'Takes up to p_limit rows above p_mark, of p_bytes together, off a queue.');
end $make$;
comment on function tuskline_core.make_pops(text) is
  'Renews pop_<n> for the queues of a lambda, or for all, and pop.';

create or replace function tuskline_core.block_of(p_queue integer) returns integer
language sql immutable as $$ select (p_queue - 1) / 32 $$;
comment on function tuskline_core.block_of(integer) is
  'Block of a queue: its statements are in pop_<block>.';

-- Returns PL/pgSQL that runs the statements of the first bound that is not below p_queue.
--
-- A binary search: each round joins two neighbours by a condition. Above the last bound, the last
-- statements run.
create or replace function tuskline_core.branches(p_bounds integer[], p_statements text[])
returns text language plpgsql immutable as $$
begin
  while cardinality(p_bounds) > 1 loop
    select array_agg(u.bounds[cardinality(u.bounds)] order by u.pair),
           array_agg(case cardinality(u.bounds) when 1 then u.statements[1]
                          else format($text$if p_queue <= %s then
%s
else
%s
end if;$text$, u.bounds[1], u.statements[1], u.statements[2]) end order by u.pair)
      into p_bounds, p_statements
      from (select (b.nth + 1) / 2 as pair, array_agg(b.bound order by b.nth) as bounds,
                   array_agg(b.statements order by b.nth) as statements
              from unnest(p_bounds, p_statements) with ordinality as b (bound, statements, nth)
             group by 1) u;
  end loop;
  return coalesce(p_statements[1], '');
end $$;
comment on function tuskline_core.branches(integer[], text[]) is
  'PL/pgSQL that finds the statements of a queue by binary search.';

-- Puts back the rows that a pop has deleted beyond a bound in bytes. It keeps one at least.
--
-- Returns elements 2 and later of the result of pop.
-- The rows keep their numbers. Nobody can have missed them: until the commit, all others see the
-- deleted ones. Only a claim of large payloads comes here.
create or replace function tuskline_core.put_back(
  p_queue integer, p_seqs bigint[], p_sizes integer[], p_ids bigint[], p_bytes bigint)
returns bigint[] language plpgsql as $$
declare
  v_fit integer := (
    select greatest(1, count(*) filter (where u.so_far <= p_bytes))
      from (select sum(s.bytes) over (order by s.nth rows unbounded preceding) as so_far
              from unnest(p_sizes) with ordinality as s (bytes, nth)) u);
begin
  insert into tuskline.queued (queue_id, seq, bytes, task_id)
  select p_queue, u.seq, u.bytes, u.id
    from unnest(p_seqs[v_fit + 1:], p_sizes[v_fit + 1:], p_ids[v_fit + 1:]) as u (seq, bytes, id);
  return array[p_seqs[v_fit], (select sum(s) from unnest(p_sizes[:v_fit]) as s),
               case when v_fit < cardinality(p_ids) then 1 end] || p_ids[:v_fit];
end $$;
comment on function tuskline_core.put_back(integer, bigint[], integer[], bigint[], bigint) is
  'Puts back the rows that a pop has deleted beyond a bound in bytes.';
