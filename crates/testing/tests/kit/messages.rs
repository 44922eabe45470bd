//! What the kit's assertions say when they fail, for people who have not seen the test before.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tuskline_sdk::{Context, Failure, Lambda, NewTask, Outcome, Priority, Status};
use tuskline_testing::{Database, Tasks};

const HOUR: Duration = Duration::from_secs(3_600);

#[derive(Deserialize)]
struct Mail {
    to: String,
}

/// What a panic says; every line of it fits a screen.
fn said(assertion: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(assertion)).expect_err("it must fail");
    let text = panic.downcast_ref::<String>().expect("a text").clone();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    text
}

/// Three mails and another task.
async fn some() -> Database {
    let db = Database::new().await.unwrap();
    db.define(&["send_mail", "report"]).await.unwrap();
    db.run("select tuskline.set_unique('send_mail')").await.unwrap();
    db.pin().await.unwrap();
    let mail = |to: &str, about: &str| {
        NewTask::new("send_mail", &json!({ "to": to, "about": { "kind": about } }))
    };
    let long =
        "a subject that is much too long to be shown on a screen of eighty columns".repeat(2);
    let tasks = [
        mail("ada", "welcome"),
        mail("bob", "welcome").after(HOUR).priority(Priority::High),
        mail("ada", &long).after(HOUR * 2).collection("news").unique_key("k 1"),
        NewTask::new("report", &7),
    ];
    for task in &tasks {
        db.client().schedule(task).await.unwrap();
    }
    db
}

async fn mails(db: &Database) -> Tasks {
    db.scheduled("send_mail").await.unwrap()
}

#[tokio::test]
async fn tasks_that_are_there_are_found() {
    let db = some().await;
    let one = mails(&db).await.with(json!({ "to": "bob" })).due_in(HOUR).once();
    assert_eq!(one.payload_as::<Mail>().unwrap().to, "bob");
    assert_eq!((one.priority, one.status), (Priority::High, Status::New));
    mails(&db).await.with(json!({ "about": { "kind": "welcome" } })).times(2);
    mails(&db).await.with(json!({ "to": "ada" })).due_now().status(Status::Enqueued).once();
    mails(&db).await.where_payload("to ada", |mail: &Mail| mail.to == "ada").times(2);
    mails(&db).await.priority(Priority::High).once();
    mails(&db).await.collection("news").unique_key("k 1").due_in(HOUR..=HOUR * 3).once();
    mails(&db).await.ordering_key("none").never();
    mails(&db).await.due_in(HOUR * 3..HOUR * 4).never();
    db.scheduled("report").await.unwrap().with(7).once();
    assert_eq!(db.tasks().await.unwrap().list().len(), 4);
}

#[tokio::test]
async fn a_missing_task_shows_the_nearest() {
    let db = some().await;
    let tasks = mails(&db).await;
    insta::assert_snapshot!(said(|| {
        tasks
            .with(json!({ "to": "ada", "about": { "kind": "welcome" } }))
            .due_in(HOUR)
            .priority(Priority::High)
            .once();
    }));
}

#[tokio::test]
async fn a_missing_task_of_any_other_label_shows_what_there_is() {
    let db = some().await;
    let tasks = mails(&db).await;
    insta::assert_snapshot!(said(|| {
        tasks
            .where_payload("to eve, by a number", |mail: &u64| *mail == 7)
            .collection("receipts")
            .unique_key("k 2")
            .ordering_key("o")
            .status(Status::Success)
            .due_now()
            .times(2);
    }));
}

#[tokio::test]
async fn a_task_too_many_is_shown() {
    let db = some().await;
    let tasks = mails(&db).await;
    insta::assert_snapshot!(said(|| {
        tasks.with(json!({ "to": "ada" })).once();
    }));
}

#[tokio::test]
async fn a_task_that_must_not_be_is_shown() {
    let db = some().await;
    let tasks = mails(&db).await;
    insta::assert_snapshot!(said(|| tasks
        .due_in(HOUR..=HOUR * 2)
        .with(json!({ "to": "bob" }))
        .never()));
}

#[tokio::test]
async fn one_of_two_is_shown_beside_the_other() {
    let db = some().await;
    let tasks = mails(&db).await;
    insta::assert_snapshot!(said(|| {
        tasks.priority(Priority::High).times(2);
    }));
}

#[tokio::test]
async fn of_a_lambda_with_no_task_the_others_are_named() {
    let db = some().await;
    let tasks = db.scheduled("send_email").await.unwrap();
    insta::assert_snapshot!(said(|| {
        tasks.once();
    }));
}

#[tokio::test]
async fn nothing_at_all_is_said_so() {
    let db = Database::new().await.unwrap();
    let tasks = db.scheduled("send_mail").await.unwrap();
    insta::assert_snapshot!(said(|| {
        tasks.once();
    }));
}

#[tokio::test]
async fn of_many_tasks_some_are_shown() {
    let db = some().await;
    for n in 0..20 {
        db.client().schedule(&NewTask::new("report", &n)).await.unwrap();
    }
    let tasks = db.scheduled("report").await.unwrap();
    insta::assert_snapshot!(said(|| {
        tasks.with("nothing").once();
    }));
}

#[tokio::test]
async fn tasks_that_have_not_ended_are_shown() {
    let db = some().await;
    let tasks = db.tasks().await.unwrap();
    insta::assert_snapshot!(said(|| tasks.assert_all_ended()));
}

#[tokio::test]
async fn what_did_not_succeed_is_shown_with_its_failures() {
    let db = some().await;
    let fail = |n: u64, context: Context| async move {
        let reason = format!("number {n} fails in attempt {}\nand says more", context.attempt());
        Outcome::Retriable { after: Some(Duration::ZERO), class: None, reason }
    };
    db.run("select tuskline.alter_lambda('report', p_max_attempts => 5)").await.unwrap();
    let send = |_: serde_json::Value, _: Context| async {};
    let worker = db.worker().serve(Lambda::named("report", fail));
    let drained = db.drain(worker.serve(Lambda::named("send_mail", send))).await.unwrap();
    insta::assert_snapshot!(
        "drained",
        said(|| {
            drained.assert_all_succeeded();
        })
    );
    let task = db.task(drained.dead[0]).await.unwrap();
    insta::assert_snapshot!(
        "one",
        said(|| {
            task.assert_succeeded();
        })
    );
    insta::assert_snapshot!(
        "no_output",
        said(|| {
            task.output_as::<u64>();
        })
    );
}

#[tokio::test]
async fn a_drain_of_nothing_is_no_success() {
    let db = some().await;
    let send = |_: serde_json::Value, _: Context| async {};
    let worker = || db.worker().serve(Lambda::named("send_mail", send));
    db.drain(worker()).await.unwrap().assert_all_succeeded();
    let drained = db.drain(worker()).await.unwrap();
    insta::assert_snapshot!(said(|| {
        drained.assert_all_succeeded();
    }));
}

#[tokio::test]
async fn an_output_of_another_type_is_shown() {
    let db = some().await;
    let answer =
        |n: u64, _: Context| async move { Ok::<_, Failure>(json!({ "half": n as f64 / 2.0 })) };
    let drained = db.drain(db.worker().serve(Lambda::named("report", answer))).await.unwrap();
    let task = db.task(drained.succeeded[0]).await.unwrap();
    insta::assert_snapshot!(said(|| {
        task.output_as::<Vec<u64>>();
    }));
}
