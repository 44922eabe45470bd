//! A version of a worker fails the tasks of one collection for good, or all of them.

use serde_json::Value;
use tuskline_sdk::{Context, Failure, Lambda};

use super::{Installation, Runbook};
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
    let fingerprint = confirm(&place, &mut book).await;
    book.perform("1. Stop the loss").await;
    book.set("GATE", number(&place, "gate list", "gate_id"));
    schedule(db, "eu").await;
    schedule(db, "us").await;
    let go_on =
        format!("select count(*) = {} from tuskline.tasks where status = 'success'", 2 * TASKS);
    place.until_drained(&go_on).await;
    assert_eq!(db.count("fatal_failure").await, i64::from(TASKS), "the gate stops the loss");
    bad.stop().await;
    let good = go_back(&place, &mut book).await;
    finish(&place, book, &fingerprint, i64::from(4 * TASKS)).await;

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gate_of_a_breaker_is_the_one_that_the_page_opens() {
    let place = Installation::new(&[]).await;
    let db = &place.db;
    db.define("charge").await;
    // No task tries while the drill runs.
    let breaker = "select tuskline.set_breaker('charge', 20, '1 minute', 0.5, '1 hour')";
    db.run(breaker).await;
    let serve = place.serve();
    let bad = Running::start(db, calm(), vec![charge(false)]);
    schedule(db, "eu").await;
    place.until_drained("select count(*) = 1 from tuskline.gates").await;

    let mut book = place.runbook("bad-deploy");
    book.set("LAMBDA", "charge");
    book.set("COLLECTION", "");
    let fingerprint = confirm(&place, &mut book).await;
    let second = "select tuskline.gate('charge', 'pause', p_reason => 'bad deploy')";
    let refused = db.refused(second).await;
    assert!(refused.starts_with("TK015"), "{refused}");
    book.skip("1. Stop the loss");
    book.set("GATE", number(&place, "gate list", "gate_id"));
    schedule(db, "eu").await;
    bad.stop().await;
    assert_eq!(db.count("success").await, 0);
    let good = go_back(&place, &mut book).await;
    finish(&place, book, &fingerprint, i64::from(2 * TASKS)).await;
    good.stop().await;
    drop(serve);
    db.assert_nothing_left().await;
}

/// The fingerprint of the only group.
async fn confirm(place: &Installation, book: &mut Runbook) -> String {
    let said = book.perform("Confirm").await;
    let groups = place.json("dead-letter groups --lambda charge");
    let fingerprint = groups[0]["fingerprint"].as_str().unwrap();
    assert_eq!(groups.as_array().unwrap().len(), 1, "{groups}");
    assert!(said.contains(fingerprint) && said.contains("no rate for eu"), "{said}");
    book.set("FINGERPRINT", fingerprint);
    fingerprint.to_owned()
}

/// Starts the good version, and opens the gate a little.
async fn go_back(place: &Installation, book: &mut Runbook) -> Running {
    let good = Running::start(&place.db, calm(), vec![charge(true)]);
    place.db.until("select count(*) = 1 from tuskline.executors where state = 'alive'").await;
    let said = book.perform("2. Mend the workers").await;
    assert!(said.contains("alive") && said.contains("(1 row)"), "{said}");
    let said = book.perform("3. Open the gate a little").await;
    assert!(!said.contains("  pause  "), "each gate is open: {said}");
    book.set("LIMIT", number(place, "limit list", "limit_id"));
    good
}

/// The rest of the page: all tasks succeed.
async fn finish(place: &Installation, mut book: Runbook, fingerprint: &str, tasks: i64) {
    let failed = place.db.count("fatal_failure").await;
    let said = book.perform("4. Redrive what failed").await;
    assert!(said.contains(&format!("changed {failed} of")), "{said}");
    book.perform("5. Open it fully").await;
    let done = format!("select count(*) = {tasks} from tuskline.tasks where status = 'success'");
    place.until_drained(&done).await;
    let said = book.perform("It is over when").await;
    assert!(!said.contains(fingerprint), "{said}");
    book.perform("Afterwards").await;
    book.close();
}

/// The number of the only row.
fn number(place: &Installation, list: &str, name: &str) -> String {
    place.json(list)[0][name].to_string().replace('"', "")
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
