//! The registry of locks, intervals and limits (`words/locks.sql`) agrees with the functions.

use crate::support::Db;

/// The lines of a table of the registry: a value, and the functions that have it.
fn listed(head: &str) -> Vec<String> {
    let registry = include_str!("../../../migrations/functions/words/locks.sql");
    let lines = registry.lines().skip_while(|line| !line.starts_with(&format!("--   {head} ")));
    let rows = lines.skip(1).take_while(|line| line.starts_with("--   "));
    let mut listed: Vec<_> = rows
        .flat_map(|row| {
            let mut cells = row["--   ".len()..].split("  ").filter(|cell| !cell.is_empty());
            let (value, functions) = (cells.next().unwrap().trim(), cells.next().unwrap().trim());
            functions.split(' ').map(|name| format!("{name} {value}")).collect::<Vec<_>>()
        })
        .collect();
    listed.sort();
    assert!(listed.len() > 5, "{head}: {listed:?}");
    listed
}

const OURS: &str =
    "p.pronamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace) order by 1";

#[tokio::test]
async fn each_lock_timeout_is_registered() {
    let db = Db::new().await;
    let mut set: Vec<String> = db
        .all(&format!(
            "select distinct p.proname || ' ' || split_part(c.setting, '=', 2)
               from pg_proc p cross join unnest(p.proconfig) as c (setting)
              where c.setting like 'lock_timeout=%' and {OURS}"
        ))
        .await;
    set.sort();
    assert_eq!(set, listed("lock_timeout"));
}

#[tokio::test]
async fn each_bound_of_rows_is_registered() {
    let db = Db::new().await;
    let mut set: Vec<String> = db
        .all(&format!(
            "select distinct p.proname || ' ' || m[1]
               from pg_proc p
                    cross join regexp_match(pg_get_function_arguments(p.oid),
                                            'p_limit integer DEFAULT ([0-9]+)') as m
              where m is not null and {OURS}"
        ))
        .await;
    set.sort();
    assert_eq!(set, listed("p_limit"));
}

#[tokio::test]
async fn advisory_locks_take_their_class_from_the_registry() {
    let db = Db::with_lambda("work").await;
    let found: Vec<String> = db
        .all(&format!(
            "select p.proname::text from pg_proc p
              where p.prosrc ~ 'pg_(try_)?advisory'
                and regexp_replace(p.prosrc, '\\s', '', 'g')
                    ~ 'advisory_(xact_)?(un)?lock(_shared)?\\((?!tuskline_core.watch_class\\(\\))'
                and {OURS}"
        ))
        .await;
    assert_eq!(found, Vec::<String>::new());
    let users: Vec<String> = db
        .all(&format!(
            "select p.proname::text from pg_proc p where p.prosrc ~ 'watch_class' and {OURS}"
        ))
        .await;
    assert_eq!(users, ["is_watched", "unwatch", "watch"]);
}
