-- install: last of the functions. Fastens the trigger, closes the doors, opens the queues. The trigger
-- is made only when it is missing: making it again would take a lock that every insert waits for.
do $$
begin
  if not exists (select from pg_trigger where tgrelid = 'tuskline.task'::regclass and tgname = 'route') then
    create trigger route after insert on tuskline.task
      referencing new table as new_rows for each statement execute function tuskline.route();
    comment on trigger route on tuskline.task is 'Puts every inserted task into its queue or a timer, in the same transaction.';
  end if;
end $$;

-- The history of tables is refinery's own; a database made by other means has none.
do $$
begin
  if to_regclass('tuskline.schema_history') is not null then
    comment on table  tuskline.schema_history is 'Which migrations of the tables were applied.';
    comment on column tuskline.schema_history.version is 'Number of the migration.';
    comment on column tuskline.schema_history.name is 'Its name.';
    comment on column tuskline.schema_history.applied_on is 'When, in words.';
    comment on column tuskline.schema_history.checksum is 'Hash of its text.';
  end if;
end $$;

revoke all on all tables in schema tuskline from public;
revoke all on all sequences in schema tuskline from public;
revoke all on all functions in schema tuskline from public;
-- The clock stands in column defaults, which run with the rights of whoever inserts; it tells nothing
-- but the time.
grant execute on function tuskline.clock() to public;

-- Before the others: their guards are taken in this order elsewhere.
select tuskline.rebuild_queues();
select tuskline.add_segments();
select tuskline.make_leaf_verbs();
