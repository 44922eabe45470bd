//! Thousands of tasks are due at once after an outage.

use serde_json::Value;
use tuskline_sdk::{Context, Lambda};

use super::{Installation, Runbook};
use crate::support::{Answer, Db, Running, calm};

/// Tasks of each collection in the larger drill, all due during the outage. The urgent ones are due last.
const COLLECTIONS: [(&str, i64); 3] = [("digest", 7_000), ("news", 12_000), ("receipts", 1_000)];

/// Tasks of the collection that is too old, but due in a week.
const LATER: i64 = 70;

/// Tasks of the same collection that were scheduled late enough to be of use.
const FRESH: i64 = 50;

/// Tasks that failed for good in the outage.
const FAILED: i64 = 40;

/// The servers after the outage, and a part of the tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Servers {
    /// Down until the page starts them. All tasks.
    Down,
    /// They run, so the tasks are queued. A tenth of the tasks.
    Up,
}

impl Servers {
    /// Tasks of a collection.
    fn tasks(self, collection: &str) -> i64 {
        let all = COLLECTIONS.iter().find(|(name, _)| *name == collection).unwrap().1;
        if self == Self::Down { all } else { all / 10 }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_urgent_goes_first_and_all_the_rest_is_done_or_cancelled() {
    drill(Servers::Down).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_that_is_queued_already_waits_behind_a_gate_and_a_running_task_goes_on() {
    drill(Servers::Up).await;
}

async fn drill(servers: Servers) {
    let place = Installation::new(&[]).await;
    let db = &place.db;
    db.define("send_email").await;
    let since = moment(db).await;
    fail(db).await;
    let mut serve = (servers == Servers::Up).then(|| place.serve());
    fall_behind(&place, servers).await;
    let mut book = open(&place, servers);
    book.set("SINCE", since);
    book.set("BEFORE", moment(db).await);
    schedule(db, "digest", FRESH, "1 ms").await;
    let start = || {
        let done = Lambda::named("send_email", async |_: Value, _: Context| Ok::<_, String>(()));
        Running::start(db, calm(), vec![done.slots(32)])
    };

    let mut up = None;
    if servers == Servers::Up {
        let worker = db.worker("send_email").await;
        let running = worker.take().await;
        book.perform("1. Close the lambda").await;
        book.set("GATE", number(&place.json("gate list"), "gate_id"));
        up = Some((worker, running, start()));
    } else {
        book.skip("1. Close the lambda");
    }
    let said = book.perform("2. See how much it is").await;
    assert!(COLLECTIONS.iter().all(|(collection, _)| said.contains(collection)), "{said}");
    let stale = servers.tasks("digest") - i64::from(up.is_some());
    let said = book.perform("3. Cancel what is too old").await;
    assert!(said.contains(&format!(" {stale} | {LATER:9}")), "{said}");
    assert!(said.contains(&format!("changed {} of", stale + LATER)), "{said}");
    assert_eq!(db.one::<i64>("select count(*) from tuskline.cancellation").await, 0);
    book.perform("4. Let the urgent ones go first").await;
    book.perform("5. Protect the system downstream").await;
    book.set("LIMIT", number(&place.json("limit list"), "limit_id"));
    assert_eq!(db.count("success").await, 0, "nothing starts before the lambda is open");
    let sdk_worker = match up {
        Some((worker, running, sdk_worker)) => {
            assert_eq!(worker.succeed(&running).await, Answer::Accepted);
            db.run(&format!("select tuskline.end_executor({})", worker.executor)).await;
            book.perform("6. Open the lambda").await;
            sdk_worker
        }
        None => {
            book.skip("6. Open the lambda");
            serve = Some(place.serve());
            start()
        }
    };
    let said = book.perform("7. Add executors").await;
    assert!(said.contains("running and") && said.contains("processes"), "{said}");
    finish(&place, book).await;

    let kept: i64 = ["news", "receipts"].iter().map(|name| servers.tasks(name)).sum();
    let succeeded = kept + FRESH + FAILED + servers.tasks("digest") - stale;
    assert_eq!(db.count("cancelled").await, stale + LATER);
    assert_eq!(db.count("success").await, succeeded);
    let all: i64 = db.one("select count(*) from tuskline.tasks").await;
    assert_eq!(all, succeeded + stale + LATER);
    assert_urgent_first(db, servers.tasks("news")).await;
    sdk_worker.stop().await;
    drop(serve);
    db.assert_nothing_left().await;
}

/// The page with its values.
fn open(place: &Installation, servers: Servers) -> Runbook {
    let mut book = place.runbook("backlog");
    for (name, value) in
        [("LAMBDA", "send_email"), ("URGENT", "receipts"), ("STALE", "digest"), ("SLOTS", "32")]
    {
        book.set(name, value);
    }
    book.set("RATE", servers.tasks("receipts"));
    book
}

/// The page from its last act on, while the tasks run.
async fn finish(place: &Installation, mut book: Runbook) {
    book.perform("8. Retry what failed during the outage").await;
    let said = book.perform("Watch it drain").await;
    assert!(said.contains(" WAITING "), "the figure that falls: {said}");
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
}

/// Most of the rest begins after the last urgent task.
async fn assert_urgent_first(db: &Db, rest: i64) {
    let before_the_urgent =
        "select count(*) from tuskline.tasks where collection = 'news' and started_at <
        (select max(started_at) from tuskline.tasks where collection = 'receipts')";
    let before: i64 = db.one(before_the_urgent).await;
    println!("{before} of {rest} began before the last urgent one");
    assert!(before < rest / 2, "{before} of {rest} began before the last urgent one");
}

/// The time of the database, as a command takes it.
async fn moment(db: &Db) -> String {
    let text = "to_char(clock_timestamp() at time zone 'utc', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')";
    db.one(&format!("select {text}")).await
}

/// Fails tasks for good, because their partner is away.
async fn fail(db: &Db) {
    let worker = db.worker("send_email").await;
    db.schedule_many("send_email", i32::try_from(FAILED).unwrap()).await;
    for task in worker.claim(100).await {
        worker.fail_for_good(&task).await;
    }
    db.run(&format!("select tuskline.end_executor({})", worker.executor)).await;
}

/// Schedules for a moment from now, and lets the moment pass.
async fn fall_behind(place: &Installation, servers: Servers) {
    let db = &place.db;
    for (collection, _) in COLLECTIONS {
        schedule(db, collection, servers.tasks(collection), "1 s").await;
    }
    let due = "select max(due_at) < clock_timestamp() from tuskline.tasks";
    db.until(due).await;
    schedule(db, "digest", LATER, "7 days").await;
    if servers == Servers::Up {
        let moved = "select count(*) = 0 from tuskline.timer where due < tuskline.clock()";
        place.until_drained(moved).await;
    } else {
        assert_eq!(db.queued().await, 0, "no server moves them");
    }
}

async fn schedule(db: &Db, collection: &str, count: i64, delay: &str) {
    for part in (0..count).step_by(5_000) {
        let rows = (count - part).min(5_000);
        db.run(&format!(
            "select tuskline.schedule_many(array_fill('send_email'::text, array[{rows}]),
               p_collections => array_fill('{collection}'::text, array[{rows}]),
               p_delays => array_fill(interval '{delay}', array[{rows}]))"
        ))
        .await;
    }
}

/// The number of the only row.
fn number(rows: &Value, name: &str) -> String {
    let number = &rows[0][name];
    number.as_str().map_or_else(|| number.to_string(), str::to_owned)
}
