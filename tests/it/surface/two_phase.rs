//! With `tuskline.two_phase` on, a caller may prepare the transaction of every verb (PREPARE
//! TRANSACTION, XA), also while every worker and store consumer sleeps.

use tokio_postgres::Client;

use crate::support::{Db, refusal};

/// Locks the queues and the timers as sleeping workers and store consumers do.
async fn all_sleep(db: &Db) -> Client {
    let sleeper = db.connect().await;
    let sql = "select tuskline.watch(array(select queue_id from tuskline.queue) || 0)";
    let said: Vec<String> = sleeper.query_one(sql, &[]).await.unwrap().get(0);
    assert!(said.iter().all(|answer| answer == "held"), "{said:?}");
    sleeper
}

/// A database with a task in each place that a verb can act on, and the verbs as statements.
async fn verbs(db: &Db) -> Vec<String> {
    db.define("child").await;
    let worker = db.worker("work").await;
    let [claimed, running, asked] = db.schedule_many("work", 3).await.try_into().unwrap();
    let tasks = worker.claim(3).await;
    let fence = tasks[0].fence;
    let [waiting, later] = [db.schedule("work").await, db.schedule_in("work", HOUR).await];
    let awaited = db.schedule("work").await;
    db.run(&format!("select tuskline.await_end({awaited}), tuskline.await_end({running})")).await;
    let dead = db.schedule("work").await;
    let body = worker.take().await;
    assert_ne!(body.id, dead, "the oldest comes first");
    worker.fail_for_good(&body).await;
    let mut verbs: Vec<String> = [
        "select tuskline.schedule('work')",
        "select tuskline.schedule('work', p_delay => '10 ms')",
        "select tuskline.schedule('work', p_limit_key => 'k')",
        "select tuskline.schedule_many(array_fill('work'::text, array[20]))",
        "insert into tuskline.task (lambda) values ('work')",
        "insert into tuskline.task (lambda) select 'work' from generate_series(1, 3)",
        "insert into tuskline.task (lambda, priority) select lambda, priority from tuskline.queue",
        "select tuskline.gate('child', 'pause', p_reason => 'a test')",
        "select tuskline.ungate(gate_id) from tuskline.gate",
        "select tuskline.set_limit('child', p_max_concurrency => 1)",
        "select tuskline.schedule('child')",
        "select tuskline.set_order('child')",
        "select tuskline.schedule('child', p_ordering_key => 'k')",
        "select tuskline.define_periodic('nightly', 'child', '0 3 * * *')",
        "select tuskline.pause_periodic('nightly')",
        "select tuskline.resume_periodic('nightly')",
        "select tuskline.define_lambda('another')",
    ]
    .map(str::to_owned)
    .into();
    verbs.extend([
        format!("select tuskline.schedule_then(array[{waiting}::bigint], 'child')"),
        format!("select tuskline.complete({running}, {fence})"),
        format!("select tuskline.cancel({asked})"),
        format!("select tuskline.cancel({claimed})"),
        format!("select tuskline.cancel({awaited})"),
        format!("select tuskline.cancel({later})"),
        format!("select tuskline.retry({})", body.id),
    ]);
    verbs
}

const HOUR: std::time::Duration = std::time::Duration::from_secs(3600);

#[tokio::test]
async fn every_verb_can_be_prepared_while_all_workers_sleep() {
    let db = Db::with_lambda("work").await;
    let verbs = verbs(&db).await;
    let _sleeper = all_sleep(&db).await;
    for verb in verbs {
        db.run(&format!("begin; set local tuskline.two_phase = on; {verb}")).await;
        let wakes = "select count(*) from pg_locks where locktype = 'advisory' and classid = 1953854315 \
                     and objid::bigint < 2147483648 and pid = pg_backend_pid()";
        assert_eq!(db.one::<i64>(wakes).await, 0, "a watch lock of {verb}");
        if let Err(error) = db.client.batch_execute("prepare transaction 'two_phase_verb'").await {
            panic!("{}: {verb}", refusal(&error));
        }
        db.run("commit prepared 'two_phase_verb'").await;
    }
}

#[tokio::test]
async fn a_prepared_task_is_queued_when_it_is_committed() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let _sleeper = all_sleep(&db).await;
    db.run("begin; set local tuskline.two_phase = on; select tuskline.schedule('work')").await;
    db.run("prepare transaction 'two_phase_task'").await;
    assert!(worker.claim(1).await.is_empty(), "not committed yet");
    db.run("commit prepared 'two_phase_task'").await;
    let task = worker.take().await;
    worker.succeed(&task).await;
    assert_eq!(db.status(task.id).await, "success");
}

#[tokio::test]
async fn the_setting_counts_in_every_place_and_ends_with_its_transaction() {
    let mut db = Db::with_lambda("work").await;
    let queue = db.queue("work", "normal").await;
    let channel = format!("tuskline_bell_{queue}");
    let mut ear = db.ear(&[&channel]).await;
    let _sleeper = all_sleep(&db).await;
    db.run("begin; set local tuskline.two_phase = on; select tuskline.schedule('work'); commit")
        .await;
    assert!(ear.heard().await.is_empty(), "set local");
    let after: String = db.one("select current_setting('tuskline.two_phase')").await;
    assert_eq!(after, "", "a session reads this after the end of a SET LOCAL");
    db.schedule("work").await;
    assert_eq!(ear.heard().await, [channel.as_str()], "the empty text counts as off");
    db.run("set tuskline.two_phase = off; select tuskline.schedule('work')").await;
    assert_eq!(ear.heard().await, [channel.as_str()], "off");
    for on in ["on", "TRUE", "1", "yes"] {
        db.run(&format!("set tuskline.two_phase = '{on}'; select tuskline.schedule('work')")).await;
        assert!(ear.heard().await.is_empty(), "{on}");
    }
    db.config.options("-c tuskline.two_phase=on");
    db.reconnect().await;
    db.schedule("work").await;
    assert!(ear.heard().await.is_empty(), "in the connection string");
}

#[tokio::test]
async fn a_misspelt_setting_is_refused() {
    let db = Db::with_lambda("work").await;
    let said = db.refused("set tuskline.two_phase = 'onn'; select tuskline.schedule('work')").await;
    assert_eq!(
        said,
        "TK009: TK009 invalid_setting: tuskline.two_phase must be on or off, got 'onn' [set tuskline.two_phase = on]"
    );
}
