//! The functions follow their texts, whatever changed in them.

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
    for (number, (name, _)) in (1..).zip(TABLES) {
        assert!(name.starts_with(&format!("V{number}__")), "{name}");
    }
    let functions = FUNCTIONS.iter().chain([&INSTALL]).map(|(name, _)| format!("functions/{name}"));
    let renewal = [REMEMBER, CLEAR, SWEEP].map(|(name, _)| format!("renewal/{name}"));
    let tables = TABLES.iter().map(|(name, _)| (*name).to_owned());
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
    assert_eq!(
        applied[1],
        [
            "V1__task_store",
            "V2__workers",
            "V3__control",
            "V4__together",
            "V5__periodic",
            "V6__dead_letters",
            "V7__retention",
            "V8__statistics",
            "V9__erase"
        ]
    );
    assert_eq!(migrate(&config).await.unwrap().functions, Functions::Unchanged);
    assert_eq!(ask(&config, "select tuskline.version()::text").await, SCHEMA_VERSION.to_string());

    tell(&config, "create role app; grant execute on function tuskline.version() to app").await;
    assert_eq!(with_version(&config, "", "integer").await, Functions::Replaced);
    assert_eq!(ask(&config, "select tuskline.version()::text").await, "7");
    assert_eq!(with_version(&config, "", "text").await, Functions::Recreated);
    assert_eq!(ask(&config, "select tuskline.version()").await, "7");
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
