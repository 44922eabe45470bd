-- install: last of the functions. Fastens the trigger, closes the doors, opens the queues. The trigger
-- is made only when it is missing: making it again would take a lock that every insert waits for.
select tuskline_core.make_route_trigger();

-- A database that was made by other means has no history of its tables.
do $$
begin
  if to_regclass('tuskline_core.schema_history') is not null then
    comment on table  tuskline_core.schema_history is 'Which migrations of the tables were applied.';
    comment on column tuskline_core.schema_history.version is 'Number of the migration.';
    comment on column tuskline_core.schema_history.name is 'Its name.';
    comment on column tuskline_core.schema_history.applied_on is 'When, in words.';
    comment on column tuskline_core.schema_history.checksum is 'Hash of its text.';
  end if;
end $$;

revoke all on all tables in schema tuskline, tuskline_core from public;
revoke all on all sequences in schema tuskline, tuskline_core from public;
select tuskline_core.close_functions();

-- Before the others: their guards are taken in this order elsewhere.
select tuskline.rebuild_queues();
select tuskline.add_segments();
select tuskline_core.make_leaf_verbs();
