-- payload_bytes: what a payload counts for when a claim is bounded in bytes. Where a task is scheduled
-- its text is at hand, and its length is counted. Retries, timers and rebuilds must not read payloads
-- again, which may be many pages each; they ask the row. It knows the length of what is stored as it
-- came. A compressed payload (some over 2 KB) counts as 16 times its compressed size, at most 1 MiB,
-- which no payload exceeds.
create or replace function tuskline_core.payload_bytes(p_payload json) returns integer
language sql stable as $$
  select case when pg_column_compression(p_payload) is null
              then coalesce(pg_column_size(p_payload), 0)
              else least(16 * pg_column_size(p_payload), 1048576) end
$$;
comment on function tuskline_core.payload_bytes(json) is
  'Bytes that a stored payload counts for in a claim, without reading it: exact unless compressed.';
