//! A version of a worker fails the tasks of one collection for good.

use serde_json::Value;
use tuskline_sdk::{Context, Failure, Lambda};

use super::Installation;
use crate::support::{Db, Running, calm};

/// Tasks of each collection before and after the gate.
const TASKS: i32 = 30;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_task_of_a_bad_deploy_is_lost_and_all_the_rest_goes_on() {
    let place = Installation::new(&[]).await;
    let db = &place.db;
    db.define("charge").await;
    let serve = place.serve();
    let bad = Running::start(db, calm(), vec![charge(false)]);
    schedule(db, "eu").await;
    schedule(db, "us").await;
    let ended = format!(
        "select count(*) = {} from tuskline.tasks where finished_at is not null",
        2 * TASKS
    );
    place.until_drained(&ended).await;

    let mut book = place.runbook("bad-deploy");
    book.set("LAMBDA", "charge");
    book.set("COLLECTION", "eu");
    let said = book.perform("Confirm").await;
    let groups = place.json("dead-letter groups --lambda charge");
    let fingerprint = groups[0]["fingerprint"].as_str().unwrap();
    assert_eq!(groups.as_array().unwrap().len(), 1, "{groups}");
    assert!(said.contains(fingerprint) && said.contains("no rate for eu"), "{said}");
    book.set("FINGERPRINT", fingerprint);
    book.perform("1. Stop the loss").await;
    let number = |list: &str, name: &str| place.json(list)[0][name].to_string().replace('"', "");
    book.set("GATE", number("gate list", "gate_id"));
    schedule(db, "eu").await;
    schedule(db, "us").await;
    let go_on =
        format!("select count(*) = {} from tuskline.tasks where status = 'success'", 2 * TASKS);
    place.until_drained(&go_on).await;
    assert_eq!(db.count("fatal_failure").await, i64::from(TASKS), "the gate stops the loss");
    bad.stop().await;
    let good = Running::start(db, calm(), vec![charge(true)]);
    db.until("select count(*) = 1 from tuskline.executors where state = 'alive'").await;
    let said = book.perform("2. Mend the workers").await;
    assert!(said.contains("alive") && said.contains("(1 row)"), "{said}");
    book.perform("3. Open the gate a little").await;
    book.set("LIMIT", number("limit list", "limit_id"));
    let said = book.perform("4. Redrive what failed").await;
    assert!(said.contains(&TASKS.to_string()), "{said}");
    book.perform("5. Open it fully").await;
    let done =
        format!("select count(*) = {} from tuskline.tasks where status = 'success'", 4 * TASKS);
    place.until_drained(&done).await;
    let said = book.perform("It is over when").await;
    assert!(!said.contains(fingerprint), "{said}");
    book.perform("Afterwards").await;
    book.close();

    let attempts: Vec<String> = db
        .lines(
            "select collection, attempt, count(*) from tuskline.tasks group by 1, 2 order by 1, 2",
        )
        .await;
    println!("{attempts:?}");
    good.stop().await;
    drop(serve);
    db.assert_nothing_left().await;
}

/// A body of the good or the bad version.
fn charge(good: bool) -> Lambda {
    Lambda::named("charge", move |region: String, _: Context| async move {
        match region.as_str() {
            "eu" if !good => Err(Failure::fatal("no rate for eu")),
            _ => Ok(Value::Null),
        }
    })
}

async fn schedule(db: &Db, region: &str) {
    db.run(&format!(
        "select tuskline.schedule_many(array_fill('charge'::text, array[{TASKS}]),
           p_payloads => array_fill('\"{region}\"'::json, array[{TASKS}]),
           p_collections => array_fill('{region}'::text, array[{TASKS}]))"
    ))
    .await;
}
