-- Leaf verbs: what pop, take and end_attempts do to one queue or one segment is a function of that leaf's own,
-- named by its number, so that its plan is kept. Made with the leaf (add_queue, add_segment), dropped with
-- the segment (return_kept), and here made anew, after a change of their text. Nobody adds a leaf
-- meanwhile.
create or replace function tuskline_core.make_segment_verbs(p_segment bigint) returns void
language plpgsql as $$
begin
  perform tuskline_core.make_take(p_segment), tuskline_core.make_end(p_segment);
end $$;
comment on function tuskline_core.make_segment_verbs(bigint) is 'Makes what a segment has of its own: take_<n> and end_<n>.';

create or replace function tuskline_core.make_leaf_verbs() returns void
language plpgsql as $$
begin
  perform tuskline_core.lock_segments();
  perform tuskline_core.lock_queues();
  perform tuskline_core.make_pop(q.queue_id) from tuskline.queue q
    where to_regclass('tuskline_core.queue_' || q.queue_id) is not null; -- else: repair()
  perform tuskline_core.make_segment_verbs(s.segment_no) from tuskline.segment s
    where to_regclass('tuskline_core.task_' || s.segment_no) is not null;
  perform tuskline_core.make_overloads();
end $$;
comment on function tuskline_core.make_leaf_verbs() is
  'Renews what is made of other functions: pop_<n> of every queue, take_<n> and end_<n> of every segment, and overloads.';

create or replace function tuskline_core.finish_leaf_verb(p_name text, p_comment text) returns void
language plpgsql as $$
begin
  execute format('comment on function %s is %L', p_name, p_comment);
  execute format('revoke all on function %s from public', p_name);
end $$;
comment on function tuskline_core.finish_leaf_verb(text, text) is
  'Gives a function of a leaf its comment, and takes it from PUBLIC.';
