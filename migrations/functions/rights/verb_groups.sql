-- The manifest: which group of roles may call which verb and read which view.
--
-- A group is a role that cannot log in: tuskline_scheduler, _worker, _operator, _team, _viewer and
-- _monitor. The group public stands for every role. A verb that the manifest does not name belongs
-- to the owner of the schema, and so to tuskline migrate and tuskline serve.
--
-- Names without a schema are of schema tuskline. PUBLIC may execute the functions that column
-- defaults and views call with the rights of their caller, if they read nothing or tell it its own
-- rights on lambdas.
-- tests/it/surface/roles.rs compares the manifest with the catalogue, and docs/roles.md with it.
create or replace function tuskline_core.verb_groups()
returns table (privilege text, name text, columns text[], groups text[])
language sql immutable as $$
  select m.privilege, n.name, string_to_array(m.columns, ' '), string_to_array(m.groups, ' ')
    from (values
      ('execute', 'public', 'barred clock histogram_edges may quantile '
         'tuskline_core.histogram_sum tuskline_core.is_idle tuskline_core.kept_for', null),
      ('execute', 'scheduler', 'await_end schedule schedule_chain schedule_many schedule_once '
         'schedule_then', null),
      ('execute', 'scheduler operator team', 'cancel', null),
      ('execute', 'scheduler worker', 'parents', null),
      ('execute', 'worker', 'assert_current claim complete end_executor exchange executor_lambdas '
         'heartbeat max_attempts peek rebuild_queues register_executor release release_lease '
         'report_attempts report_crashes set_progress set_results start unwatch watch', null),
      ('execute', 'scheduler worker operator team viewer', 'task_status', null),
      ('execute', 'scheduler worker operator team viewer monitor', 'version', null),
      ('execute', 'operator team', 'advance_operation cancel_chain gate pause_periodic '
         'preview_operation resume_periodic retry retry_chain run_periodic start_operation '
         'stop_operation throttle unblock ungate', null),
      ('execute', 'operator team viewer', 'key_holders show_contents', null),
      ('execute', 'team', 'alter_lambda define define_lambda define_periodic drop_breaker '
         'drop_limit drop_periodic drop_unique grant_lambda revoke_lambda set_breaker set_limit '
         'set_order set_unique set_weight', null),
      ('execute', 'operator team viewer monitor', 'attempt_waits bell_of blocked_gauges chain_of '
         'executor_loads explain gauges held_by_gates held_in_queues lambda_hour limit_gauges '
         'longest_attempts longest_waits queue_gauges readiness scale start_delays statistics '
         'task_facts wait_gauges wait_times', null),
      ('execute', 'monitor', 'damage invariants segments_ahead segments_to_finish unarchived '
         'tuskline_core.id_range tuskline_core.lock_holders tuskline_core.name_transaction '
         'tuskline_core.segment_of', null),
      ('insert', 'scheduler', 'task', null),
      ('usage', 'scheduler', 'task_seq', null),
      ('select', 'scheduler', 'task', 'id'),
      ('select', 'operator team viewer', 'dead_letters operations periodics tasks', null),
      ('select', 'operator team viewer monitor', 'acts attempts blocked_keys breakers chain_tasks '
         'chains dead_groups executor_statistics executors gates lambda_grants lambdas limits '
         'queue_statistics queues unique_keys wait_statistics waiting', null),
      -- Tables, or columns of them, that hold no contents of tasks: top reads them.
      ('select', 'operator team viewer monitor', 'dead_letter executor installation lambda lease '
         'parked queue', null),
      ('select', 'operator team viewer monitor', 'task', 'id lambda collection status fence '
         'attempt scheduled_at created_at started_at finished_at'),
      ('select', 'monitor', 'tasks', 'id lambda collection priority status attempt crashes due_at '
         'created_at started_at finished_at next_trigger_at fence'),
      ('select', 'monitor', 'dead_letters', 'id lambda collection priority status attempt crashes '
         'error_class message fingerprint failures first_failed_at last_failed_at finished_at '
         'expires_at redrive_id'),
      ('select', 'monitor', 'periodics', 'name problem'),
      ('select', 'monitor', 'segment task_seq future_seq', null)
    ) as m (privilege, groups, names, columns)
         cross join lateral unnest(string_to_array(m.names, ' ')) as n (name)
$$;
comment on function tuskline_core.verb_groups() is
  'Which group of roles (public: every role) has which privilege on which verb, view or table. '
  'Columns null: all of them.';

-- Spells the manifest out: a row for each privilege that a group must have, as GRANT names it.
create or replace function tuskline_core.wanted_grants()
returns table (grantee text, privilege text)
language sql stable set search_path = pg_catalog, pg_temp as $$
  with m as (
    select case w.name when 'public' then 'public' else 'tuskline_' || w.name end as grantee,
           v.privilege, v.columns,
           case when v.name like '%.%' then v.name else 'tuskline.' || v.name end as name
      from tuskline_core.verb_groups() v cross join unnest(v.groups) as w (name))
  select m.grantee, 'execute on function ' || p.oid::regprocedure
    from m
         join pg_proc p on p.pronamespace = any ('{tuskline,tuskline_core}'::regnamespace[])
          and format('%s.%s', p.pronamespace::regnamespace, p.proname) = m.name
   where m.privilege = 'execute'
  union
  select m.grantee, format('%s%s on %s %s', m.privilege, ' (' || c.name || ')',
                           case r.relkind when 'S' then 'sequence' else 'table' end, m.name)
    from m
         join pg_class r on r.oid = to_regclass(m.name)
         left join lateral unnest(m.columns) as c (name) on true
   where m.privilege <> 'execute'
  union
  select m.grantee, 'usage on schema ' || split_part(m.name, '.', 1)
    from m where m.grantee <> 'public'
$$;
comment on function tuskline_core.wanted_grants() is
  'Privileges that the groups of roles must have, as GRANT names them. Grantee public: every role.';
