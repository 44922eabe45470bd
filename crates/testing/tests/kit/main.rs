//! The kit for tests of applications does what it says, seen from outside: nothing here is used but what it
//! offers.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod drains;
mod example;
mod inline;
mod messages;

use std::path::Path;
use std::time::Duration;

use chrono::{TimeDelta, TimeZone, Utc};
use serde_json::{Value, json};
use tuskline_sdk::{Context, Failure, Lambda, NewTask, Outcome, TaskId, WorkerBuilder};
use tuskline_testing::{Database, Error};

const HOUR: Duration = Duration::from_secs(3_600);

type Failed = Box<dyn std::error::Error + Send + Sync>;

fn task(lambda: &str, payload: &Value) -> NewTask {
    NewTask::new(lambda, payload)
}

/// Succeeds, with its payload as output.
fn echo(name: &str) -> Lambda {
    Lambda::named(name, |payload: Value, _: Context| async move { Ok::<_, Failure>(payload) })
}

/// Says what its payload names.
async fn say(word: String, context: Context) -> Outcome {
    match word.as_str() {
        "success" => Outcome::Success(None),
        "fatal" => Outcome::fatal("never"),
        "retriable" => {
            Outcome::Retriable { after: Some(HOUR), class: None, reason: "later".into() }
        }
        "snooze" => Outcome::Snooze(HOUR),
        "second" if context.attempt() == 2 => Outcome::Success(Some(json!("at last"))),
        "second" => Outcome::Retriable {
            after: Some(Duration::ZERO),
            class: None,
            reason: "once more".into(),
        },
        _ => Outcome::retriable(word),
    }
}

fn saying(db: &Database) -> WorkerBuilder {
    db.worker().serve(Lambda::named("say", say))
}

async fn schedule(db: &Database, lambda: &str, payload: Value) -> TaskId {
    db.client().schedule(&task(lambda, &payload)).await.unwrap()
}

/// A database with a lambda `say` and a clock that stands.
async fn pinned() -> Database {
    let db = Database::new().await.unwrap();
    db.define(&["say"]).await.unwrap();
    db.pin().await.unwrap();
    db
}

#[tokio::test]
async fn two_databases_see_nothing_of_each_other() {
    let (one, two) = (pinned().await, pinned().await);
    one.run("create table mail (recipient text); insert into mail values ('ada')").await.unwrap();
    schedule(&one, "say", json!("success")).await;
    assert_eq!(one.tasks().await.unwrap().list().len(), 1);
    assert_eq!(two.tasks().await.unwrap().list().len(), 0);
    let mails = one.sql().query_one("select recipient from mail", &[]).await.unwrap();
    assert_eq!(mails.get::<_, &str>(0), "ada");
    let there = two.sql().query_one("select to_regclass('mail') is null", &[]).await.unwrap();
    assert!(there.get::<_, bool>(0));
}

/// Whether there is a database, asked of another one's server.
async fn is_there(beside: &Database, name: &str) -> bool {
    let sql = "select exists (select from pg_database where datname = $1)";
    beside.sql().query_one(sql, &[&name]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_database_is_deleted_with_whatever_is_connected_to_it() {
    let beside = Database::new().await.unwrap();
    for close in [false, true] {
        let db = pinned().await;
        let name = db.address().config().get_dbname().unwrap().to_owned();
        let client = db.client().clone();
        let _held = client.connection().await.unwrap();
        assert!(is_there(&beside, &name).await);
        match close {
            true => db.close().await.unwrap(),
            false => drop(db),
        }
        assert!(!is_there(&beside, &name).await);
        assert!(client.status(TaskId(1)).await.is_err());
    }
}

#[tokio::test]
async fn a_database_can_be_made_on_a_server_of_yours() {
    let server = Database::new().await.unwrap();
    let db = Database::at(server.url()).await.unwrap();
    let name = db.address().config().get_dbname().unwrap().to_owned();
    assert!(is_there(&server, &name).await);
    db.define(&["say"]).await.unwrap();
    db.pin().await.unwrap();
    schedule(&db, "say", json!("success")).await;
    db.drain(saying(&db)).await.unwrap().assert_all_succeeded();
    drop(db);
    assert!(!is_there(&server, &name).await);
    let refused = Database::at("postgresql://nobody@127.0.0.1:1/none").await.unwrap_err();
    assert!(matches!(refused, Error::Database(_)), "{refused}");
}

#[tokio::test]
async fn a_pinned_clock_stands_until_it_is_turned() {
    let db = Database::new().await.unwrap();
    let began = db.pin().await.unwrap();
    assert_eq!(db.pin().await.unwrap(), began);
    assert_eq!(db.advance(HOUR).await.unwrap(), began + TimeDelta::hours(1));
    assert_eq!(db.now().await.unwrap(), began + TimeDelta::hours(1));
    let past = Utc.with_ymd_and_hms(2001, 2, 3, 4, 5, 6).unwrap();
    db.pin_at(past).await.unwrap();
    assert_eq!(db.now().await.unwrap(), past);
    db.unpin().await.unwrap();
    let (one, two) = (db.now().await.unwrap(), db.now().await.unwrap());
    assert!(began <= one && one < two);
}

#[tokio::test]
async fn a_migration_leaves_the_pin_alone() {
    let db = Database::new().await.unwrap();
    let at = db.pin().await.unwrap();
    let report = tuskline::migrate::migrate(db.address()).await.unwrap();
    assert_eq!(report.functions, tuskline::migrate::Functions::Unchanged);
    assert_eq!(db.now().await.unwrap(), at);
    // A renewal, as by another binary, brings the clock of production along; and that is noticed.
    db.run("update tuskline_core.stamp set digest = 'another'").await.unwrap();
    tuskline::migrate::migrate(db.address()).await.unwrap();
    assert!(matches!(db.advance(HOUR).await.unwrap_err(), Error::Clock));
}

#[tokio::test]
async fn a_body_is_performed_without_a_task() {
    let db = Database::new().await.unwrap();
    let lambda = Lambda::named("say", say);
    assert_eq!(db.perform(&lambda, &"success").await.unwrap(), Outcome::Success(None));
    assert_eq!(db.perform(&lambda, &"fatal").await.unwrap(), Outcome::fatal("never"));
    let second = db.perform_attempt(&lambda, &"second", 2).await.unwrap();
    assert_eq!(second, Outcome::Success(Some(json!("at last"))));
    let Outcome::Undecodable { reason } = db.perform(&lambda, &7).await.unwrap() else {
        panic!("a number is no word");
    };
    assert!(reason.starts_with("invalid type: integer `7`"), "{reason}");
    let booking = Lambda::named("book", |_: Value, context: Context| async move {
        let mut connection = context.client().connection().await?;
        let mut transaction = connection.transaction().await?;
        Ok::<_, Failed>(context.complete_in(&mut transaction, &()).await?)
    });
    let Outcome::Retriable { reason, .. } = db.perform(&booking, &7).await.unwrap() else {
        panic!("there is no task to complete");
    };
    assert!(reason.starts_with("fenced: "), "{reason}");
    assert_eq!(db.tasks().await.unwrap().list().len(), 0);
}

#[test]
fn the_page_shows_the_example() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/testing.md");
    let page = std::fs::read_to_string(page).unwrap();
    let example = include_str!("example.rs");
    assert!(page.contains(&format!("```rust\n{example}```")), "docs/testing.md: paste the example");
}
