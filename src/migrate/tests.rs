//! The functions follow their texts, whatever changed in them.

use refinery::Migration;

use super::tables::TABLES;
use super::*;

/// The SQL files in and below a folder, as paths without their extension.
fn files_in(folder: &std::path::Path, below: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let named = |path: std::path::PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        match name.strip_suffix(".sql") {
            Some(name) => vec![format!("{below}{name}")],
            None if path.is_dir() => files_in(&path, &format!("{below}{name}/")),
            None => vec![],
        }
    };
    entries.flat_map(named).collect()
}

#[test]
fn every_file_is_applied() {
    for (number, file) in (1..).zip(TABLES.iter()) {
        assert_eq!(file.version(), number, "{file}");
    }
    let functions = FUNCTIONS.iter().chain([&INSTALL]).map(|(name, _)| format!("functions/{name}"));
    let renewal = [REMEMBER, RENAME, CLEAR, SWEEP].map(|(name, _)| format!("renewal/{name}"));
    let tables = TABLES.iter().map(Migration::to_string);
    // The map holds no statement.
    let map = std::iter::once("functions/overview".to_owned());
    let mut applied: Vec<_> = tables.chain(functions).chain(renewal).chain(map).collect();
    let mut files = files_in(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations").as_ref(), "");
    files.sort();
    applied.sort();
    assert_eq!(files, applied);
}

#[test]
fn the_digest_sees_every_text() {
    let with = |text| digest(&[("clock", text)]);
    assert_ne!(with("a"), with("b"));
    assert_eq!(with("a").len(), 64);
}

/// What the database answers to one question.
async fn ask(address: &Address, question: &str) -> String {
    let session = Session::open(address, "test", Deadlines::USUAL).await.unwrap();
    session.client().query_one(question, &[]).await.unwrap().get(0)
}

async fn tell(address: &Address, what: &str) {
    let session = Session::open(address, "test", Deadlines::USUAL).await.unwrap();
    session.client().batch_execute(what).await.unwrap();
}

/// Migrates with another text of `version`, which takes `takes` and returns `returns`.
async fn with_version(address: &Address, takes: &str, returns: &str) -> Functions {
    let text = format!(
        "create or replace function tuskline.version({takes}) returns {returns} language sql as 'select 7::{returns}'"
    );
    let text: &'static str = text.leak();
    let functions: Vec<Source> = FUNCTIONS
        .iter()
        .map(|&source| if source.0 == "core/version" { ("core/version", text) } else { source })
        .collect();
    migrate_with(address, &functions, None).await.unwrap().functions
}

#[tokio::test]
async fn functions_follow_their_texts_and_keep_their_grants() {
    let mut cluster = tuskline_postgres::Cluster::temporary(vec![]).await.unwrap();
    cluster.create_database("renewal", None).await.unwrap();
    let config = Address::from(cluster.config("renewal"));

    let (one, two) = tokio::join!(migrate(&config), migrate(&config));
    let mut applied = [one.unwrap().applied, two.unwrap().applied];
    applied.sort();
    assert!(applied[0].is_empty(), "one migrates");
    assert_eq!(applied[1], TABLES.iter().map(Migration::to_string).collect::<Vec<_>>());
    assert_eq!(migrate(&config).await.unwrap().functions, Functions::Unchanged);
    assert_eq!(ask(&config, "select tuskline.version()::text").await, SCHEMA_VERSION.to_string());

    tell(&config, "create role app; grant execute on function tuskline.version() to app").await;
    assert_eq!(with_version(&config, "", "integer").await, Functions::Replaced);
    assert_eq!(ask(&config, "select tuskline.version()::text").await, "7");
    let others = "select md5(string_agg(oid::text, ' ' order by oid)) from pg_proc
         where pronamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace)
           and proname <> 'version'";
    let before = ask(&config, others).await;
    assert_eq!(with_version(&config, "", "text").await, Functions::Recreated);
    assert_eq!(ask(&config, "select tuskline.version()").await, "7");
    assert_eq!(ask(&config, others).await, before, "a function that returns the same was dropped");
    let leaf = "tuskline_core.take_0(bigint, bigint[], smallint[], timestamptz, timestamptz)";
    let returns = format!("select pg_get_function_result('{leaf}'::regprocedure)");
    let current = ask(&config, &returns).await;
    let former = format!(
        "drop function {leaf}; create function {leaf} returns text language sql as 'select null::text'"
    );
    tell(&config, &former).await;
    assert_eq!(with_version(&config, "", "integer").await, Functions::Recreated);
    assert_eq!(ask(&config, &returns).await, current, "the functions of segments follow, too");
    assert_eq!(with_version(&config, "", "text").await, Functions::Recreated);
    assert_eq!(with_version(&config, "p_of integer default 1", "text").await, Functions::Replaced);
    assert_eq!(ask(&config, "select tuskline.version()").await, "7", "no call is ambiguous");
    let granted =
        "select has_function_privilege('app', 'tuskline.version(integer)', 'execute')::text";
    assert_eq!(ask(&config, granted).await, "true");

    tell(&config, "update tuskline_core.stamp set schema_version = 99").await;
    let report = migrate(&config).await.unwrap();
    assert_eq!((report.functions, report.schema_version), (Functions::Newer, 99));
    assert_eq!(ask(&config, "select tuskline.version()").await, "7", "nothing is touched");
    tell(&config, "update tuskline_core.stamp set schema_version = 1000").await;
    let refused = migrate(&config).await.unwrap_err();
    assert!(refused.to_string().starts_with("schema is newer than this binary"), "{refused}");
    cluster.stop(tuskline_postgres::Stop::Immediate).await.unwrap();
}

/// Rows of the history as the build before refinery's return wrote them.
const OLD_HISTORY: &str = "
    insert into tuskline_core.schema_history (version, name, applied_on, checksum) values
      (1, 'task_store', '2026-11-27T03:04:08.542907+00:00', '18220677733787927'),
      (2, 'workers', '2026-11-27T03:04:08.556951+00:00', '9659322442819948754'),
      (3, 'control', '2026-11-27T03:04:08.56698+00:00', '12779579811362743083'),
      (4, 'together', '2026-11-27T03:04:08.580687+00:00', '8486719859461626211'),
      (5, 'periodic', '2026-11-27T03:04:08.593858+00:00', '15532567903294328005'),
      (6, 'dead_letters', '2026-11-27T03:04:08.597362+00:00', '13592987636167046296'),
      (7, 'retention', '2026-11-27T03:04:08.605459+00:00', '7466346121245878341'),
      (8, 'statistics', '2026-11-27T08:34:08.609392+05:30', '1581658027564178125'),
      (9, 'erase', '2026-11-27T03:04:08+00:00', '13599755897494345183')";

#[tokio::test]
async fn a_history_that_an_older_build_wrote_goes_on() {
    let mut cluster = tuskline_postgres::Cluster::temporary(vec![]).await.unwrap();
    cluster.create_database("history", None).await.unwrap();
    let address = Address::from(cluster.config("history"));
    let mut session =
        Session::strict(&address, "test", Deadlines::USUAL, &trust::STATED).await.unwrap();
    let _guard = turn::take(&session).await.unwrap();
    let client = session.client_mut();

    // As that build left it: the tables of its nine files, and its rows.
    let (old, file) = (&TABLES[..9], |name: &str, text| Migration::unapplied(name, text).unwrap());
    tables::migrate(client, old, false).await.unwrap();
    client.batch_execute("delete from tuskline_core.schema_history").await.unwrap();
    client.batch_execute(OLD_HISTORY).await.unwrap();
    assert_eq!(tables::migrate(client, old, false).await.unwrap(), [""; 0]);

    let next = [old, &[file("V10__next", "create table tuskline_core.next ()")]].concat();
    assert_eq!(tables::pending(client, &next, false).await.unwrap(), &next[9..]);
    assert_eq!(tables::migrate(client, &next, false).await.unwrap(), ["V10__next"]);
    assert_eq!(tables::migrate(client, &next, false).await.unwrap(), [""; 0]);

    // A file that fails takes its own transaction back, and no other.
    let broken = file("V12__broken", "create table tuskline_core.half (); select 1 / 0");
    let later = file("V11__later", "create table tuskline_core.later ()");
    let more = [&next[..], &[later, broken]].concat();
    let refused = tables::migrate(client, &more, false).await.unwrap_err().to_string();
    assert_eq!(refused, "applying migration V12__broken: db error");
    let there = "select array[to_regclass('tuskline_core.later')::text, to_regclass('tuskline_core.half')::text,
                              max(version)::text] from tuskline_core.schema_history";
    let row = client.query_one(there, &[]).await.unwrap();
    let there: Vec<Option<String>> = row.get(0);
    assert_eq!(there, [Some("tuskline_core.later".into()), None, Some("11".into())]);

    for (files, is_current, reported) in [
        (&next, false, "it has migration V11__later"),
        (&[old, &[file("V10__other", "")]].concat(), true, "another text of migration V10__next"),
        (&[old, &[file("V10__next", "")]].concat(), true, "than this binary (V10__next)"),
        (&next[1..].to_vec(), true, "V1__task_store than this binary (V2__workers)"),
    ] {
        let pending = tables::pending(client, files, is_current).await.unwrap_err().to_string();
        let refused = tables::migrate(client, files, is_current).await.unwrap_err().to_string();
        assert!(refused.contains(reported), "{refused}");
        assert_eq!(pending, refused);
    }
    assert_eq!(tables::migrate(client, &next, true).await.unwrap(), [""; 0]);
    cluster.stop(tuskline_postgres::Stop::Immediate).await.unwrap();
}
