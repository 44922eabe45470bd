//! Twenty thousand tasks become due while no server and no worker runs.

use serde_json::Value;
use tuskline_sdk::{Context, Lambda};

use super::Installation;
use crate::support::{Db, Running, calm};

/// Tasks of each collection, all due during the outage.
const COLLECTIONS: [(&str, i64); 3] = [("receipts", 1_000), ("news", 12_000), ("digest", 7_000)];

/// Tasks that failed for good in the outage.
const FAILED: i64 = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_urgent_goes_first_and_all_the_rest_is_done_or_cancelled() {
    let place = Installation::new(&[]).await;
    let db = &place.db;
    db.define("send_email").await;
    let since: String =
        db.one("select to_char(now() at time zone 'utc', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')").await;
    fail(db).await;
    fall_behind(db).await;

    let mut book = place.runbook("backlog");
    for (name, value) in
        [("LAMBDA", "send_email"), ("URGENT", "receipts"), ("STALE", "digest"), ("RATE", "5000")]
    {
        book.set(name, value);
    }
    book.set("SINCE", since);
    book.perform("1. Close the lambda").await;
    book.set("GATE", number(&place.json("gate list"), "gate_id"));
    let serve = place.serve();
    let done = Lambda::named("send_email", async |_: Value, _: Context| Ok::<_, String>(()));
    let worker = Running::start(db, calm(), vec![done.slots(32)]);
    let said = book.perform("2. See how much it is").await;
    assert!(COLLECTIONS.iter().all(|(collection, _)| said.contains(collection)), "{said}");
    let said = book.perform("3. Cancel what is too old").await;
    assert!(said.contains("7000"), "{said}");
    book.perform("4. Let the urgent ones go first").await;
    book.perform("5. Protect the system downstream").await;
    book.set("LIMIT", number(&place.json("limit list"), "limit_id"));
    assert_eq!(db.count("success").await, 0, "nothing starts before the gate is open");
    book.perform("6. Open the lambda").await;
    let said = book.perform("7. Add executors").await;
    assert!(said.contains("a second and"), "{said}");
    book.perform("8. Retry what failed during the outage").await;
    book.perform("Watch it drain").await;
    let waits = "status in ('new', 'enqueued', 'claimed', 'processing', 'retriable_failure')";
    let open = format!("select not exists (select from tuskline.tasks where {waits})");
    place.until_drained(&open).await;
    // The redrive adds most of its tasks after its first one has succeeded.
    place.until_drained("select bool_and(state = 'done') from tuskline.operations").await;
    place.until_drained(&open).await;
    // The claims skip the rows of cancelled tasks, and remove them.
    place.until_drained("select not exists (select from tuskline.queued)").await;
    let said = book.perform("It is over when").await;
    assert!(said.contains("late"), "{said}");
    book.perform("Afterwards").await;
    book.close();

    assert_eq!(db.count("cancelled").await, 7_000);
    assert_eq!(db.count("success").await, 1_000 + 12_000 + FAILED);
    assert_eq!(db.one::<i64>("select count(*) from tuskline.tasks").await, 20_000 + FAILED);
    let before_the_urgent =
        "select count(*) from tuskline.tasks where collection = 'news' and started_at <
        (select max(started_at) from tuskline.tasks where collection = 'receipts')";
    let before: i64 = db.one(before_the_urgent).await;
    println!("{before} of 12000 began before the last urgent one");
    assert!(before < 6_000, "{before} began before the last urgent one");
    worker.stop().await;
    drop(serve);
    db.assert_nothing_left().await;
}

/// Tasks whose partner was away.
async fn fail(db: &Db) {
    let hand = db.hand("send_email").await;
    db.schedule_many("send_email", i32::try_from(FAILED).unwrap()).await;
    for task in hand.claim(100).await {
        hand.fail_for_good(&task).await;
    }
    db.run(&format!("select tuskline.end_executor({})", hand.executor)).await;
}

/// Schedules for a moment from now, and lets the moment pass. Nothing moves the tasks.
async fn fall_behind(db: &Db) {
    for (collection, count) in COLLECTIONS {
        for part in (0..count).step_by(5_000) {
            let rows = (count - part).min(5_000);
            db.run(&format!(
                "select tuskline.schedule_many(array_fill('send_email'::text, array[{rows}]),
                   p_collections => array_fill('{collection}'::text, array[{rows}]),
                   p_delays => array_fill(interval '1 s', array[{rows}]))"
            ))
            .await;
        }
    }
    db.until("select max(due_at) < clock_timestamp() from tuskline.tasks").await;
    assert_eq!(db.queued().await, 0, "no server moves them");
}

/// The number of the only row.
fn number(rows: &Value, name: &str) -> String {
    let number = &rows[0][name];
    number.as_str().map_or_else(|| number.to_string(), str::to_owned)
}
