//! The duties of every table, view and function of the schema to its readers and its owner.

use crate::support::Db;

/// Checks that a query for violations of a rule finds none.
async fn check_none(db: &Db, rule: &str, sql: &str) {
    let broken: Vec<String> = db.all(sql).await;
    assert!(broken.is_empty(), "{rule}: {broken:?}");
}

#[tokio::test]
async fn everything_in_the_schema_has_a_comment() {
    let db = Db::with_lambda("work").await;
    check_none(
        &db,
        "a table, view or sequence without a comment",
        "select relname::text from pg_class c where relnamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace) and relkind in ('r', 'p', 'v', 'S')
            and relname !~ '_queue_id_seq$' and obj_description(oid, 'pg_class') is null",
    )
    .await;
    check_none(
        &db,
        "a column of a table or view without a comment",
        "select c.relname || '.' || a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid
          where c.relnamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace) and c.relkind in ('r', 'p', 'v', 'm') and not c.relispartition
            and a.attnum > 0 and not a.attisdropped and col_description(c.oid, a.attnum) is null",
    )
    .await;
    check_none(
        &db,
        "a function without a comment",
        "select oid::regprocedure::text from pg_proc where pronamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace) and obj_description(oid, 'pg_proc') is null",
    )
    .await;
    check_none(
        &db,
        "a type without a comment",
        "select typname::text from pg_type where typnamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace) and typtype = 'e' and obj_description(oid, 'pg_type') is null",
    )
    .await;
}

#[tokio::test]
async fn the_sdk_gives_arguments_their_names_and_types_in_the_database() {
    let db = Db::new().await;
    for verb in tuskline_sdk::verbs::ALL {
        for typed in verb.types.split(", ").filter(|typed| !typed.is_empty()) {
            let (name, kind) = typed.split_once(' ').unwrap();
            let sql = format!(
                "select p.oid::regprocedure::text from pg_proc p
                        cross join unnest(p.proargnames, p.proargtypes::oid[]) as a (name, kind)
                  where p.pronamespace = 'tuskline'::regnamespace and p.proname = '{}'
                    and a.name = 'p_{name}' and a.kind = '{kind}'::regtype",
                verb.name
            );
            let found: Vec<String> = db.all(&sql).await;
            assert!(!found.is_empty(), "{} has no p_{name} {kind}", verb.name);
        }
    }
}

#[tokio::test]
async fn a_function_that_acts_for_its_owner_trusts_no_search_path() {
    let db = Db::new().await;
    check_none(
        &db,
        "a definer function with another search_path",
        "select oid::regprocedure::text from pg_proc where pronamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace) and prosecdef
            and not coalesce(proconfig, '{}') @> array['search_path=pg_catalog, pg_temp']",
    )
    .await;
    check_none(
        &db,
        "a function with a search_path that finds temporary objects first",
        "select p.oid::regprocedure::text from pg_proc p cross join unnest(p.proconfig) as c (setting)
          where p.pronamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace)
            and c.setting like 'search_path=%' and c.setting not like '%, pg_temp'",
    )
    .await;
    check_none(
        &db,
        "a verb that may compile its plan",
        "select oid::regprocedure::text from pg_proc where pronamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace) and prosecdef
            and proname not in ('version', 'readiness', 'schedule', 'route')
            and not coalesce(proconfig, '{}') @> array['jit=off']",
    )
    .await;
}

#[tokio::test]
async fn the_public_may_do_nothing() {
    let db = Db::new().await;
    db.define("work").await;
    check_none(
        &db,
        "a function that everybody may call and the manifest does not name",
        "select p.oid::regprocedure::text from pg_proc p
                cross join aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
          where p.pronamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace) and a.grantee = 0
            and not exists (select from tuskline_core.verb_groups() v
                             where 'public' = any (v.groups) and p.proname = any (string_to_array(v.name, '.')))",
    )
    .await;
    check_none(
        &db,
        "a function that everybody may call and that reads a table or acts for its owner",
        "select p.oid::regprocedure::text from pg_proc p join tuskline_core.verb_groups() v
                on 'public' = any (v.groups) and p.proname = any (string_to_array(v.name, '.'))
          where p.pronamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace)
            and p.proname <> all ('{clock,may,barred}') and (p.prosecdef or p.provolatile <> 'i')",
    )
    .await;
    check_none(
        &db,
        "a schema that everybody may use",
        "select nspname::text from pg_namespace cross join aclexplode(nspacl) a
          where nspname in ('tuskline', 'tuskline_core') and a.grantee = 0",
    )
    .await;
    check_none(
        &db,
        "a table that everybody may use",
        "select relname::text from pg_class where relnamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace) and relkind in ('r', 'p', 'v', 'S')
            and exists (select from aclexplode(relacl) a where a.grantee = 0)",
    )
    .await;
    let nobody = format!("nobody_{}", db.one::<String>("select current_database()::text").await);
    db.run(&format!(
        "create role {nobody}; grant usage on schema tuskline to {nobody}; set role {nobody}"
    ))
    .await;
    for sql in [
        "select tuskline.schedule('work')",
        "select tuskline.cancel(1)",
        "select * from tuskline.tasks",
        "insert into tuskline.task (lambda) values ('work')",
    ] {
        assert!(db.refused(sql).await.starts_with("42501"), "{sql}");
    }
    db.run("reset role").await;
}

#[tokio::test]
async fn a_service_needs_no_more_than_the_verb_it_calls() {
    let db = Db::with_lambda("work").await;
    let service = format!("service_{}", db.one::<String>("select current_database()::text").await);
    db.run(&format!(
        "create role {service}; grant usage on schema tuskline to {service};
         do $$ begin
           execute (select string_agg(format('grant execute on function %s to {service}', oid::regprocedure), '; ')
                      from pg_proc where pronamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace)
                       and proname in ('schedule', 'schedule_many', 'task_status'));
         end $$;
         set role {service};
         select tuskline.schedule('work');
         select tuskline.schedule('work', p_delay => '1 hour');
         select tuskline.schedule_many(array['work', 'work']);
         select * from tuskline.task_status(1)"
    ))
    .await;
    assert!(db.refused("select payload from tuskline.task").await.starts_with("42501"));
    db.run("reset role").await;
    assert_eq!(db.queued().await, 3);
}

#[tokio::test]
async fn a_scheduler_may_insert_and_reads_no_column_but_the_id() {
    let db = Db::with_lambda("work").await;
    let service = format!("writer_{}", db.one::<String>("select current_database()::text").await);
    db.run(&format!(
        "create role {service} in role tuskline_scheduler; grant {service} to current_user;
         set role {service};
         insert into tuskline.task (lambda, payload, priority) values ('work', '{{}}', 'high') returning id;
         insert into tuskline.task (lambda, scheduled_at) values ('work', now() + interval '1 hour')"
    ))
    .await;
    let forged = "insert into tuskline.task (lambda, fence) values ('work', 7)";
    assert!(db.refused(forged).await.starts_with("TK008"));
    for column in ["payload", "lambda", "status", "*"] {
        let read = db.refused(&format!("select {column} from tuskline.task")).await;
        assert!(read.starts_with("42501"), "{column}: {read}");
    }
    db.run("reset role").await;
    assert_eq!(db.queued().await, 1);
}

#[tokio::test]
async fn no_column_that_changes_is_indexed() {
    let db = Db::with_lambda("work").await;
    check_none(
        &db,
        "an index of task beyond (id)",
        "select indexrelid::regclass::text from pg_index i join pg_class c on c.oid = i.indrelid
          where c.relnamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace) and c.relname ~ '^task(_[0-9]+|_kept)?$'
            and pg_get_indexdef(indexrelid) !~ '\\(id\\)$'",
    )
    .await;
    check_none(
        &db,
        "an index of a queue beyond (seq)",
        "select indexrelid::regclass::text from pg_index i join pg_class c on c.oid = i.indrelid
          where c.relnamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace) and c.relname ~ '^queue_[0-9]+$'
            and pg_get_indexdef(indexrelid) !~ '\\(seq\\)$'",
    )
    .await;
    check_none(
        &db,
        "a queue of which an analyze or an early vacuum makes all sessions plan again",
        "select relname::text from pg_class where relnamespace = 'tuskline_core'::regnamespace and relname ~ '^queue_[0-9]+$'
            and reloptions is distinct from '{autovacuum_vacuum_threshold=2000,autovacuum_vacuum_insert_threshold=-1,autovacuum_analyze_threshold=2147483647,vacuum_truncate=off}'",
    )
    .await;
    check_none(
        &db,
        "a queue that writes to the log",
        "select relname::text from pg_class where relnamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace) and relname ~ '^(queue_[0-9]+|queues_complete)$' and relpersistence <> 'u'",
    )
    .await;
}

#[tokio::test]
async fn a_verb_has_at_most_seventy_lines() {
    let db = Db::new().await;
    check_none(
        &db,
        "a longer one",
        "select proname::text from pg_proc where pronamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace)
            and array_length(string_to_array(btrim(prosrc, E'\\n'), E'\\n'), 1) > 70",
    )
    .await;
}

#[tokio::test]
async fn eight_segments_are_ready_in_each_range_of_ids() {
    let db = Db::new().await;
    assert_eq!(db.one::<i64>("select count(*) from tuskline.segment").await, 18);
    db.run(&format!("select setval('tuskline.task_seq', {})", db.id(3 << 24))).await;
    assert_eq!(db.one::<i32>("select tuskline.add_segments()").await, 3);
    assert_eq!(db.one::<i32>("select tuskline.add_segments()").await, 0);
    db.define("work").await;
    db.run(&format!("select setval('tuskline.task_seq', {})", db.id((11 << 24) + 5))).await;
    let id = db.schedule("work").await;
    assert_eq!(db.status(id).await, "enqueued");
    let default: i64 = db.one("select count(*) from pg_partitioned_table where partdefid <> 0 and partrelid::regclass::text like 'tuskline.%'").await;
    assert_eq!(default, 0, "a default partition would let any reader block a new segment");
}

/// With `standard_conforming_strings` off, a backslash in a literal of a function's body is an
/// escape at the time of the call. `chr(92)` and classes as `[[:space:]]` are not.
#[test]
fn no_text_of_ours_has_a_backslash() {
    let mut texts = 0;
    let mut folders = vec![format!("{}/migrations", env!("CARGO_MANIFEST_DIR")).into()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir::<std::path::PathBuf>(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "sql") {
                let text = std::fs::read_to_string(&path).unwrap();
                let line = text.lines().position(|line| line.contains('\\'));
                assert_eq!(line, None, "{}", path.display());
                texts += 1;
            }
        }
    }
    assert!(texts > 90, "{texts}");
}

#[tokio::test]
async fn what_sessions_call_directly_and_acts_for_them_trusts_no_search_path() {
    let db = Db::new().await;
    // These are no definer functions. But servers call them, perhaps through a pooler that took no
    // search_path.
    for verb in ["add_segments"] {
        let trusts: bool = db
            .ask(
                "select not coalesce(proconfig, '{}') @> array['search_path=pg_catalog, pg_temp']
                   from pg_proc where pronamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace) and proname = $1",
                &[&verb],
            )
            .await;
        assert!(!trusts, "{verb}");
    }
}

/// Verbs of groups that need no right: counts, times, numbers of queues and names, which are no
/// secret; `define_lambda` leaves a lambda that exists as it is.
const NO_RIGHT: &str = "
    attempt_waits chain_of damage define_lambda executor_lambdas executor_loads gauges held_by_gates invariants
    lambda_hour limit_gauges longest_attempts longest_waits max_attempts peek queue_gauges readiness rebuild_queues scale
    segments_ahead segments_to_finish start_delays statistics unarchived unwatch version wait_gauges wait_times watch";

#[tokio::test]
async fn a_verb_of_a_group_checks_rights_or_is_known_to_need_none() {
    let db = Db::new().await;
    let verbs = r"
        with f as (
          select p.oid, p.pronamespace::regnamespace || '.' || p.proname as name, p.prosrc, p.prosecdef,
                 p.prosrc ~ 'tuskline_core\.(need|need_each|need_on_task|need_operation|own_executor|own_fences|is_entitled|has_right|check_grant|refuse_claim)\(|tuskline\.(barred|may)\(' as checks
            from pg_proc p where p.pronamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace)),
        c as (
          select distinct f.oid from f, regexp_matches(f.prosrc, '(tuskline(?:_core)?\.[a-z_0-9]+)\(', 'g') m
                 join f callee on callee.name = m[1] and callee.checks)
        select distinct v.name from f join tuskline_core.verb_groups() v on f.name = 'tuskline.' || v.name
         where f.prosecdef and not 'public' = any (v.groups) and not f.checks and f.oid not in (select oid from c)
         order by 1";
    let unchecked: Vec<String> = db.all(verbs).await;
    assert_eq!(unchecked, NO_RIGHT.split_whitespace().collect::<Vec<_>>());
}

#[tokio::test]
async fn no_function_reads_a_view_that_hides_contents() {
    let db = Db::new().await;
    check_none(
        &db,
        "a function that reads a view of people: its reader may lack a right",
        r"select p.oid::regprocedure || ' reads ' || v.name
           from (select c.relname as name from pg_class c
                  where c.relkind = 'v' and c.relnamespace = 'tuskline'::regnamespace
                    and pg_get_viewdef(c.oid) ~ 'barred') v
                join pg_proc p on p.pronamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace)
                 and p.prosrc ~ ('tuskline\.' || v.name || '\M(?!\()')",
    )
    .await;
}
