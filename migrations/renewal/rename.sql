-- Renames columns, in the transaction that replaces the functions and views which read them.
--
-- A file of table migrations commits before the functions are replaced. Until then each call of a
-- function that reads a renamed column would fail.
-- It comes before remember.sql, which saves the grants on columns by their names.
do $$
declare
  r record;
begin
  for r in select c.oid::regclass as name, u.before, u.after
             from (values ('tuskline.lambda', 'owner', 'defined_by'),
                          ('tuskline.lambdas', 'owner', 'defined_by'),
                          ('tuskline.periodic', 'trouble', 'last_error'),
                          ('tuskline.periodics', 'trouble', 'problem')) as u (name, before, after)
                  join pg_class c on c.oid = to_regclass(u.name)
                  join pg_attribute a on a.attrelid = c.oid and a.attname = u.before
                   and not a.attisdropped loop
    execute format('alter table %s rename column %I to %I', r.name, r.before, r.after);
  end loop;
end $$;
