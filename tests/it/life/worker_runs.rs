//! A running worker executes every accepted task, however it was scheduled. The task store keeps
//! the outcome that the body returns.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::SinkExt as _;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tuskline_sdk::{Client, Context, Failure, Lambda, NewTask, Outcome, Priority, WorkerConfig};

use crate::support::{DEADLINE, Db, Gate, Running, calm, quick, within};

/// Starts a worker for the lambda `work` with the outcome that the test wants.
async fn saying(
    db: &Db,
    say: impl Fn(Value, Context) -> Outcome + Send + Sync + 'static,
) -> (Gate, Running) {
    let gate = Gate::open();
    let worker = Running::start(db, calm(), vec![gate.lambda_saying("work", say)]);
    (gate, worker)
}

/// Everything the SDK knows of a task.
async fn known(db: &Db, id: i64) -> tuskline_sdk::TaskStatus {
    let client = Client::connect(&db.config).await.unwrap();
    client.status(tuskline_sdk::TaskId(id)).await.unwrap().unwrap()
}

#[tokio::test]
async fn tasks_are_executed_however_they_were_scheduled() {
    let mut db = Db::with_lambda("work").await;
    let gate = Gate::open();
    let worker = Running::start(&db, calm(), vec![gate.lambda("work")]);
    db.run("insert into tuskline.task (lambda, payload) values ('work', '1'), ('work', '2')").await;
    let sink = db.client.copy_in("copy tuskline.task (lambda, payload) from stdin").await.unwrap();
    let mut sink = pin!(sink);
    sink.send(&b"work\t3\nwork\t4\n"[..]).await.unwrap();
    sink.close().await.unwrap();
    db.schedule_with("work", "5").await;
    db.schedule_many("work", 2).await;
    let client = Client::connect(db.config.clone()).await.unwrap();
    client.schedule(&NewTask::new("work", &json!(8))).await.unwrap();
    let two: Vec<_> = (9..11).map(|n| NewTask::new("work", &json!(n))).collect();
    client.schedule_many(&two).await.unwrap();
    let mut transaction = db.client.transaction().await.unwrap();
    let task = NewTask::new("work", &json!(11));
    Client::within(&mut transaction).schedule(&task).await.unwrap();
    transaction.commit().await.unwrap();
    let mut transaction = db.client.transaction().await.unwrap();
    Client::within(&mut transaction).schedule(&task).await.unwrap();
    transaction.rollback().await.unwrap();
    db.until_count("success", 11).await;
    let mut payloads: Vec<_> =
        gate.next_many(11).await.into_iter().map(|one| one.payload.to_string()).collect();
    payloads.sort();
    assert_eq!(payloads, ["1", "10", "11", "2", "3", "4", "5", "8", "9", "null", "null"]);
    worker.stop().await;
    db.assert_nothing_left().await;
    assert_eq!(gate.record().ended(), 11);
}

#[tokio::test]
async fn a_payload_arrives_unchanged() {
    let db = Db::with_lambda("work").await;
    let gate = Gate::open();
    let payloads = [
        "null",
        r#""grüße, 世界, 🦣, \" \\ \/ \n \u00e9""#,
        r#"{"a": {"b": [1, 2.5, -3e10, {"c": [[[[]]]]}, true, null]}, "": ""}"#,
        "18446744073709551615",
        "-9223372036854775808",
        "[0.1, 1e-300, 123456789.123456789]",
        r#""\u001b[31m'; drop table tuskline.task; --""#,
    ];
    for payload in payloads {
        db.schedule_with("work", payload).await;
    }
    let worker = Running::start(&db, calm(), vec![gate.lambda("work").slots(1)]);
    let arrived = gate.next_many(payloads.len()).await;
    for (sent, arrived) in payloads.iter().zip(arrived) {
        assert_eq!(serde_json::from_str::<Value>(sent).unwrap(), arrived.payload);
    }
    let absent: i64 =
        db.one("insert into tuskline.task (lambda) values ('work') returning id").await;
    let arrived = gate.next().await;
    assert_eq!((arrived.payload, arrived.context.task().0), (Value::Null, absent));
    db.until_count("success", 8).await;
    worker.stop().await;
}

#[tokio::test]
async fn the_context_names_task_attempt_fence_and_collection() {
    let db = Db::with_lambda("work").await;
    let (gate, worker) = saying(&db, |_, context| match context.attempt() {
        1 => {
            Outcome::Retriable { after: Some(Duration::ZERO), class: None, reason: "again".into() }
        }
        _ => Outcome::Success(None),
    })
    .await;
    let _consumer = db.store_consumer();
    let id: i64 = db.one("select tuskline.schedule('work', p_collection => 'spring')").await;
    let first = gate.next().await.context;
    let second = gate.next().await.context;
    assert_eq!((first.task().0, second.task().0), (id, id));
    assert_eq!((first.attempt(), second.attempt()), (1, 2));
    assert!(second.fence() > first.fence());
    assert_eq!(first.collection(), Some("spring"));
    db.until_status(id, "success").await;
    let fence: i64 = db.ask("select fence from tuskline.task where id = $1", &[&id]).await;
    assert_eq!(second.fence().0, fence);
    worker.stop().await;
    db.assert_nothing_left().await;
}

#[tokio::test]
async fn what_a_body_says_is_kept() {
    let db = Db::with_lambda("work").await;
    let (_gate, worker) = saying(&db, |payload, _| match payload.as_str().unwrap() {
        "value" => Outcome::Success(Some(json!({"n": 1, "s": "a\0b", "k\0": [null]}))),
        "later" => {
            Outcome::Retriable { after: Some(Duration::MAX), class: None, reason: "later".into() }
        }
        "backoff" => Outcome::retriable("by the backoff"),
        _ => Outcome::fatal("never"),
    })
    .await;
    let value = db.schedule_with("work", r#""value""#).await;
    let later = db.schedule_with("work", r#""later""#).await;
    let backoff = db.schedule_with("work", r#""backoff""#).await;
    let never = db.schedule_with("work", r#""never""#).await;
    db.until_status(value, "success").await;
    db.until_status(later, "retriable_failure").await;
    db.until_status(backoff, "retriable_failure").await;
    db.until_status(never, "fatal_failure").await;
    let kept = known(&db, value).await.output.unwrap();
    assert_eq!(kept, json!({"n": 1, "s": "a\u{fffd}b", "k\u{fffd}": [null]}));
    assert_eq!(db.failures(later).await, [("error".into(), "later".into())]);
    assert_eq!(db.failures(never).await, [("fatal".into(), "never".into())]);
    let in_ten_years: bool = db
        .ask(
            "select next_trigger_at > tuskline.clock() + interval '9 years' from tuskline.task where id = $1",
            &[&later],
        )
        .await;
    assert!(in_ten_years);
    let by_backoff: bool = db
        .ask(
            "select next_trigger_at < tuskline.clock() + interval '2 seconds' from tuskline.task where id = $1",
            &[&backoff],
        )
        .await;
    assert!(by_backoff);
    worker.stop().await;
}

#[tokio::test]
async fn an_error_is_retriable_and_so_is_a_panic_which_hurts_no_other_task() {
    let db = Db::with_lambda("work").await;
    let lambda = Lambda::named("work", |payload: Value| async move {
        tokio::task::yield_now().await;
        match payload.as_str().unwrap() {
            "err" => Err("disk full"),
            "panic" => panic!("boom {}", 42),
            _ => Ok(()),
        }
    });
    let worker = Running::start(&db, calm(), vec![lambda.slots(2)]);
    let mut panicking = Vec::new();
    for _ in 0..5 {
        panicking.push(db.schedule_with("work", r#""panic""#).await);
    }
    let error = db.schedule_with("work", r#""err""#).await;
    let fine = db.schedule_with("work", r#""fine""#).await;
    for id in panicking {
        db.until_status(id, "retriable_failure").await;
        assert_eq!(db.failures(id).await, [("panic".into(), "panicked: boom 42".into())]);
    }
    db.until_status(error, "retriable_failure").await;
    assert_eq!(db.failures(error).await, [("error".into(), "disk full".into())]);
    db.until_status(fine, "success").await;
    worker.stop().await;
}

#[tokio::test]
async fn a_body_whose_start_or_drop_panics_is_a_retriable_failure() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    let db = Db::with_lambda("work").await;
    let lambda = Lambda::named("work", |payload: Value, _: Context| {
        assert!(payload != "start", "at the start");
        let bomb = (payload == "drop").then(|| Bomb);
        async move {
            if bomb.is_some() {
                std::future::pending::<()>().await;
            }
            Outcome::Success(None)
        }
    });
    let worker = Running::start(&db, quick(), vec![lambda.slots(1)]);
    let start = db.schedule_with("work", r#""start""#).await;
    let drop = db.schedule_with("work", r#""drop""#).await;
    db.until_status(start, "retriable_failure").await;
    assert_eq!(db.failures(start).await, [("panic".into(), "panicked: at the start".into())]);
    db.until_status(drop, "processing").await;
    assert_eq!(db.cancel(drop).await, "requested");
    db.until_status(drop, "cancelled").await;
    let fine = db.schedule_with("work", r#""fine""#).await;
    db.until_status(fine, "success").await;
    worker.stop().await;
}

#[tokio::test]
async fn a_payload_that_does_not_decode_is_fatal_for_that_task_only() {
    #[derive(Deserialize)]
    struct Order {
        number: u32,
    }
    let db = Db::with_lambda("work").await;
    let lambda =
        Lambda::named("work", |order: Order| async move { Ok::<_, Failure>(order.number) });
    let worker = Running::start(&db, calm(), vec![lambda]);
    let wrong = db.schedule_with("work", r#"{"number": -1}"#).await;
    let absent = db.schedule("work").await;
    let right = db.schedule_with("work", r#"{"number": 7}"#).await;
    db.until_status(wrong, "fatal_failure").await;
    db.until_status(absent, "fatal_failure").await;
    db.until_status(right, "success").await;
    let [(class, message)] = &db.failures(wrong).await[..] else { panic!("one failure") };
    assert_eq!(class, "decode");
    assert!(message.starts_with("payload does not decode: invalid value"), "{message}");
    worker.stop().await;
}

#[tokio::test]
async fn nasty_error_texts_are_recorded_cleaned_and_cut() {
    let db = Db::with_lambda("work").await;
    let (_gate, worker) = saying(&db, |payload, _| {
        let text = match payload.as_str().unwrap() {
            "nul" => "a\0b".to_owned(),
            "long" => "é".repeat(5 << 20),
            "surrogate" => String::from_utf16_lossy(&[0xd800, 0x61, 0xdfff]),
            "escape" => "\u{1b}[31mred\u{1b}[0m\r\n\\u0000 \"quoted\" \u{202e}".to_owned(),
            _ => String::new(),
        };
        Outcome::fatal(text)
    })
    .await;
    let mut recorded = Vec::new();
    for what in ["nul", "long", "surrogate", "escape", "empty"] {
        let id = db.schedule_with("work", &format!("{what:?}")).await;
        db.until_status(id, "fatal_failure").await;
        recorded.push(db.failures(id).await.remove(0).1);
    }
    assert_eq!(recorded[0], "a\u{fffd}b");
    assert_eq!(recorded[1], "é".repeat(4096));
    assert_eq!(recorded[2], "\u{fffd}a\u{fffd}");
    assert_eq!(recorded[3], "\u{1b}[31mred\u{1b}[0m\r\n\\u0000 \"quoted\" \u{202e}");
    assert_eq!(recorded[4], "");
    worker.stop().await;
}

#[tokio::test]
async fn an_output_that_cannot_be_kept_is_fatal_for_its_task_only() {
    let db = Db::with_lambda("work").await;
    let (_gate, worker) = saying(&db, |payload, _| match payload.as_str().unwrap() {
        "large" => Outcome::Success(Some(json!("x".repeat(1 << 20)))),
        "deep" => Outcome::Success(Some((0..65).fold(json!(1), |inner, _| json!([inner])))),
        _ => Outcome::Success(Some(json!("x".repeat((1 << 20) - 2)))),
    })
    .await;
    let large = db.schedule_with("work", r#""large""#).await;
    let deep = db.schedule_with("work", r#""deep""#).await;
    let fits = db.schedule_with("work", r#""fits""#).await;
    db.until_status(large, "fatal_failure").await;
    db.until_status(deep, "fatal_failure").await;
    db.until_status(fits, "success").await;
    let [(class, message)] = &db.failures(large).await[..] else { panic!("one failure") };
    assert_eq!(class, "output");
    assert_eq!(message, "output too large: at most 1048576 bytes, got 1048578");
    let [(class, message)] = &db.failures(deep).await[..] else { panic!("one failure") };
    assert_eq!(class, "output");
    assert_eq!(message, "output too deep: nesting at most 64");
    worker.stop().await;
}

#[tokio::test]
async fn large_outputs_of_many_tasks_are_recorded() {
    let db = Db::with_lambda("work").await;
    let gate = Gate::new();
    let lambda = gate
        .lambda_saying("work", |_, _| Outcome::Success(Some(json!("x".repeat((1 << 20) - 2)))))
        .slots(12);
    let worker = Running::start(&db, calm(), vec![lambda]);
    db.schedule_many("work", 12).await;
    gate.next_many(12).await;
    gate.open_for_good();
    db.until_count("success", 12).await;
    worker.stop().await;
    db.assert_nothing_left().await;
}

#[tokio::test]
async fn an_attempt_that_outlasts_its_timeout_is_dropped_and_retried() {
    let db = Db::new().await;
    db.define_with("work", "p_attempt_timeout => '50 ms', p_retry_base => '0'").await;
    let gate = Gate::new();
    let worker = Running::start(&db, calm(), vec![gate.lambda("work")]);
    let _consumer = db.store_consumer();
    let id = db.schedule("work").await;
    let first = gate.next().await.context;
    assert_eq!(first.attempt(), 1);
    within(first.cancelled()).await;
    let second = gate.next().await.context;
    assert_eq!(second.attempt(), 2);
    assert!(gate.record().executions()[0].ended_ns.is_some(), "the first body was dropped");
    gate.open_for_good();
    db.until_status(id, "success").await;
    let [(class, message)] = &db.failures(id).await[..1] else { panic!("a failure") };
    assert_eq!(
        (class.as_str(), message.as_str()),
        ("timeout", "no result within attempt_timeout 50ms")
    );
    worker.stop().await;
}

#[tokio::test]
async fn a_blocking_lambda_runs_beside_async_ones_and_hears_that_it_shall_stop() {
    let db = Db::with_lambda("work").await;
    db.define("quick").await;
    let gate = Gate::open();
    let (begun, begin) = std::sync::mpsc::channel();
    let lambda = Lambda::blocking_named("work", move |_: Value, context: Context| {
        begun.send(context.task().0).unwrap();
        while !context.is_cancelled() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Outcome::retriable("told to stop")
    });
    let worker = Running::start(&db, quick(), vec![lambda, gate.lambda("quick")]);
    let id = db.schedule("work").await;
    let other = db.schedule("quick").await;
    db.until_status(other, "success").await;
    db.until_status(id, "processing").await;
    let begin = tokio::task::spawn_blocking(move || begin.recv_timeout(DEADLINE));
    assert_eq!(within(begin).await.unwrap(), Ok(id));
    assert_eq!(db.cancel(id).await, "requested");
    db.until_status(id, "cancelled").await;
    worker.stop().await;
    db.assert_nothing_left().await;
}

#[tokio::test]
async fn a_blocking_lambda_has_a_thread_for_each_of_its_slots() {
    const SLOTS: usize = 600;
    let db = Db::with_lambda("work").await;
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(std::sync::Mutex::new(released));
    let begun = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&begun);
    let lambda = Lambda::blocking_named("work", move |_: Value, _: Context| {
        count.fetch_add(1, Ordering::Relaxed);
        let _ = released.lock().unwrap().recv();
    });
    let worker = Running::start(&db, calm(), vec![lambda.slots(SLOTS)]);
    db.schedule_many("work", SLOTS.try_into().unwrap()).await;
    // None of them ends before all have begun.
    let all = async {
        while begun.load(Ordering::Relaxed) < SLOTS {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let all = tokio::time::timeout(DEADLINE, all).await;
    drop(release);
    assert!(all.is_ok(), "{} have begun", begun.load(Ordering::Relaxed));
    db.until_count("success", SLOTS).await;
    worker.stop().await;
}

#[tokio::test]
async fn a_blocking_lambda_that_panics_is_a_retriable_failure() {
    let db = Db::with_lambda("work").await;
    let lambda = Lambda::blocking_named("work", |payload: Value, _: Context| {
        assert!(payload != "panic", "boom");
        Outcome::Success(None)
    });
    let worker = Running::start(&db, calm(), vec![lambda]);
    let id = db.schedule_with("work", r#""panic""#).await;
    let fine = db.schedule("work").await;
    db.until_status(id, "retriable_failure").await;
    assert_eq!(db.failures(id).await, [("panic".into(), "panicked: boom".into())]);
    db.until_status(fine, "success").await;
    worker.stop().await;
}

/// Sets heartbeats so far apart that only the notification can reach the worker in time.
fn slow_heartbeats() -> WorkerConfig {
    let mut config = WorkerConfig::with_heartbeat(Duration::from_secs(300));
    config.heartbeat_timeout = Duration::from_secs(1);
    config
}

#[tokio::test]
async fn a_request_to_cancel_reaches_the_body_without_waiting_for_a_heartbeat() {
    let db = Db::with_lambda("work").await;
    let gate = Gate::new();
    let worker = Running::start(&db, slow_heartbeats(), vec![gate.lambda("work")]);
    db.until_asleep("work").await;
    let id = db.schedule("work").await;
    let context = gate.next().await.context;
    assert_eq!(db.cancel(id).await, "requested");
    within(context.cancelled()).await;
    gate.open_for_good();
    db.until_status(id, "success").await;
    worker.stop().await;
    db.assert_nothing_left().await;
}

#[tokio::test]
async fn a_body_that_heeds_the_request_ends_cancelled() {
    let db = Db::with_lambda("work").await;
    let gate = Gate::open();
    let heeding = Lambda::named("work", {
        let gate = gate.clone();
        move |payload: Value, context: Context| {
            let gate = gate.clone();
            async move {
                gate.stop_here(payload, context.clone()).await;
                context.cancelled().await;
                Err::<(), _>("stopped")
            }
        }
    });
    let worker = Running::start(&db, slow_heartbeats(), vec![heeding]);
    db.until_asleep("work").await;
    let id = db.schedule("work").await;
    gate.next().await;
    assert_eq!(db.cancel(id).await, "requested");
    db.until_status(id, "cancelled").await;
    assert_eq!(db.failures(id).await, []);
    worker.stop().await;
    db.assert_nothing_left().await;
}

#[tokio::test]
async fn a_task_that_waits_in_the_worker_is_cancelled_before_it_starts() {
    let db = Db::with_lambda("work").await;
    let gate = Gate::new();
    // The worker claims ahead once it has seen a task end. The answer of a claim may come after the
    // notice of the cancellation. Then the next heartbeat reports it.
    let mut config = WorkerConfig::with_heartbeat(Duration::from_secs(2));
    config.buffer_target = Duration::from_secs(3600);
    let worker = Running::start(&db, config, vec![gate.lambda("work").slots(1)]);
    db.until_asleep("work").await;
    gate.let_pass(1);
    let first = db.schedule("work").await;
    db.until_status(first, "success").await;
    let ids = db.schedule_many("work", 3).await;
    db.until_count("claimed", 3).await;
    assert_eq!(db.cancel(ids[1]).await, "requested");
    db.until_status(ids[1], "cancelled").await;
    gate.open_for_good();
    db.until_count("success", 3).await;
    assert_eq!(gate.record().tasks(), [first, ids[0], ids[2]]);
    worker.stop().await;
    db.assert_nothing_left().await;
}

#[tokio::test]
async fn a_body_may_schedule_a_follow_up() {
    let db = Db::with_lambda("work").await;
    let done = std::sync::Arc::new(Notify::new());
    let tell = std::sync::Arc::clone(&done);
    let lambda = Lambda::named("work", move |left: u32, context: Context| {
        let tell = std::sync::Arc::clone(&tell);
        async move {
            match left {
                0 => tell.notify_one(),
                _ => drop(context.schedule(&NewTask::new("work", &(left - 1))).await?),
            }
            Ok::<_, tuskline_sdk::Error>(())
        }
    });
    let worker = Running::start(&db, calm(), vec![lambda]);
    db.schedule_with("work", "3").await;
    within(done.notified()).await;
    db.until_count("success", 4).await;
    worker.stop().await;
    db.assert_nothing_left().await;
}

#[tokio::test]
async fn code_that_blocks_its_threads_delays_no_other_lambda_and_no_heartbeat() {
    let db = Db::with_lambda("stuck").await;
    db.define("other").await;
    let (release, blocked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (free, count) = (Arc::clone(&release), Arc::clone(&blocked));
    let stuck = Lambda::named("stuck", move |_: Value, _: Context| {
        let (free, count) = (Arc::clone(&free), Arc::clone(&count));
        async move {
            count.fetch_add(1, Ordering::Relaxed);
            while !free.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    let other = Lambda::named("other", |_: Value, _: Context| async {});
    let worker = Running::start(&db, quick(), vec![stuck.slots(64), other]);
    db.schedule_many("stuck", 64).await;
    // Every thread of the worker is blocked.
    let threads = quick().threads.min(64);
    while blocked.load(Ordering::Relaxed) < threads {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let beats = "select beats from tuskline.executor where ended_at is null";
    let seen: i64 = db.one(beats).await;
    db.schedule_many("other", 100).await;
    let done =
        "select count(*) = 100 from tuskline.task where lambda = 'other' and status = 'success'";
    db.until(done).await;
    db.until(&format!("select beats > {seen} from tuskline.executor where ended_at is null")).await;
    assert_eq!(db.count("success").await, 100);
    release.store(true, Ordering::Relaxed);
    db.until_count("success", 164).await;
    worker.stop().await;
}

/// A body that blocks its thread when `opened`, after its use of the database.
fn standing_still(
    name: &str,
    opened: Arc<Notify>,
    released: std::sync::mpsc::Receiver<()>,
) -> Lambda {
    let released = Arc::new(std::sync::Mutex::new(released));
    Lambda::named(name, move |_: Value, context: Context| {
        let (opened, released) = (Arc::clone(&opened), Arc::clone(&released));
        async move {
            // The body uses two connections at once; the second is opened here. Both return to the
            // pool.
            let both = (context.client().connection().await?, context.client().connection().await?);
            drop(both);
            opened.notify_one();
            let _ = released.lock().unwrap().recv();
            Ok::<_, tuskline_sdk::Error>(())
        }
    })
}

/// Sets a request timeout beyond the deadline of the test.
fn patient() -> WorkerConfig {
    let mut config = quick();
    config.request_timeout = Duration::from_secs(300);
    config.threads = 1;
    config
}

#[tokio::test]
async fn a_blocked_lambda_holds_up_no_connection_of_another_lambda() {
    let db = Db::with_lambda("stuck").await;
    db.define("other").await;
    let (release, released) = std::sync::mpsc::channel();
    let opened = Arc::new(Notify::new());
    let other = Lambda::named("other", |_: Value, context: Context| async move {
        let client = context.client().with_deadline(Duration::from_secs(300));
        let both = (client.connection().await?, client.connection().await?);
        both.0.batch_execute("select 1").await.map_err(tuskline_sdk::Error::from_read)?;
        both.1.batch_execute("select 1").await.map_err(tuskline_sdk::Error::from_read)
    });
    let stuck = standing_still("stuck", Arc::clone(&opened), released);
    let worker = Running::start(&db, patient(), vec![stuck, other]);
    db.schedule("stuck").await;
    within(opened.notified()).await;
    let id = db.schedule("other").await;
    db.until_status(id, "success").await;
    release.send(()).unwrap();
    db.until_count("success", 2).await;
    worker.stop().await;
}

#[tokio::test]
async fn a_lambda_that_stands_still_holds_up_no_rare_call() {
    let db = Db::with_lambda("stuck").await;
    db.define("other").await;
    let (release, released) = std::sync::mpsc::channel();
    let opened = Arc::new(Notify::new());
    let stuck = standing_still("stuck", Arc::clone(&opened), released);
    let gate = Gate::open();
    let worker = Running::start(&db, patient(), vec![stuck, gate.lambda("other")]);
    db.until_asleep("stuck").await;
    db.until_asleep("other").await;
    // The start of suspects is reported on the control connection, which the first suspect opens
    // again.
    db.cut_workers().await;
    db.run("begin").await;
    db.schedule("stuck").await;
    db.run("update tuskline.task set crashes = 1; commit").await;
    within(opened.notified()).await;
    db.run("begin").await;
    let id = db.schedule("other").await;
    db.run("update tuskline.task set crashes = 1 where lambda = 'other'; commit").await;
    db.until_status(id, "success").await;
    release.send(()).unwrap();
    db.until_count("success", 2).await;
    worker.stop().await;
}

#[tokio::test]
async fn a_priority_that_is_bounded_leaves_the_other_slots_free() {
    let db = Db::with_lambda("work").await;
    let bodies = Gate::new();
    for _ in 0..4 {
        db.schedule_at("work", "low").await;
    }
    let work = bodies.lambda("work").slots(3).slots_for(Priority::Low, 1);
    let worker = Running::start(&db, quick(), vec![work]);
    bodies.next().await;
    let urgent = [db.schedule("work").await, db.schedule("work").await];
    let mut begun: Vec<_> =
        bodies.next_many(2).await.iter().map(|body| body.context.task().0).collect();
    begun.sort_unstable();
    assert_eq!(begun, urgent, "the second and third slot are not for low ones");
    bodies.open_for_good();
    db.until_count("success", 6).await;
    worker.stop().await;
}
