//! Many sessions do everything at once: nothing deadlocks, no task has two holders, none is lost.

use std::cell::RefCell;
use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::join_all;

use crate::support::{Db, ScriptedWorker, Task, ids_and_fences, refusal, within};

const TASKS: i32 = 600;

/// The attempts that workers hold now, as the workers see them.
#[derive(Default)]
struct Held {
    now: HashSet<i64>,
    fences: HashSet<(i64, i64)>,
}

impl Held {
    fn take(&mut self, task: &Task) {
        assert!(self.now.insert(task.id), "task {} has two holders", task.id);
        assert!(
            self.fences.insert((task.id, task.fence)),
            "task {} ran twice under a fence",
            task.id
        );
    }

    /// Before the result is sent: after that the task may be another's.
    fn leave(&mut self, tasks: &[Task]) {
        tasks.iter().for_each(|task| _ = self.now.remove(&task.id));
    }
}

/// Claims, and has every fifth task fail and every seventh given back, until all tasks have ended.
async fn work(db: &Db, worker: &ScriptedWorker, held: &RefCell<Held>) {
    loop {
        let tasks = worker.claim(17).await;
        if tasks.is_empty() && ended(worker).await {
            return;
        }
        tasks.iter().for_each(|task| held.borrow_mut().take(task));
        let (back, rest): (Vec<_>, Vec<_>) =
            tasks.into_iter().partition(|task| task.fence % 7 == 0);
        let (failed, good): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|task| task.id % 5 == 0 && task.attempt == 1);
        for batch in [&back, &failed, &good] {
            held.borrow_mut().leave(batch);
        }
        // In an order of their own: the verbs sort.
        let (mut ids, mut fences) = ids_and_fences(&good);
        ids.reverse();
        fences.reverse();
        let notes: Vec<_> = failed
            .iter()
            .map(|task| {
                format!(
                    r#"{{"task": {}, "fence": {}, "status": "retriable_failure", "after_ms": 0}}"#,
                    task.id, task.fence
                )
            })
            .collect();
        let notes = format!("[{}]", notes.join(","));
        let said = worker
            .client
            .execute(
                "select tuskline.set_results($1, $2, $3, $4::text::json)",
                &[&worker.executor, &ids, &fences, &notes],
            )
            .await;
        said.unwrap_or_else(|error| panic!("set_results: {}", refusal(&error)));
        let (ids, fences) = ids_and_fences(&back);
        let said = worker
            .client
            .execute("select tuskline.release($1, $2, $3)", &[&worker.executor, &ids, &fences])
            .await;
        said.unwrap_or_else(|error| panic!("release: {}", refusal(&error)));
        let _ = db;
    }
}

async fn ended(worker: &ScriptedWorker) -> bool {
    let open = "select not exists (select from tuskline.task where status in ('new', 'enqueued', 'claimed', 'processing', 'retriable_failure'))
        and (select count(*) from tuskline.task) = $1";
    worker.client.query_one(open, &[&i64::from(TASKS)]).await.unwrap().get(0)
}

/// Schedules the tasks in batches that the acts of the other sessions meet half-way.
async fn schedule(db: &Db) {
    let session = db.connect().await;
    for _ in 0..TASKS / 50 {
        let sql = "select tuskline.schedule_many(array_fill('work'::text, array[50]), p_delays => array(select n % 3 * interval '1 ms' from generate_series(1, 50) n))";
        session.execute(sql, &[]).await.unwrap();
    }
}

/// Cancels every eleventh task, whatever it is doing.
async fn cancel(db: &Db) {
    let session = db.connect().await;
    for round in 0..5 {
        let ids = session
            .query("select id from tuskline.task where id % 11 = 0 order by id desc", &[])
            .await
            .unwrap();
        for id in ids.iter().skip(round).step_by(5) {
            let said = session.execute("select tuskline.cancel($1)", &[&id.get::<_, i64>(0)]).await;
            said.unwrap_or_else(|error| panic!("cancel: {}", refusal(&error)));
        }
    }
}

/// Goes on until no timer is left: a task that was locked for 100 ms has its timer postponed, and a
/// cancel does not find that timer.
async fn consume_store(db: &Db, worker: &ScriptedWorker) {
    let session = db.connect().await;
    while !ended(worker).await || db.timers().await > 0 {
        for verb in ["select tuskline.enqueue_due(null, 20)", "select tuskline.rescue()"] {
            let said = session.execute(verb, &[]).await;
            said.unwrap_or_else(|error| panic!("{verb}: {}", refusal(&error)));
        }
    }
}

#[tokio::test]
async fn everything_at_once_ends_with_every_task_ended_once() {
    let db = Db::with_lambda("work").await;
    let workers =
        join_all((0..5).map(|_| db.worker_with(&["work"], Duration::from_secs(600)))).await;
    let held = RefCell::default();
    within(async {
        tokio::join!(
            schedule(&db),
            cancel(&db),
            consume_store(&db, &workers[0]),
            consume_store(&db, &workers[1]),
            join_all(workers.iter().map(|worker| work(&db, worker, &held))),
        )
    })
    .await;
    let left: i64 = db
        .one("select count(*) from tuskline.task where status not in ('success', 'cancelled')")
        .await;
    assert_eq!((left, db.timers().await, db.count("success").await > 0), (0, 0, true));
    assert!(held.borrow().now.is_empty());
    let deadlocks: i64 =
        db.one("select deadlocks from pg_stat_database where datname = current_database()").await;
    assert_eq!(deadlocks, 0);
}

#[tokio::test]
async fn batches_that_overlap_in_opposite_orders_do_not_deadlock() {
    let db = Db::with_lambda("work").await;
    db.schedule_many("work", 400).await;
    let worker = db.worker_with(&["work"], Duration::from_secs(600)).await;
    let (ids, fences) = ids_and_fences(&worker.claim(400).await);
    let sessions = join_all((0..6).map(|_| db.connect())).await;
    // A blocker holds a row in the middle until all sessions wait. Each session from one end then
    // holds rows that a session from the other end needs. `start` skips locked rows. `release`
    // would skip them after its lock timeout, which may end too early, so the test removes it.
    db.run("alter function tuskline.release reset lock_timeout").await;
    let blocker = db.connect().await;
    let middle = ids[200];
    blocker
        .batch_execute(&format!("begin; select from tuskline.task where id = {middle} for update"))
        .await
        .unwrap();
    let calls = sessions.iter().enumerate().map(|(number, session)| {
        let (mut ids, mut fences) = (ids.clone(), fences.clone());
        if number % 2 == 1 {
            ids.reverse();
            fences.reverse();
        }
        async move {
            let verbs = ["start", "set_results", "release"];
            let sql = format!("select tuskline.{}(1, $1, $2)", verbs[number / 2]);
            session.execute(&sql, &[&ids, &fences]).await.map_err(|error| refusal(&error))
        }
    });
    let let_go = async {
        db.until(
            "select count(*) = 4 from pg_stat_activity
              where datname = current_database() and wait_event_type = 'Lock'",
        )
        .await;
        blocker.batch_execute("commit").await.unwrap();
    };
    let (said, ()) = within(async { tokio::join!(join_all(calls), let_go) }).await;
    let said: Result<Vec<_>, _> = said.into_iter().collect();
    said.unwrap();
}
