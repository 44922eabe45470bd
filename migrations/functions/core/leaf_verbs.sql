-- Makes the functions with statements for one queue or one segment each.
--
-- So the plans of pop, take and end_attempts are kept. Their names have the number of the segment
-- or of the block of queues. define_lambda and add_segment make them, and return_kept drops those of a
-- segment. make_leaf_verbs makes all of them again after a change of their text.
create or replace function tuskline_core.make_segment_verbs(p_segment bigint) returns void
language plpgsql as $$
begin
  perform tuskline_core.make_take(p_segment), tuskline_core.make_end(p_segment);
end $$;
comment on function tuskline_core.make_segment_verbs(bigint) is
  'Makes the functions of one segment: take_<n> and end_<n>.';

-- Makes the functions of all leaves and all overloads again, in place: claims and results call them
-- meanwhile. Then drops what it has not written, the former signatures.
--
-- Locks: segments and queues, so that no transaction adds a leaf meanwhile.
create or replace function tuskline_core.make_leaf_verbs() returns void
language plpgsql as $$
declare
  r record;
begin
  perform tuskline_core.lock_guard('segment');
  perform tuskline_core.lock_guard('queue');
  perform tuskline_core.make_pops();
  perform tuskline_core.make_segment_verbs(s.segment_no) from tuskline.segment s
    where to_regclass('tuskline_core.task_' || s.segment_no) is not null;
  for r in select p.oid::regprocedure as name from pg_proc p
            where p.pronamespace = 'tuskline_core'::regnamespace
              and p.proname ~ '^(pop|(pop|take|end)_[0-9]+)$' and age(p.xmin) > 0 loop
    execute format('drop function %s', r.name);
  end loop;
  perform tuskline_core.make_overloads();
end $$;
comment on function tuskline_core.make_leaf_verbs() is
  'Makes generated functions again: pop and pop_<n> of the queues, take_<n> and end_<n> of every '
  'segment, and overloads.';

create or replace function tuskline_core.finish_leaf_verb(p_name text, p_comment text) returns void
language plpgsql as $$
begin
  execute format('comment on function %s is %L', p_name, p_comment);
  execute format('revoke all on function %s from public', p_name);
end $$;
comment on function tuskline_core.finish_leaf_verb(text, text) is
  'Sets the comment of a leaf''s function and revokes it from PUBLIC.';
