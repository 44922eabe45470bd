//! A worker's number: whether a database still knows it, and how a worker gets the next number.

use crate::support::{Db, ScriptedWorker};

/// The columns `alive` and `past` of a heartbeat that reports how many earlier beats were
/// acknowledged.
async fn beat(db: &Db, executor: i64, acknowledged: Option<i64>) -> String {
    let sql = "select concat_ws(' ', alive, past) from tuskline.heartbeat($1, false, false, $2)";
    db.ask(sql, &[&executor, &acknowledged]).await
}

async fn register(db: &Db, host: &str, pid: i32, former: Option<i64>) -> i64 {
    let sql = "select tuskline.register_executor($1, $2, '{work}', '0', '20 s', 'default', 6, $3)";
    db.ask(sql, &[&host, &pid, &former]).await
}

async fn reason(db: &Db, executor: i64) -> Option<String> {
    let sql = "select end_reason from tuskline.executor where executor_id = $1";
    db.ask(sql, &[&executor]).await
}

/// Declares all numbers issued so far to be of an earlier life of the database.
async fn begin_a_life(db: &Db) {
    let first = "select 1 + greatest(4711, max(executor_id)) from tuskline.executor";
    db.run(&format!("update tuskline_core.incarnation set first_executor = ({first})")).await;
}

#[tokio::test]
async fn a_row_that_knows_fewer_heartbeats_is_of_the_past() {
    let db = Db::with_lambda("work").await;
    let executor = db.worker("work").await.executor;
    assert_eq!(beat(&db, executor, Some(0)).await, "t f");
    // The answer to the first was lost: the row may know more.
    assert_eq!(beat(&db, executor, Some(0)).await, "t f");
    assert_eq!(beat(&db, executor, Some(2)).await, "t f");
    begin_a_life(&db).await;
    assert_eq!(beat(&db, executor, Some(4)).await, "f t");
    let beats: i64 = db.one("select beats from tuskline.executor").await;
    assert_eq!(beats, 3, "a beat of another past is not counted");
    assert_eq!(beat(&db, 4711, Some(0)).await, "f t", "registered after the copy was made");
    assert_eq!(beat(&db, 4711, None).await, "f f", "nothing was said of the past");
}

#[tokio::test]
async fn a_worker_that_was_ended_is_not_of_the_past() {
    let db = Db::with_lambda("work").await;
    let executor = db.worker("work").await.executor;
    assert_eq!(beat(&db, executor, Some(0)).await, "t f");
    db.run(&format!("select tuskline.end_executor({executor})")).await;
    assert_eq!(beat(&db, executor, Some(1)).await, "f f");
    begin_a_life(&db).await;
    assert_eq!(beat(&db, executor, Some(1)).await, "f f", "the row knows all its heartbeats");
    assert_eq!(beat(&db, executor, Some(2)).await, "f t");
}

#[tokio::test]
async fn tasks_of_a_former_number_wait_for_no_lease() {
    let db = Db::with_lambda("work").await;
    let former = register(&db, "host", 7, None).await;
    let worker = ScriptedWorker { executor: former, ..db.worker("work").await };
    let id = db.schedule("work").await;
    assert_eq!(worker.take().await.id, id);
    let next = register(&db, "host", 7, Some(former)).await;
    assert_eq!(reason(&db, former).await.as_deref(), Some("replaced"));
    assert_eq!(reason(&db, next).await, None);
    let late = worker.claim_by(&worker.client, 1, 0).await.unwrap();
    assert!(!late.get::<_, bool>("alive"), "a claim that was under way comes too late");
    db.run("select tuskline.rescue()").await;
    assert_eq!(db.status(id).await, "enqueued");
}

#[tokio::test]
async fn only_the_same_process_ends_a_former_number() {
    let db = Db::with_lambda("work").await;
    let other = register(&db, "host", 7, None).await;
    // A restored copy gave our number to another worker.
    register(&db, "host", 8, Some(other)).await;
    register(&db, "elsewhere", 7, Some(other)).await;
    assert_eq!(reason(&db, other).await, None);
    assert_eq!(beat(&db, other, Some(0)).await, "t f");
    register(&db, "host", 7, Some(4711)).await;
    let alive: i64 = db.one("select count(*) from tuskline_core.live_executor").await;
    assert_eq!(alive, 4);
}

#[tokio::test]
async fn connections_out_of_range_are_refused() {
    let db = Db::with_lambda("work").await;
    for connections in ["0", "-1", "10001"] {
        let sql = "select tuskline.register_executor('h', 1, '{work}', '0', '20 s', 'default', %)";
        let said = db.refused(&sql.replace('%', connections)).await;
        let text = format!("invalid_setting: connections must be 1 to 10000, got {connections}");
        assert!(said.contains("TK009") && said.contains(&text), "{said}");
    }
}

#[tokio::test]
async fn a_lease_is_at_most_the_setting_of_the_installation() {
    let db = Db::with_lambda("work").await;
    let register = |lease: &str| {
        format!("select tuskline.register_executor('h', 1, '{{work}}', '0', '{lease}')")
    };
    let said = db.refused(&register("1 hour 1 second")).await;
    assert!(said.starts_with("TK010: TK010 invalid_lease: must be 100 ms to 01:00:00"), "{said}");
    db.run(&register("1 hour")).await;
    let before: String = db.one("select tuskline.set_max_lease('5 minutes')::text").await;
    assert_eq!(before, "01:00:00");
    let said = db.refused(&register("5 minutes 1 second")).await;
    assert!(said.starts_with("TK010: TK010 invalid_lease: must be 100 ms to 00:05:00"), "{said}");
    db.run(&register("5 minutes")).await;
    let acts = "select detail from tuskline.audit where verb = 'set_max_lease'";
    assert_eq!(db.all::<String>(acts).await, ["00:05:00, was 01:00:00"]);
    for lease in ["null", "'0.9 seconds'", "'-5 minutes'", "'25 hours'", "'5 years'"] {
        let said = db.refused(&format!("select tuskline.set_max_lease({lease})")).await;
        let text = "TK010: TK010 invalid_lease: the longest lease must be 1 s to 1 day, got ";
        assert!(said.starts_with(text), "{lease}: {said}");
    }
}
