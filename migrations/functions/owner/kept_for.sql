-- kept_for: how long a task that has ended stays, by its status. Whoever asks it about many rows asks it in the
-- same statement: it is one expression, which the planner puts in the place of the call.
create or replace function tuskline_core.kept_for(l tuskline.lambda, p_status tuskline.status) returns interval
language sql immutable as $$
  select case p_status when 'success' then l.retention when 'dead' then l.dead_retention
         when 'cancelled' then coalesce(l.cancelled_retention, l.retention)
         when 'dropped' then coalesce(l.dropped_retention, l.retention)
         when 'fatal_failure' then coalesce(l.fatal_retention, l.dead_retention) end
$$;
comment on function tuskline_core.kept_for(tuskline.lambda, tuskline.status) is
  'How long a task of a lambda stays after it has ended so; null: it has not ended.';
