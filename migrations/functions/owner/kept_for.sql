-- Returns how long a task that ended with this status is kept; null if the status is no end.
--
-- Planner: PostgreSQL inlines this single expression. Call it in the statement that reads the rows.
create or replace function tuskline_core.kept_for(l tuskline.lambda, p_status tuskline.status)
returns interval language sql immutable as $$
  select case p_status
           when 'dead' then l.dead_retention
           when 'cancelled' then coalesce(l.cancelled_retention, l.retention)
           when 'dropped' then coalesce(l.dropped_retention, l.retention)
           when 'fatal_failure' then coalesce(l.fatal_retention, l.dead_retention)
           else case when p_status >= 'success' then l.retention end
         end
$$;
comment on function tuskline_core.kept_for(tuskline.lambda, tuskline.status) is
  'Returns the retention of a lambda''s tasks that ended with this status; null: it is no end.';
