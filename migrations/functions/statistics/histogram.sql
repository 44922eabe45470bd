-- A histogram of delays or run times is an array of 16 counts. All histograms have the same edges.
--
-- The SDK has the edges in worker-sdk/src/worker/statistics.rs, and metrics show them in seconds.
-- One edge is 5000 ms, the objective for the start of a due task.
create or replace function tuskline.histogram_edges() returns bigint[]
language sql immutable parallel safe as $$
  select '{5,10,25,50,100,250,500,1000,2500,5000,10000,30000,60000,300000,1800000}'::bigint[]
$$;
comment on function tuskline.histogram_edges() is
  'Upper bounds of the first 15 buckets of a histogram, in ms. The 16th bucket has none.';

create or replace function tuskline_core.bucket_of(p_ms bigint) returns smallint
language sql immutable parallel safe as $$
  select (1 + width_bucket(p_ms - 1, tuskline.histogram_edges()))::smallint
$$;
comment on function tuskline_core.bucket_of(bigint) is
  'Number of the first bucket whose upper bound is the duration or more.';

-- Returns a quantile of a histogram in ms, interpolated within its bucket.
--
-- Null: the histogram is empty. The last bucket has no upper bound, so a quantile within it is its
-- lower bound.
create or replace function tuskline.quantile(p_counts bigint[], p_share double precision)
returns double precision language sql immutable parallel safe as $$
  with b as (
    select c.n, c.i, coalesce(e.a[c.i - 1], 0) as low, coalesce(e.a[c.i], e.a[c.i - 1]) as high,
           sum(c.n) over (order by c.i) as upto, sum(c.n) over () as everything
      from unnest(p_counts) with ordinality as c (n, i),
           (select tuskline.histogram_edges() as a) e)
  select b.low + (b.high - b.low) * (p_share * b.everything - (b.upto - b.n)) / b.n
    from b where b.n > 0 and b.upto >= p_share * b.everything
   order by b.i limit 1
$$;
comment on function tuskline.quantile(bigint[], double precision) is
  'Quantile of a histogram in ms: 0.95 gives the 95th percentile. Null: the histogram is empty.';

-- Cuts a count to 0 to 2^53 - 1, the largest whole number that JSON and Prometheus hold exactly.
--
-- Sums of reports are numeric before the cut. So no false report makes a fold overflow. The sum of
-- a thousand totals still fits into bigint. Null stays null.
create or replace function tuskline_core.capped(p_count numeric) returns bigint
language sql immutable parallel safe as $$
  select case when p_count < 0 then 0 when p_count > 9007199254740991 then 9007199254740991
              else p_count end::bigint
$$;
comment on function tuskline_core.capped(numeric) is
  'Cuts a count to 0 to 2^53 - 1. The sum of a thousand such counts fits into bigint.';

-- Adds or subtracts two histograms. Null counts as an empty one.
--
-- Views call it with the rights of their reader, who may not use schema tuskline_core. So it calls
-- no function of that schema, and has the bounds of capped() itself.
create or replace function tuskline_core.histogram_sum(
  p_left bigint[], p_right bigint[], p_sign integer)
returns bigint[] language sql immutable parallel safe as $$
  select array(select least(9007199254740991, greatest(0,
                        coalesce(p_left[i], 0)::numeric + p_sign * coalesce(p_right[i], 0)))::bigint
                 from generate_series(1, 16) as i order by i)
$$;
comment on function tuskline_core.histogram_sum(bigint[], bigint[], integer) is
  'Sum (p_sign 1) or difference (p_sign -1) of two histograms.';
