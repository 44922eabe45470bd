-- Completes the installation after all function files: trigger, comments, rights, queues, segments.
--
-- Locks: make_route_trigger creates the trigger only if it is missing, because every insert waits
-- for the lock that this takes.
select tuskline_core.make_route_trigger();

-- The history exists only in a database whose tables were created by migrate.
do $$
begin
  if to_regclass('tuskline_core.schema_history') is not null then
    comment on table tuskline_core.schema_history is
      'Migrations of the tables that were applied.';
    comment on column tuskline_core.schema_history.version is 'Number of the migration.';
    comment on column tuskline_core.schema_history.name is 'Name of the migration.';
    comment on column tuskline_core.schema_history.applied_on is 'When it was applied, as text.';
    comment on column tuskline_core.schema_history.checksum is 'Hash of its text.';
  end if;
end $$;

revoke all on all tables in schema tuskline, tuskline_core from public;
revoke all on all sequences in schema tuskline, tuskline_core from public;

-- migrate has called set_cell before this file, so the segments are those of the cell.
-- rebuild_queues runs first: all code takes the guards in the order recovery, segments, queues.
select tuskline.rebuild_queues();
select tuskline.add_segments();
select tuskline_core.make_leaf_verbs();
select tuskline_core.close_functions(), tuskline_core.note_rights();
select tuskline.grant_verbs();
