-- Counts the bytes of a stored payload for the byte limit of a claim.
--
-- schedule has the text at hand and counts its length. Retries, timers and rebuilds must not read
-- payloads of many pages again, so they use the size in the row. It is the length of the text
-- unless PostgreSQL has compressed it. A compressed payload (some over 2 KB) counts as 16 times its
-- compressed size, at most 1 MiB, which no payload exceeds.
create or replace function tuskline_core.payload_bytes(p_payload json) returns integer
language sql stable as $$
  select case when pg_column_compression(p_payload) is null
              then coalesce(pg_column_size(p_payload), 0)
              else least(16 * pg_column_size(p_payload), 1048576) end
$$;
comment on function tuskline_core.payload_bytes(json) is
  'Bytes that a stored payload counts for in a claim. Does not read it: exact unless compressed.';
