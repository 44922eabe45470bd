//! A transaction that has locked a task row delays this task's result, and no other.

use serde_json::{Value, json};
use tokio_postgres::{Client, Row};

use crate::support::{Answer, Db, ScriptedWorker, Task, ids_and_fences};

/// A session that holds the rows of these tasks locked, in an open transaction.
async fn lock(db: &Db, tasks: &[&Task]) -> Client {
    let session = db.connect().await;
    session.batch_execute("begin").await.unwrap();
    let ids: Vec<_> = tasks.iter().map(|task| task.id).collect();
    let sql = "select from tuskline.task where id = any ($1) order by id for update";
    session.execute(sql, &[&ids]).await.unwrap();
    session
}

/// The refused and the deferred tasks of an exchange without a claim.
async fn exchange(
    worker: &ScriptedWorker,
    plain: &[Task],
    notes: Option<Value>,
) -> (Vec<i64>, Vec<i64>) {
    let (ids, fences) = ids_and_fences(plain);
    let noted = notes.iter().flat_map(|notes| notes.as_array().unwrap());
    let noted = noted.map(|note| note["fence"].as_i64().unwrap());
    let mut leases: Vec<i64> = fences.iter().copied().chain(noted).collect();
    leases.dedup();
    let notes = notes.map(|notes| notes.to_string());
    let row: Row = worker
        .client
        .query_one(
            "select refused, deferred from tuskline.exchange($1, $2, $3, $4::text::json, $5, '{}', '{}', '{}', '{}')",
            &[&worker.executor, &ids, &fences, &notes, &leases],
        )
        .await
        .unwrap();
    (row.get(0), row.get::<_, Option<Vec<i64>>>(1).unwrap_or_default())
}

fn note(task: &Task, status: &str) -> Value {
    json!({ "task": task.id, "fence": task.fence, "status": status, "message": "half a pair: \u{0}" })
}

async fn leases(db: &Db) -> i64 {
    db.one("select count(*) from tuskline.lease").await
}

#[tokio::test]
async fn one_locked_row_of_500_delays_itself_for_exchange() {
    let db = Db::with_lambda("work").await;
    db.schedule_many("work", 500).await;
    let worker = db.worker("work").await;
    let tasks = worker.claim(500).await;
    let holder = lock(&db, &[&tasks[123]]).await;
    let locked = vec![tasks[123].id];
    assert_eq!(exchange(&worker, &tasks, None).await, (vec![], locked.clone()));
    assert_eq!((db.count("success").await, db.count("claimed").await), (499, 1));
    assert_eq!(leases(&db).await, 1, "or the last one would not be rescued");
    assert_eq!(exchange(&worker, &tasks[123..124], None).await, (vec![], locked));
    holder.batch_execute("rollback").await.unwrap();
    assert_eq!(exchange(&worker, &tasks[123..124], None).await, (vec![], vec![]));
    assert_eq!((db.count("success").await, leases(&db).await), (500, 0));
}

#[tokio::test]
async fn results_with_something_to_say_are_held_back_too() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    db.schedule_many("work", 6).await;
    let tasks = worker.claim(6).await;
    let holder = lock(&db, &[&tasks[0], &tasks[2], &tasks[5]]).await;
    let plain = &tasks[..2];
    let notes = [
        note(&tasks[2], "retriable_failure"),
        note(&tasks[3], "retriable_failure"),
        note(&tasks[4], "fatal_failure"),
        note(&tasks[5], "cancelled"),
    ];
    let held = vec![tasks[0].id, tasks[2].id, tasks[5].id];
    assert_eq!(exchange(&worker, plain, Some(json!(notes))).await, (vec![], held));
    let statuses = "select status::text from tuskline.task order by id";
    let expected =
        ["claimed", "success", "claimed", "retriable_failure", "fatal_failure", "claimed"];
    assert_eq!(db.all::<String>(statuses).await, expected);
    assert_eq!(leases(&db).await, 1);
    // The exchange has only notes, and all their rows are locked.
    let rest = [notes[0].clone(), notes[3].clone()];
    let (_, held) = exchange(&worker, &[], Some(json!(rest))).await;
    assert_eq!(held, [tasks[2].id, tasks[5].id]);
    holder.batch_execute("rollback").await.unwrap();
    assert_eq!(exchange(&worker, &plain[..1], Some(json!(rest))).await, (vec![], vec![]));
    let expected = [
        "success",
        "success",
        "retriable_failure",
        "retriable_failure",
        "fatal_failure",
        "cancelled",
    ];
    assert_eq!(db.all::<String>(statuses).await, expected);
    assert_eq!(leases(&db).await, 0);
}

#[tokio::test]
async fn a_result_that_is_refused_anyway_is_not_held_back() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    db.schedule_many("work", 3).await;
    let tasks = worker.claim(3).await;
    assert!(worker.release(&tasks[0]).await);
    let other = db.worker("work").await;
    assert_eq!(other.take().await.id, tasks[0].id);
    assert_eq!(worker.succeed(&tasks[1]).await, Answer::Accepted);
    let _holder = lock(&db, &[&tasks[0], &tasks[1], &tasks[2]]).await;
    let refused = vec![tasks[0].id];
    assert_eq!(exchange(&worker, &tasks, None).await, (refused, vec![tasks[2].id]));
}

#[tokio::test]
async fn set_results_waits_for_a_locked_row() {
    let db = Db::with_lambda("work").await;
    db.schedule("work").await;
    let worker = db.worker("work").await;
    let task = worker.take().await;
    let holder = lock(&db, &[&task]).await;
    let pid: i32 = worker.client.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let release = async {
        // The lock outlasts the lock timeout of exchange.
        db.until_blocked(pid).await;
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        holder.batch_execute("rollback").await.unwrap();
    };
    let (answer, ()) = tokio::join!(worker.succeed(&task), release);
    assert_eq!(answer, Answer::Accepted);
}

/// The released and the deferred tasks of a release.
async fn release(worker: &ScriptedWorker, tasks: &[Task]) -> (Vec<i64>, Vec<i64>) {
    let (ids, fences) = ids_and_fences(tasks);
    let sql = "select released, deferred from tuskline.release($1, $2, $3, array[$4::bigint])";
    let row = worker.client.query_one(sql, &[&worker.executor, &ids, &fences, &fences[0]]).await;
    let row = row.unwrap();
    (row.get(0), row.get(1))
}

#[tokio::test]
async fn one_locked_row_delays_itself_for_release() {
    let db = Db::with_lambda("work").await;
    let ids = db.schedule_many("work", 3).await;
    let worker = db.worker("work").await;
    let tasks = worker.claim(3).await;
    let holder = lock(&db, &[&tasks[1]]).await;
    assert_eq!(release(&worker, &tasks).await, (vec![ids[0], ids[2]], vec![ids[1]]));
    assert_eq!((db.queued().await, db.status(ids[1]).await.as_str()), (2, "claimed"));
    assert_eq!(leases(&db).await, 1);
    holder.batch_execute("rollback").await.unwrap();
    assert_eq!(release(&worker, &tasks[1..2]).await, (vec![ids[1]], vec![]));
    assert_eq!((db.queued().await, leases(&db).await), (3, 0));
}

#[tokio::test]
async fn one_locked_row_delays_itself_for_start() {
    let db = Db::with_lambda("work").await;
    let ids = db.schedule_many("work", 3).await;
    let worker = db.worker("work").await;
    let tasks = worker.claim(3).await;
    let (all, fences) = ids_and_fences(&tasks);
    let holder = lock(&db, &[&tasks[1]]).await;
    let start = "select tuskline.start($1, $2, $3)";
    let row = worker.client.query_one(start, &[&worker.executor, &all, &fences]).await.unwrap();
    assert_eq!(row.get::<_, Vec<i64>>(0), [ids[0], ids[2]]);
    holder.batch_execute("rollback").await.unwrap();
    assert!(worker.start(&tasks[1]).await);
}

#[tokio::test]
async fn asking_for_a_notification_waits_for_no_session_that_sends_one() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let id = db.schedule("work").await;
    let asks = format!("select tuskline.await_end({id})");
    db.run(&asks).await;
    let task = worker.take().await;
    worker.client.batch_execute("begin").await.unwrap();
    worker.succeed(&task).await;
    let other = db.connect().await;
    other.batch_execute("set lock_timeout = '100ms'").await.unwrap();
    other.batch_execute(&asks).await.unwrap();
    worker.client.batch_execute("rollback").await.unwrap();
    assert_eq!(db.one::<i64>("select count(*) from tuskline_core.awaited").await, 1);
}

/// Makes a lambda with one permit: a task holds it, and another waits for it.
async fn one_place(db: &Db, settings: &str) -> (ScriptedWorker, i64) {
    db.define_with("work", settings).await;
    let rule: i64 = db.one("select tuskline.set_limit('work', 1)").await;
    db.schedule_many("work", 2).await;
    db.enqueue_due().await;
    (db.worker("work").await, rule)
}

async fn drop_and_wait(db: &Db, rule: i64) -> Client {
    let owner = db.connect().await;
    owner.batch_execute(&format!("begin; select tuskline.drop_limit({rule})")).await.unwrap();
    owner
}

#[tokio::test]
async fn a_limit_that_its_owner_drops_and_has_not_yet_holds_up_no_result() {
    let db = Db::new().await;
    db.pin().await;
    let (worker, rule) = one_place(&db, "p_max_attempts => 2").await;
    let mut tasks = worker.claim(2).await;
    db.define("other").await;
    db.schedule("other").await;
    let other = db.worker("other").await;
    assert_eq!(tasks.len(), 1);
    let owner = drop_and_wait(&db, rule).await;
    assert_eq!(exchange(&worker, &tasks, None).await, (vec![], vec![]));
    assert_eq!(db.status(tasks[0].id).await, "success");
    assert_eq!(other.claim(1).await.len(), 1);
    // The owner's transaction, which blocks the permit, rolls back.
    owner.batch_execute("rollback").await.unwrap();
    db.advance(std::time::Duration::from_secs(1)).await;
    while db.enqueue_due().await > 0 {}
    tasks = worker.claim(2).await;
    assert_eq!(tasks.len(), 1, "the place went to the next");
    // The same holds for a task that will be retried: it has no permit while it waits.
    let owner = drop_and_wait(&db, rule).await;
    let failed = json!([note(&tasks[0], "retriable_failure")]);
    assert_eq!(exchange(&worker, &[], Some(failed)).await, (vec![], vec![]));
    owner.batch_execute("rollback").await.unwrap();
    db.advance(std::time::Duration::from_millis(300)).await;
    while db.enqueue_due().await > 0 {}
    assert_eq!(db.one::<i64>("select count(*) from tuskline.permit").await, 0);
    assert_eq!(db.status(tasks[0].id).await, "retriable_failure");
}

#[tokio::test]
async fn a_limit_that_its_owner_drops_and_has_not_yet_holds_up_no_rescue() {
    let db = Db::new().await;
    db.pin().await;
    let (worker, rule) = one_place(&db, "p_max_crashes => 1").await;
    let task = worker.take().await;
    let owner = drop_and_wait(&db, rule).await;
    db.advance(crate::support::LEASE).await;
    assert_eq!(db.rescue().await, (1, 0, 1));
    assert_eq!(db.status(task.id).await, "dead");
    owner.batch_execute("rollback").await.unwrap();
    db.advance(std::time::Duration::from_secs(1)).await;
    while db.enqueue_due().await > 0 {}
    assert_eq!(db.worker("work").await.claim(2).await.len(), 1);
}

#[tokio::test]
async fn a_locked_wait_list_holds_up_no_result() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.run("select tuskline.set_order('work', p_on_failure => 'dead')").await;
    let sql = "select tuskline.schedule('work', p_ordering_key => 'a')";
    let (first, second): (i64, i64) = (db.one(sql).await, db.one(sql).await);
    db.enqueue_due().await;
    let worker = db.worker("work").await;
    let task = worker.take().await;
    assert_eq!(task.id, first);
    let owner = db.connect().await;
    let cancels = format!("begin; select tuskline.cancel({second})");
    owner.batch_execute(&cancels).await.unwrap();
    let failed = json!([note(&task, "fatal_failure")]);
    assert_eq!(exchange(&worker, &[], Some(failed)).await, (vec![], vec![]));
    assert_eq!(db.status(first).await, "fatal_failure");
    owner.batch_execute("rollback").await.unwrap();
    db.advance(std::time::Duration::from_secs(1)).await;
    db.enqueue_due().await;
    assert_eq!(db.status(second).await, "dead");
}

/// A migration locks each view until its end, and takes the guards last. A transaction that holds a
/// guard and then reads a view would deadlock with it. (rebuild_queues reads verified_incarnation
/// before.)
#[tokio::test]
async fn a_call_that_takes_a_guard_reads_no_view() {
    let db = Db::with_lambda("work").await;
    let migration = db.connect().await;
    let views =
        "select string_agg(format('alter view %s reset (security_barrier)', oid::regclass), '; ')
                   from pg_class where relkind = 'v' and relname <> 'verified_incarnation'
                    and relnamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace)";
    let lock: String = db.one(views).await;
    migration.batch_execute(&format!("begin; {lock}")).await.unwrap();
    for call in [
        "add_segments()",
        "roll_segments('1 hour')",
        "rebuild_queues()",
        "define_lambda('late')",
        "repair()",
    ] {
        let sql = format!("set lock_timeout = '1 s'; select tuskline.{call}");
        let ran = db.client.batch_execute(&sql).await;
        assert!(ran.is_ok(), "{call}: {:?}", ran.unwrap_err().as_db_error());
    }
    migration.batch_execute("rollback").await.unwrap();
}

/// A renewal of the functions replaces the view verified_incarnation first, and tasks later.
#[tokio::test]
async fn an_exchange_and_a_renewal_lock_views_in_one_order() {
    let db = Db::with_lambda("work").await;
    db.run("select tuskline.set_limit('work', 1)").await;
    db.schedule_many("work", 2).await;
    db.enqueue_due().await;
    let worker = db.worker("work").await;
    let task = worker.take().await;
    let renewal = db.connect().await;
    let lock = |view: &str| format!("alter view {view} reset (security_barrier)");
    let first = lock("tuskline_core.verified_incarnation");
    renewal.batch_execute(&format!("set lock_timeout = '100 ms'; begin; {first}")).await.unwrap();
    let pid: i32 = worker.client.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let sql = format!(
        "select tuskline.exchange({}, '{{{}}}', '{{{}}}', null, null, '{{}}', '{{}}', '{{}}', '{{}}')",
        worker.executor, task.id, task.fence
    );
    let (renewed, exchanged) = tokio::join!(
        async {
            db.until_blocked(pid).await;
            renewal.batch_execute(&lock("tuskline.tasks")).await
        },
        worker.client.batch_execute(&sql),
    );
    assert!(renewed.is_ok(), "the exchange holds tasks: {:?}", renewed.unwrap_err().as_db_error());
    // It waits for 200 ms, and the worker repeats it.
    assert_eq!(exchanged.unwrap_err().code().unwrap().code(), "55P03");
    renewal.batch_execute("rollback").await.unwrap();
    worker.client.batch_execute(&sql).await.unwrap();
    assert_eq!(db.status(task.id).await, "success");
}
