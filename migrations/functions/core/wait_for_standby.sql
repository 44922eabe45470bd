-- Makes the commit of an answer that changed nothing wait for the synchronous standby.
--
-- The commit of a change does that already. A primary that its standby has replaced, and that
-- clients still reach, does not know what happened since. It would refuse valid new attempts, and a
-- worker would drop its lease. A result that it finds recorded may be an uncertain commit.
-- The message gives the commit something to wait for. On such a primary the wait never ends.
create or replace function tuskline_core.wait_for_standby() returns void language plpgsql as $$
begin
  if current_setting('synchronous_standby_names') <> '' then
    perform pg_logical_emit_message(true, 'tuskline', '');
  end if;
end $$;
comment on function tuskline_core.wait_for_standby() is
  'Lets the synchronous standby, if there is one, confirm an answer that changed nothing.';
