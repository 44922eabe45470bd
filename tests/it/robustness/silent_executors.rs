//! The verbs' part of failure detection. An observer must have seen an executor silent for a whole
//! lease to end it, and the executor must not have beaten since. No step of the database's clock
//! ends an executor, or keeps a dead one alive.

use std::time::Duration;

use crate::support::{Answer, Db, LEASE};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_clock_that_steps_forward_ends_no_executor() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.schedule_many("work", 4).await;
    let worker = db.worker("work").await;
    for step in [Duration::from_secs(90), HOUR] {
        let held = worker.take().await;
        db.advance(step).await;
        let look = db.look().await;
        assert_eq!((look.did, look.pulses.len()), ((0, 0, 0), 1), "{step:?}");
        let more = worker.take().await;
        assert!(worker.start(&held).await && worker.start(&more).await, "{step:?}");
        assert!(worker.heartbeat().await, "{step:?}");
        assert!(worker.succeed_all(&[held, more]).await.is_empty());
    }
    assert_eq!(db.count("success").await, 4);
}

#[tokio::test]
async fn a_silent_executor_is_ended_though_the_clock_stepped_back() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let id = db.schedule("work").await;
    let dead = db.worker("work").await;
    dead.take().await;
    db.turn_back(HOUR).await;
    let look = db.look().await;
    let ended = db.rescue_silent(&db.client, &look.pulses, look.booted_at).await;
    assert_eq!((ended.did, ended.pulses), ((1, 1, 0), vec![]));
    assert_eq!(db.status(id).await, "enqueued");
    assert!(!dead.heartbeat().await);
}

#[tokio::test]
async fn a_look_names_each_live_executor_with_beats_and_lease() {
    let db = Db::with_lambda("work").await;
    let (one, two) = (db.worker("work").await, db.worker_with(&["work"], LEASE / 3).await);
    let ended = db.worker("work").await;
    assert!(two.heartbeat().await && two.heartbeat().await);
    db.run(&format!("select tuskline.end_executor({})", ended.executor)).await;
    let look = db.look().await;
    assert_eq!(look.pulses, [(one.executor, 0), (two.executor, 2)]);
    assert_eq!(look.lease_ms, [20_000, 6_667]);
    assert!(look.booted_at.is_some());
}

#[tokio::test]
async fn a_beat_between_look_and_rescue_saves_the_executor() {
    let db = Db::with_lambda("work").await;
    db.schedule_many("work", 2).await;
    let (dead, saved) = (db.worker("work").await, db.worker("work").await);
    dead.take().await;
    let task = saved.take().await;
    let look = db.look().await;
    assert!(saved.heartbeat().await);
    let ended = db.rescue_silent(&db.client, &look.pulses, look.booted_at).await;
    assert_eq!((ended.did, ended.pulses), ((1, 1, 0), vec![(saved.executor, 1)]));
    assert_eq!(saved.succeed(&task).await, Answer::Accepted);
}

#[tokio::test]
async fn a_beat_under_way_is_not_waited_for_and_counts() {
    let db = Db::with_lambda("work").await;
    db.schedule("work").await;
    let worker = db.worker("work").await;
    worker.take().await;
    let look = db.look().await;
    worker.client.batch_execute("begin").await.unwrap();
    assert!(worker.heartbeat().await);
    let early = db.rescue_silent(&db.client, &look.pulses, look.booted_at).await;
    assert_eq!((early.did, early.pulses), ((0, 0, 0), vec![(worker.executor, 0)]));
    worker.client.batch_execute("commit").await.unwrap();
    let late = db.rescue_silent(&db.client, &look.pulses, look.booted_at).await;
    assert_eq!((late.did, late.pulses), ((0, 0, 0), vec![(worker.executor, 1)]));
}

#[tokio::test]
async fn a_beat_that_meets_its_end_is_told_so() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let look = db.look().await;
    let consumer = db.connect().await;
    consumer.batch_execute("begin").await.unwrap();
    let ended = db.rescue_silent(&consumer, &look.pulses, look.booted_at).await;
    assert_eq!(ended.pulses, []);
    let pid: i32 = worker.client.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let ((), alive) = tokio::join!(
        async {
            db.until_blocked(pid).await;
            consumer.batch_execute("commit").await.unwrap();
        },
        worker.heartbeat(),
    );
    assert!(!alive);
}

#[tokio::test]
async fn of_two_store_consumers_that_saw_one_silence_one_finds_nothing_to_do() {
    let db = Db::with_lambda("work").await;
    db.schedule_many("work", 3).await;
    let dead = db.worker("work").await;
    dead.claim(3).await;
    let look = db.look().await;
    let (one, two) = (db.connect().await, db.connect().await);
    one.batch_execute("begin").await.unwrap();
    let ending = db.rescue_silent(&one, &look.pulses, look.booted_at).await;
    let meanwhile = db.rescue_silent(&two, &look.pulses, look.booted_at).await;
    one.batch_execute("commit").await.unwrap();
    let after = db.rescue_silent(&two, &look.pulses, look.booted_at).await;
    assert_eq!([ending.did, meanwhile.did, after.did], [(1, 3, 0), (0, 0, 0), (0, 0, 0)]);
    assert_eq!((db.queued().await, after.pulses), (3, vec![]));
}

#[tokio::test]
async fn observations_of_another_life_of_the_server_end_no_executor() {
    let db = Db::with_lambda("work").await;
    db.worker("work").await;
    let before = db.look().await;
    db.run("truncate tuskline.queued, tuskline_core.queues_complete").await;
    let between = db.rescue_silent(&db.client, &before.pulses, before.booted_at).await;
    assert_eq!((between.booted_at, &between.pulses), (None, &before.pulses));
    let between = db.rescue_silent(&db.client, &before.pulses, None).await;
    assert_eq!(between.pulses, before.pulses, "no executor is ended before the rebuild");
    db.run("select tuskline.rebuild_queues()").await;
    let after = db.rescue_silent(&db.client, &before.pulses, before.booted_at).await;
    assert_eq!(after.pulses, before.pulses);
    let seen_anew = db.rescue_silent(&db.client, &after.pulses, after.booted_at).await;
    assert_eq!(seen_anew.pulses, []);
}

#[tokio::test]
async fn an_executor_whose_row_is_locked_delays_itself() {
    let db = Db::with_lambda("work").await;
    let (one, two) = (db.worker("work").await, db.worker("work").await);
    let look = db.look().await;
    let holder = db.connect().await;
    let lock = "select from tuskline.executor where executor_id = $1 for update";
    holder.batch_execute("begin").await.unwrap();
    holder.execute(lock, &[&one.executor]).await.unwrap();
    let ended = db.rescue_silent(&db.client, &look.pulses, look.booted_at).await;
    assert_eq!(ended.pulses, [(one.executor, 0)]);
    assert!(!two.heartbeat().await);
    holder.batch_execute("rollback").await.unwrap();
    let ended = db.rescue_silent(&db.client, &look.pulses, look.booted_at).await;
    assert_eq!(ended.pulses, []);
}

#[tokio::test]
async fn by_hand_the_databases_clock_judges() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.schedule("work").await;
    db.worker("work").await.take().await;
    db.advance(LEASE).await;
    let said: String = db.one("select tuskline.rescue()::text").await;
    assert_eq!(said, "(1,1,0,,,,,)");
}

#[tokio::test]
async fn a_task_that_waited_for_months_or_less_than_no_time_is_claimed() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    db.schedule("work").await;
    db.advance(HOUR * 24 * 365).await;
    assert_eq!(worker.take().await.queued_ms, i32::MAX);
    db.schedule("work").await;
    db.turn_back(HOUR).await;
    assert_eq!(worker.take().await.queued_ms, 0);
}

/// Notes a silence as a store consumer does that observed it.
async fn note(db: &Db, executor: i64, beats: i64, silent_ms: i64, booted_at: &str) {
    db.run(&format!(
        "select tuskline.note_silence(array[{executor}], array[{beats}], array[{silent_ms}], {booted_at})"
    ))
    .await;
}

const NOW: &str = "(select verified_at from tuskline_core.verified_incarnation)";

#[tokio::test]
async fn a_noted_silence_is_read_by_the_next_look_until_the_executor_beats() {
    let db = Db::with_lambda("work").await;
    let (one, two) = (db.worker("work").await, db.worker("work").await);
    note(&db, one.executor, 0, 9_000, NOW).await;
    note(&db, one.executor, 0, 7_000, NOW).await;
    let look = db.look().await;
    let at = look.pulses.iter().position(|pulse| pulse.0 == one.executor).unwrap();
    assert_eq!((look.silent_ms[at], look.silent_ms[1 - at]), (9_000, 0));
    note(&db, one.executor, 0, 11_000, NOW).await;
    assert!(one.heartbeat().await && two.heartbeat().await);
    assert_eq!(db.look().await.silent_ms, [0, 0]);
}

#[tokio::test]
async fn a_silence_that_is_over_or_of_another_life_is_not_noted() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    assert!(worker.heartbeat().await);
    note(&db, worker.executor, 0, 9_000, NOW).await;
    note(&db, worker.executor, 1, 9_000, "now() - interval '1 day'").await;
    note(&db, worker.executor, 1, 9_000, "null").await;
    assert_eq!(db.look().await.silent_ms, [0]);
}

#[tokio::test]
async fn a_note_does_not_wait_for_a_beat_under_way() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    worker.client.batch_execute("begin").await.unwrap();
    assert!(worker.heartbeat().await);
    note(&db, worker.executor, 0, 9_000, NOW).await;
    worker.client.batch_execute("commit").await.unwrap();
    assert_eq!(db.look().await.silent_ms, [0]);
}

#[tokio::test]
async fn a_rebuild_forgets_every_noted_silence() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    note(&db, worker.executor, 0, 9_000, NOW).await;
    db.run("truncate tuskline.queued, tuskline_core.queues_complete").await;
    db.run("select tuskline.rebuild_queues()").await;
    assert_eq!(db.look().await.silent_ms, [0]);
}
