//! Mistakes of a worker are refused, not swallowed.

use tuskline_sdk::{Context, Lambda, Worker};

use crate::support::Db;

#[tokio::test]
async fn a_claim_of_no_queue_or_of_a_group_without_a_budget_is_refused() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    db.schedule_many("work", 3).await;
    let queue = db.queue("work", "normal").await;
    for (queues, groups, got) in [
        (format!("{queue}"), "0", format!("got queue {queue}, group 0")),
        (format!("{queue}"), "2", format!("got queue {queue}, group 2")),
        (format!("{queue}"), "null", format!("got queue {queue}, group null")),
        ("0".to_owned(), "1", "got queue 0, group 1".to_owned()),
        ("4711".to_owned(), "1", "got queue 4711, group 1".to_owned()),
        ("null".to_owned(), "1", "got queue null, group 1".to_owned()),
    ] {
        for verb in ["claim({}, ", "exchange({}, '{}', '{}', null, null, "] {
            let verb = verb.replacen("{}", &worker.executor.to_string(), 1);
            let sql = format!(
                "select tuskline.{verb}'{{{queues}}}', '{{0}}', '{{{groups}}}', '{{5}}', '{{5}}')"
            );
            let said = db.refused(&sql).await;
            let expected = "TK053: TK053 invalid_claim: each queue must exist, and its group must have a budget, ";
            assert!(said.starts_with(&format!("{expected}{got}")), "{sql}: {said}");
        }
    }
    assert_eq!(db.queued().await, 3);
}

#[tokio::test]
async fn a_result_with_a_misspelt_field_is_refused() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let id = db.schedule("work").await;
    let task = worker.take().await;
    let note = format!(
        r#"[{{"task": {id}, "fence": {}, "status": "fatal_failure", "mesage": "no such address"}}]"#,
        task.fence
    );
    let set = format!("select tuskline.set_results({}, '{{}}', '{{}}', '{note}')", worker.executor);
    let said = db.refused(&set).await;
    assert!(said.starts_with("TK012: TK012 invalid_result: unknown field 'mesage'"), "{said}");
    assert_eq!(db.status(id).await, "claimed");
    db.run(&set.replace("mesage", "message")).await;
    assert_eq!(db.status(id).await, "fatal_failure");
}

#[tokio::test]
async fn a_worker_has_a_lambda_and_no_name_twice() {
    // The mistake is refused before any call to the database.
    let worker = || Worker::builder("postgresql://app@localhost:1/app");
    let body = |_: u64, _: Context| async {};
    let said = worker().run().await.unwrap_err().to_string();
    let none =
        "TK009 invalid_setting: a worker must serve a lambda, got none: call WorkerBuilder::lambda";
    assert_eq!(said, none);
    let twice = worker().serve(Lambda::named("work", body)).serve(Lambda::named("work", body));
    let said = twice.run().await.unwrap_err().to_string();
    assert!(
        said.starts_with(
            "TK009 invalid_setting: lambdas of a worker must differ in name, got 'work' twice"
        ),
        "{said}"
    );
}
