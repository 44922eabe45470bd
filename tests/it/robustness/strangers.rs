//! A login without any grant stops nothing: no lock that a verb waits for is one that it can take.

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::{Client, NoTls};
use tuskline::config::JanitorOptions;
use tuskline::janitor::{self, Marks};
use tuskline::session::{Deadlines, Session};
use tuskline::store::guard::Guarded;

use crate::support::cli::on;
use crate::support::{Db, Task, within};

/// Longest time that a verb may take while a stranger is at work.
const PATIENCE: Duration = Duration::from_secs(10);

const DAY: Duration = Duration::from_secs(86_400);

/// A session of a role without grants that holds every advisory lock with a number near ours.
async fn squat(db: &Db, kind: &str) -> Client {
    let name = format!("stranger_{}", db.one::<i32>("select pg_backend_pid()").await);
    db.run(&format!("create role {name} login")).await;
    let mut config = db.config.clone();
    config.user(&name);
    let (stranger, connection) = within(config.connect(NoTls)).await.unwrap();
    tokio::spawn(connection);
    let squat = format!(
        "select pg_advisory_lock{kind}(class, key)
           from generate_series(1953854315, 1953854319) as class,
                (select generate_series(-10, 60) union all
                 select generate_series(67108864, 67108867)) as k (key)"
    );
    stranger.batch_execute(&squat).await.unwrap();
    stranger
}

/// Ends such a session and its role.
async fn expel(db: &Db, stranger: Client) {
    let pid: i32 = stranger.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    drop(stranger);
    db.until(&format!("select not exists (select from pg_stat_activity where pid = {pid})")).await;
    db.run(&format!("drop role stranger_{}", db.one::<i32>("select pg_backend_pid()").await)).await;
}

/// Does `verb` with a deadline, once for each kind of lock.
async fn beside_a_squatter(db: &Db, verb: &str) {
    for kind in ["", "_shared"] {
        let stranger = squat(db, kind).await;
        let done = timeout(PATIENCE, db.client.batch_execute(verb)).await;
        assert!(matches!(done, Ok(Ok(()))), "pg_advisory_lock{kind}: {verb}: {done:?}");
        expel(db, stranger).await;
    }
}

#[tokio::test]
async fn limited_tasks_run_one_after_the_other() {
    for kind in ["", "_shared"] {
        let db = Db::with_lambda("work").await;
        db.run("select tuskline.set_limit('work', 1)").await;
        let _stranger = squat(&db, kind).await;
        let ids = db.schedule_many("work", 3).await;
        let worker = db.worker("work").await;
        let mut done = Vec::new();
        let working = async {
            while done.len() < 3 {
                db.enqueue_due().await;
                let held: Vec<Task> = worker.claim(10).await;
                assert!(held.len() <= 1);
                worker.succeed_all(&held).await;
                done.extend(held.iter().map(|task| task.id));
            }
        };
        let ran = timeout(PATIENCE, working).await;
        assert!(ran.is_ok(), "pg_advisory_lock{kind}: {done:?} of {ids:?} ran");
        assert_eq!(done, ids);
    }
}

#[tokio::test]
async fn limits_are_set_and_dropped() {
    let db = Db::with_lambda("work").await;
    beside_a_squatter(
        &db,
        "select tuskline.set_limit('work', 1);
         select tuskline.schedule('work');
         select tuskline.drop_limit((select max(limit_id) from tuskline.task_limit))",
    )
    .await;
    // The tasks that waited for the limit go on, and its row goes.
    let _stranger = squat(&db, "_shared").await;
    db.until(
        "select moved >= 0 and not exists (select from tuskline.task_limit) from tuskline.run_policies()",
    )
    .await;
}

#[tokio::test]
async fn lambdas_and_segments_are_made() {
    let db = Db::new().await;
    beside_a_squatter(
        &db,
        "select tuskline.define_lambda('work_' || (select count(*) from tuskline.lambda));
         select tuskline.add_segments(9 + (select count(*) from tuskline.lambda)::integer);
         select tuskline.roll_segments('0');
         select tuskline_core.make_leaf_verbs()",
    )
    .await;
    assert_eq!(db.one::<i64>("select count(*) from tuskline.lambda").await, 2);
}

#[tokio::test]
async fn the_queues_are_rebuilt() {
    let db = Db::with_lambda("work").await;
    db.schedule("work").await;
    let rebuild = "truncate tuskline_core.queues_complete; select tuskline.rebuild_queues()";
    beside_a_squatter(&db, rebuild).await;
    assert_eq!(db.queued().await, 1);
}

#[tokio::test]
async fn gates_open_when_their_time_is_over() {
    for kind in ["", "_shared"] {
        let db = Db::with_lambda("work").await;
        db.pin().await;
        db.run("select tuskline.gate('work', 'pause', p_reason => 'no', p_for => '1 minute')")
            .await;
        db.advance(DAY).await;
        let _stranger = squat(&db, kind).await;
        db.run("select tuskline.run_policies(); select tuskline.run_policies()").await;
        assert_eq!(db.one::<i64>("select count(*) from tuskline.gate").await, 0, "{kind}");
    }
}

#[tokio::test]
async fn a_database_is_migrated() {
    for kind in ["", "_shared"] {
        let db = Db::new().await;
        db.run("update tuskline_core.stamp set digest = 'another'").await;
        let _stranger = squat(&db, kind).await;
        let migrated = timeout(3 * PATIENCE, tuskline::migrate::migrate(&db.config)).await;
        assert!(matches!(migrated, Ok(Ok(_))), "pg_advisory_lock{kind}: {migrated:?}");
    }
}

#[tokio::test]
async fn a_task_is_retried_and_its_segment_retired() {
    for kind in ["", "_shared"] {
        let db = Db::with_lambda("work").await;
        db.pin().await;
        db.run("select tuskline.roll_segments()").await;
        let worker = db.worker("work").await;
        db.schedule_many("work", 2).await;
        let [done, failed] = worker.claim(2).await.try_into().unwrap();
        worker.succeed(&done).await;
        worker.fail_for_good(&failed).await;
        db.advance(8 * DAY).await;
        db.run("select tuskline.roll_segments()").await;
        let _stranger = squat(&db, kind).await;

        let session = Session::open(&db.config, "test", Deadlines::PATIENT).await.unwrap();
        let mut marks = Marks::default();
        let options = JanitorOptions::default();
        let round = timeout(PATIENCE, janitor::round(&session, &options, &mut marks)).await;
        assert!(matches!(round, Ok(Ok(()))), "pg_advisory_lock{kind}: {round:?}");
        let kept: i64 = db.one("select id from tuskline.task_kept").await;
        assert_eq!(kept, failed.id, "pg_advisory_lock{kind}: the segment was retired");

        let retry = format!("select tuskline.retry({kept})");
        assert_eq!(db.one::<String>(&retry).await, "retried", "pg_advisory_lock{kind}");
    }
}

#[tokio::test]
async fn a_lock_that_is_waited_for_has_a_name() {
    let db = Db::with_lambda("work").await;
    db.run("select tuskline.set_limit('work', 1)").await;
    let ids = db.schedule_many("work", 2).await;
    db.enqueue_due().await;
    let holder = db.connect().await;
    holder
        .batch_execute(
            "set application_name = 'keeper'; begin;
             select from tuskline.task_limit for no key update;
             lock table tuskline_core.segment_guard in share row exclusive mode;
             lock table tuskline_core.migration_guard in share row exclusive mode",
        )
        .await
        .unwrap();
    let pid: i32 = holder.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let name = format!("pid {pid} (role ");
    let waits = db.connect().await;
    let waiting =
        tokio::spawn(async move { waits.batch_execute("select tuskline.add_segments()").await });
    let explained = format!(
        "select detail like '%; held up by {name}%keeper%' from tuskline.explain({})",
        ids[1]
    );
    db.until(&explained).await;

    let found = loop {
        let found = on(&db.config, "doctor").run().out;
        if found.contains("has waited") {
            break found;
        }
    };
    assert!(
        found.contains(&format!("has waited for {name}")) && found.contains("keeper"),
        "{found}"
    );
    let refused = waiting.await.unwrap().unwrap_err();
    let refused = crate::support::refusal(&refused);
    assert!(refused.starts_with("55P03: guard_held: ") && refused.contains(&name), "{refused}");

    let client = db.connect().await;
    let holders =
        tuskline::store::guard::holders(&client, Guarded::Migration).await.unwrap().unwrap();
    assert!(holders.starts_with(&format!("pid {pid}, role ")), "{holders}");
    let users = tuskline::store::guard::users(&client).await.unwrap().unwrap();
    assert!(users.contains(&format!("pid {pid}, role ")) && users.contains("keeper"), "{users}");
}

#[tokio::test]
async fn doctor_names_a_stranger_that_holds_a_watch_lock() {
    let db = Db::with_lambda("work").await;
    for (kind, cost) in
        [("", "each insert into them sends a notification"), ("_shared", "workers poll")]
    {
        let stranger = squat(&db, kind).await;
        let pid: i32 = stranger.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
        let found = on(&db.config, "doctor").run().out;
        let line = found.lines().find(|line| line.contains("watch locks")).unwrap();
        assert!(line.contains("warn") && line.contains(&format!("pid {pid} ")), "{found}");
        assert!(line.contains(cost) && line.contains("work/"), "{line}");
        expel(&db, stranger).await;
    }
    let found = on(&db.config, "doctor").run().out;
    assert!(found.contains("held by Tuskline's sessions only"), "{found}");
}
