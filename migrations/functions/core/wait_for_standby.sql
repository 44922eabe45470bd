-- witness: makes the commit of an answer that changed nothing wait for the synchronous standby, as the
-- commit of a change does. A primary that its standby has replaced, and that clients still reach, knows
-- nothing of what happened since: it would call every new attempt a stranger. And what it finds done may
-- have been committed in doubt. With the message there is something to wait for, and that wait never ends.
create or replace function tuskline_core.wait_for_standby() returns void language plpgsql as $$
begin
  if current_setting('synchronous_standby_names') <> '' then
    perform pg_logical_emit_message(true, 'tuskline', '');
  end if;
end $$;
comment on function tuskline_core.wait_for_standby() is 'Lets the synchronous standby, if there is one, confirm an answer that changed nothing.';
