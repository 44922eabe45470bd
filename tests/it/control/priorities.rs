//! Higher priorities go first, in the queues and in the worker's own buffers. No priority starves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tuskline_sdk::{Client, Context, Lambda, NewTask, Outcome, Priority};

use crate::support::{Db, Gate, Running, calm};

const LABELS: [&str; 4] = ["low", "normal", "high", "critical"];

#[tokio::test]
async fn with_one_slot_higher_priorities_go_first() {
    let db = Db::with_lambda("work").await;
    let gate = Gate::new();
    let mut ids = Vec::new();
    for label in LABELS {
        ids.push(db.schedule_at("work", label).await);
    }
    ids.reverse();
    let worker = Running::start(&db, calm(), vec![gate.lambda("work").slots(1)]);
    gate.open_for_good();
    db.until_count("success", 4).await;
    assert_eq!(gate.record().tasks(), ids);
    worker.stop().await;
}

#[tokio::test]
async fn tasks_in_the_worker_s_buffer_go_by_priority_too() {
    let db = Db::with_lambda("work").await;
    let gate = Gate::new();
    // However slow the machine is, no task waits in the buffer for too long.
    let mut config = calm();
    config.buffer_target = Duration::from_secs(3600);
    let worker = Running::start(&db, config, vec![gate.lambda("work").slots(1)]);
    db.until_asleep("work").await;
    // A short execution, so that the worker claims ahead.
    gate.let_pass(1);
    let short = db.schedule("work").await;
    db.until_status(short, "success").await;
    let first = db.schedule_at("work", "low").await;
    gate.next_many(2).await;
    let mut ids = Vec::new();
    for label in LABELS {
        ids.push(db.schedule_at("work", label).await);
        db.until("select count(*) = 0 from tuskline.queued").await;
    }
    gate.open_for_good();
    db.until_count("success", 6).await;
    ids.extend([first, short]);
    ids.reverse();
    assert_eq!(gate.record().tasks(), ids);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lower_priority_that_has_aged_is_served_during_a_flood_of_higher_ones() {
    const FLOOD: usize = 10_000;
    let db = Db::with_lambda("work").await;
    let (executed, before) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(FLOOD)));
    let (count, note) = (Arc::clone(&executed), Arc::clone(&before));
    let lambda = Lambda::named("work", move |payload: Value, _: Context| {
        match payload == "low" {
            true => note.store(count.load(Ordering::Relaxed), Ordering::Relaxed),
            false => drop(count.fetch_add(1, Ordering::Relaxed)),
        }
        async { Outcome::Success(None) }
    });
    let client = Client::connect(db.config.clone()).await.unwrap();
    let high = NewTask::new("work", &"flood").priority(Priority::Critical);
    client.schedule_many(&vec![high; FLOOD]).await.unwrap();
    let low = NewTask::new("work", &"low").priority(Priority::Low);
    client.schedule(&low).await.unwrap();
    let mut config = calm();
    config.priority_ageing = Duration::from_millis(10);
    config.buffer_target = Duration::from_millis(10);
    let worker = Running::start(&db, config, vec![lambda.slots(1)]);
    db.until_count("success", FLOOD + 1).await;
    assert_eq!(executed.load(Ordering::Relaxed), FLOOD);
    assert!(before.load(Ordering::Relaxed) < FLOOD, "it had to wait for the whole flood");
    worker.stop().await;
}
