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

revoke all on all tables in schema tuskline from public;
revoke all on all sequences in schema tuskline from public;
revoke all on all functions in schema tuskline from public;

select tuskline.add_segments();
select tuskline.rebuild_queues();
