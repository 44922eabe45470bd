//! The first task of a unique key holds the key. The key is checked once, when a task is scheduled.

use std::time::Duration;

use crate::support::{Db, ScriptedWorker, Task};

const STATUSES: [&str; 6] = ["new", "enqueued", "claimed", "processing", "retriable", "terminal"];

async fn unique(scope: &str, outcome: &str) -> (Db, ScriptedWorker) {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    set(&db, scope, outcome).await;
    let worker = db.worker("work").await;
    (db, worker)
}

async fn set(db: &Db, scope: &str, outcome: &str) {
    let period = if scope == "period" { "'1 hour'" } else { "null" };
    db.run(&format!("select tuskline.set_unique('work', '{scope}', '{outcome}', {period})")).await;
}

async fn of_key(db: &Db, key: &str) -> i64 {
    db.ask("select tuskline.schedule('work', '1', p_unique_key => $1)", &[&key]).await
}

/// The holder of key `a`, brought to a status.
async fn stage(db: &Db, worker: &ScriptedWorker, status: &str) -> i64 {
    if status == "new" {
        let sql =
            "select tuskline.schedule('work', '1', p_unique_key => 'a', p_delay => '1 minute')";
        return db.one(sql).await;
    }
    let id = of_key(db, "a").await;
    if status == "enqueued" {
        return id;
    }
    let task: Task = worker.take().await;
    match status {
        "processing" => assert!(worker.start(&task).await),
        "retriable" => _ = worker.fail(&task).await,
        "terminal" => _ = worker.succeed(&task).await,
        _ => {}
    }
    id
}

/// The outcome of a second call with the same key.
async fn second(db: &Db, first: i64) -> String {
    let sql = "select tuskline.schedule('work', '2', p_unique_key => 'a', p_delay => '2 minutes')";
    let answer = match db.client.query_one(sql, &[]).await {
        Err(error) => {
            assert_eq!(error.code().unwrap().code(), "TK027");
            return "refused".to_owned();
        }
        Ok(row) => row.get::<_, i64>(0),
    };
    if answer != first {
        return "another".to_owned();
    }
    let shown: String = db
        .ask(
            "select concat_ws(',', case when payload::text = '2' then 'payload' end,
                    case when due_at = tuskline.clock() + interval '2 minutes' then 'due' end)
               from tuskline.tasks where id = $1",
            &[&first],
        )
        .await;
    match shown.as_str() {
        "" => "first".to_owned(),
        "payload" => "its payload".to_owned(),
        "due" => "its due".to_owned(),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn what_a_second_call_comes_to_is_what_the_table_says() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let line = |cells: &[String]| {
        let cells: Vec<_> = cells.iter().map(|cell| format!("{cell:<11}")).collect();
        format!("| {} |", cells.join(" | "))
    };
    let mut lines = vec![line(
        &["scope", "outcome"].into_iter().chain(STATUSES).map(str::to_owned).collect::<Vec<_>>(),
    )];
    lines.push(line(&vec!["-----------".to_owned(); 8]));
    for scope in ["queued", "running", "period", "forever"] {
        for outcome in ["keep", "replace", "postpone", "reject"] {
            let mut cells = vec![scope.to_owned(), outcome.to_owned()];
            for status in STATUSES {
                db.empty().await;
                set(&db, scope, outcome).await;
                let worker = db.worker("work").await;
                let first = stage(&db, &worker, status).await;
                cells.push(second(&db, first).await);
            }
            lines.push(line(&cells));
        }
    }
    insta::assert_snapshot!("unique_keys", lines.join("\n"));
}

#[test]
fn the_page_shows_the_table_of_the_snapshot() {
    let snapshot = include_str!("snapshots/it__control__unique_keys__unique_keys.snap");
    let table = snapshot.splitn(3, "---\n").nth(2).unwrap().trim();
    let text = include_str!("../../../docs/unique-keys.md");
    let shown = text
        .split_once("<!-- unique keys -->")
        .and_then(|(_, rest)| rest.split_once("<!-- /unique keys -->"))
        .expect("docs/unique-keys.md has the marks");
    assert_eq!(shown.0.trim(), table, "docs/unique-keys.md: paste the table of the snapshot");
}

#[tokio::test]
async fn a_thousand_calls_at_the_same_time_make_one_task() {
    let (db, _worker) = unique("forever", "keep").await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let session = db.connect().await;
        calls.spawn(async move {
            let mut ids = Vec::new();
            for _ in 0..50 {
                let sql = "select tuskline.schedule('work', p_unique_key => 'a')";
                ids.push(session.query_one(sql, &[]).await.unwrap().get::<_, i64>(0));
            }
            ids
        });
    }
    let ids: Vec<i64> = calls.join_all().await.concat();
    assert_eq!(ids.len(), 1000);
    assert!(ids.iter().all(|id| *id == ids[0]));
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task").await, 1);
}

#[tokio::test]
async fn a_rival_that_has_not_committed_is_waited_for_and_may_roll_back() {
    let (db, _worker) = unique("running", "keep").await;
    for (end, same) in [("commit", true), ("rollback", false)] {
        let key = format!("key of {end}");
        let rival = db.connect().await;
        rival.batch_execute("begin").await.unwrap();
        let sql = "select tuskline.schedule('work', p_unique_key => $1)";
        let first: i64 = rival.query_one(sql, &[&key]).await.unwrap().get(0);
        let session = db.connect().await;
        let pid: i32 = session.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 1] = [&key];
        let call = session.query_one(sql, &params);
        let ends = async {
            db.until_blocked(pid).await;
            rival.batch_execute(end).await.unwrap();
        };
        let (row, ()) = tokio::join!(call, ends);
        let second: i64 = row.unwrap().get(0);
        assert_eq!(second == first, same, "{end}");
        assert_eq!(db.status(second).await, "enqueued");
    }
}

#[tokio::test]
async fn a_key_that_no_task_holds_any_more_is_taken_by_one_of_two() {
    let (db, worker) = unique("running", "keep").await;
    let ended = of_key(&db, "a").await;
    worker.succeed(&worker.take().await).await;
    let rival = db.connect().await;
    rival.batch_execute("begin").await.unwrap();
    let sql = "select tuskline.schedule('work', p_unique_key => 'a')";
    let first: i64 = rival.query_one(sql, &[]).await.unwrap().get(0);
    assert_ne!(first, ended);
    let session = db.connect().await;
    let pid: i32 = session.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let call = session.query_one(sql, &[]);
    let ends = async {
        db.until_blocked(pid).await;
        rival.batch_execute("commit").await.unwrap();
    };
    let (row, ()) = tokio::join!(call, ends);
    assert_eq!(row.unwrap().get::<_, i64>(0), first);
}

#[tokio::test]
async fn a_holder_that_waits_is_not_claimed_before_the_second_call_has_committed() {
    let (db, worker) = unique("queued", "keep").await;
    let first = of_key(&db, "a").await;
    let session = db.connect().await;
    session
        .batch_execute("begin; select tuskline.schedule('work', p_unique_key => 'a')")
        .await
        .unwrap();
    assert!(worker.claim(10).await.is_empty(), "it could not see yet what that transaction writes");
    session.batch_execute("commit").await.unwrap();
    assert_eq!(worker.take().await.id, first);
    let second = of_key(&db, "a").await;
    assert_ne!(second, first, "the first has begun");
}

#[tokio::test]
async fn a_postponed_task_runs_once_and_at_its_new_time() {
    let (db, worker) = unique("queued", "postpone").await;
    let sql = "select tuskline.schedule('work', p_unique_key => 'a', p_delay => '1 minute')";
    let first: i64 = db.one(sql).await;
    for _ in 0..3 {
        db.advance(Duration::from_secs(50)).await;
        assert_eq!(db.one::<i64>(sql).await, first);
        assert_eq!(db.enqueue_due().await, 0);
    }
    assert_eq!(db.timers().await, 1);
    db.advance(Duration::from_secs(60)).await;
    assert_eq!(db.enqueue_due().await, 1);
    assert_eq!(worker.take().await.id, first);
}

#[tokio::test]
async fn a_postponed_task_does_not_run_when_its_turn_under_a_rate_would_have_come() {
    let (db, worker) = unique("queued", "postpone").await;
    db.run("select tuskline.set_limit('work', p_per_second => 1, p_burst => 1)").await;
    db.schedule("work").await;
    db.enqueue_due().await;
    let first = of_key(&db, "a").await;
    db.enqueue_due().await;
    assert_eq!(worker.claim(9).await.len(), 1, "the other waits for its turn, a second from now");
    let later = "select tuskline.schedule('work', p_unique_key => 'a', p_delay => '1 hour')";
    assert_eq!(db.one::<i64>(later).await, first);
    for _ in 0..3 {
        db.advance(Duration::from_secs(2)).await;
        db.enqueue_due().await;
    }
    assert!(worker.claim(9).await.is_empty());
    let turns = "select count(*) from tuskline.permit where task_id = $1";
    assert_eq!(db.ask::<i64>(turns, &[&first]).await, 0, "it holds no permit");
    db.advance(Duration::from_secs(3600)).await;
    db.enqueue_due().await;
    assert_eq!(worker.take().await.id, first);
}

#[tokio::test]
async fn a_postponed_task_does_not_run_when_its_turn_in_an_order_would_have_come() {
    let (db, worker) = unique("queued", "postpone").await;
    db.run("select tuskline.set_order('work', 'block')").await;
    let ordered = "p_ordering_key => 'k'";
    db.run(&format!("select tuskline.schedule('work', {ordered})")).await;
    db.enqueue_due().await;
    let running = worker.take().await;
    let unique = format!("select tuskline.schedule('work', {ordered}, p_unique_key => 'a'");
    let later = format!("{unique}, p_delay => '1 hour')");
    let postponed: i64 = db.one(&format!("{unique})")).await;
    let behind: i64 = db.one(&format!("select tuskline.schedule('work', {ordered})")).await;
    db.enqueue_due().await;
    assert_eq!(db.one::<i64>(&later).await, postponed);
    worker.succeed(&running).await;
    db.advance(Duration::from_secs(1)).await;
    db.enqueue_due().await;
    let next = worker.take().await;
    assert_eq!(next.id, behind, "the other is as one that was scheduled for then");
    // The same holds if the task has a permit already.
    worker.succeed(&next).await;
    db.advance(Duration::from_secs(3600)).await;
    db.enqueue_due().await;
    assert_eq!(db.status(postponed).await, "enqueued");
    let behind: i64 = db.one(&format!("select tuskline.schedule('work', {ordered})")).await;
    assert_eq!(db.one::<i64>(&later).await, postponed);
    db.advance(Duration::from_secs(1)).await;
    db.enqueue_due().await;
    let next = worker.claim(9).await;
    assert_eq!(next.iter().map(|task| task.id).collect::<Vec<_>>(), [behind]);
    worker.succeed_all(&next).await;
    db.advance(Duration::from_secs(3600)).await;
    db.enqueue_due().await;
    assert_eq!(worker.take().await.id, postponed);
}

#[tokio::test]
async fn a_postponement_in_a_transaction_that_stays_open_holds_up_no_session() {
    let (db, worker) = unique("queued", "postpone").await;
    db.run("select tuskline.set_limit('work', 1)").await;
    let first = of_key(&db, "a").await;
    let second = db.schedule("work").await;
    db.enqueue_due().await;
    let service = db.connect().await;
    service
        .batch_execute(
            "begin; select tuskline.schedule('work', p_unique_key => 'a', p_delay => '1 hour')",
        )
        .await
        .unwrap();
    db.client
        .query("select from tuskline.task where id = $1 for update nowait", &[&second])
        .await
        .unwrap();
    service.batch_execute("commit").await.unwrap();
    db.advance(Duration::from_secs(1)).await;
    db.enqueue_due().await;
    let given: Vec<_> = worker.claim(9).await.iter().map(|task| task.id).collect();
    assert_eq!((given, db.status(first).await), (vec![second], "new".into()));
}

#[tokio::test]
async fn a_task_in_its_queue_is_postponed_too() {
    let (db, worker) = unique("queued", "postpone").await;
    let first = of_key(&db, "a").await;
    let sql = "select tuskline.schedule('work', p_unique_key => 'a', p_delay => '1 minute')";
    assert_eq!(db.one::<i64>(sql).await, first);
    assert!(worker.claim(10).await.is_empty());
    db.advance(Duration::from_secs(60)).await;
    db.enqueue_due().await;
    assert_eq!(worker.take().await.id, first);
}

#[tokio::test]
async fn a_key_of_a_period_is_free_after_it_and_one_for_ever_is_not() {
    let (db, worker) = unique("period", "keep").await;
    let first = of_key(&db, "a").await;
    worker.succeed(&worker.take().await).await;
    db.advance(Duration::from_secs(3599)).await;
    assert_eq!(of_key(&db, "a").await, first);
    db.advance(Duration::from_secs(1)).await;
    assert_ne!(of_key(&db, "a").await, first);
    set(&db, "forever", "keep").await;
    let first = of_key(&db, "b").await;
    db.run(&format!("delete from tuskline.task where id = {first}")).await;
    db.advance(Duration::from_secs(100_000_000)).await;
    assert_eq!(
        of_key(&db, "b").await,
        first,
        "the first call's id, also when nothing is left of it"
    );
}

#[tokio::test]
async fn a_batch_names_for_each_task_the_holder_of_its_key() {
    let (db, _worker) = unique("running", "keep").await;
    let held = of_key(&db, "a").await;
    let ids: Vec<i64> = db
        .one(
            "select tuskline.schedule_many(array['work', 'work', 'work', 'work'],
               p_unique_keys => array['b', 'a', 'b', null])",
        )
        .await;
    assert_eq!((ids[1], ids[0]), (held, ids[2]));
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task").await, 3);
    set(&db, "running", "reject").await;
    let said = db
        .refused("select tuskline.schedule_many(array['work', 'work'], p_unique_keys => array['c', 'c'])")
        .await;
    assert!(said.contains("TK027 duplicate: key 'c' of work comes twice (row 2 of 2)"), "{said}");
    let said = db
        .refused("select tuskline.schedule_many(array['work', 'work'], p_unique_keys => array['d', 'a'])")
        .await;
    assert!(
        said.contains(&format!("key 'a' of work is held by task {held}, enqueued (row 2 of 2)")),
        "{said}"
    );
}

#[tokio::test]
async fn two_batches_with_the_same_keys_do_not_wait_for_each_other_in_a_circle() {
    let (db, _worker) = unique("running", "keep").await;
    let mut calls = tokio::task::JoinSet::new();
    for turn in 0..8 {
        let session = db.connect().await;
        calls.spawn(async move {
            for round in 0..10 {
                let mut keys: Vec<String> = (0..50).map(|n| format!("{round} {n}")).collect();
                if turn % 2 == 1 {
                    keys.reverse();
                }
                let sql = "select tuskline.schedule_many(array_fill('work'::text, array[50]), p_unique_keys => $1)";
                session.query_one(sql, &[&keys]).await.unwrap();
            }
        });
    }
    calls.join_all().await;
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task").await, 500);
}

#[tokio::test]
async fn a_row_that_was_inserted_without_its_key_is_dropped_and_says_why() {
    let (db, _worker) = unique("running", "keep").await;
    let held = of_key(&db, "a").await;
    db.run("insert into tuskline.task (lambda, unique_key) values ('work', 'a'), ('work', 'b'), ('work', 'b')")
        .await;
    assert_eq!((db.count("dropped").await, db.count("new").await), (2, 1));
    let why = db.lines("select message from tuskline.task_failure order by task_id limit 1").await;
    assert_eq!(why, [format!("task {held} holds its unique key")]);
    assert_eq!(db.enqueue_due().await, 1);
}

#[tokio::test]
async fn a_task_without_unique_keys_or_with_a_wrong_one_is_refused() {
    let db = Db::with_lambda("work").await;
    for sql in [
        "select tuskline.schedule('work', p_unique_key => 'a')",
        "insert into tuskline.task (lambda, unique_key) values ('work', 'a')",
        "select tuskline.schedule_many(array['work'], p_unique_keys => array['a'])",
    ] {
        let said = db.refused(sql).await;
        assert!(said.contains("TK019 invalid_key: lambda work has no unique keys"), "{said}");
    }
    db.run("select tuskline.set_unique('work')").await;
    for key in ["''", "repeat('x', 257)"] {
        let said =
            db.refused(&format!("select tuskline.schedule('work', p_unique_key => {key})")).await;
        assert!(said.contains("TK019 invalid_key: unique_key must have 1 to 256 bytes"), "{said}");
    }
    for (call, expected) in [
        ("'nowork'", "TK001 unknown_lambda"),
        (
            "'work', 'sometimes'",
            "scope must be queued, running, period or forever, got 'sometimes'",
        ),
        (
            "'work', 'queued', 'panic'",
            "outcome must be keep, replace, postpone or reject, got 'panic'",
        ),
        ("'work', 'period'", "needs a period above 0 and up to 10 years, got period with none"),
        ("'work', 'queued', 'keep', '1 hour'", "got queued with 01:00:00"),
        ("'work', 'period', 'keep', '-1 hour'", "got period with -01:00:00"),
    ] {
        let said = db.refused(&format!("select tuskline.set_unique({call})")).await;
        assert!(said.contains(expected), "{said} is not {expected}");
    }
    assert!(db.one::<bool>("select tuskline.drop_unique('work')").await);
    assert!(!db.one::<bool>("select tuskline.drop_unique('work')").await);
}

#[tokio::test]
async fn keys_that_no_task_holds_are_deleted_a_batch_at_a_time() {
    let (db, worker) = unique("running", "keep").await;
    for n in 0..5 {
        of_key(&db, &format!("k{n}")).await;
    }
    for task in worker.claim(3).await {
        worker.succeed(&task).await;
    }
    set(&db, "forever", "keep").await;
    of_key(&db, "ever").await;
    for task in worker.claim(1).await {
        worker.succeed(&task).await;
    }
    let walked = db.lines("select * from tuskline.purge_keys('', '', 4)").await;
    assert_eq!(walked, ["work | k2 | 3"]);
    let walked = db.lines("select * from tuskline.purge_keys('work', 'k2', 4)").await;
    assert_eq!(walked, ["- | - | 1"]);
    let left: Vec<String> = db.all("select key from tuskline.unique_key order by 1").await;
    assert_eq!(left, ["ever", "k4"]);
}

#[tokio::test]
async fn a_key_taken_over_while_keys_are_purged_stays() {
    let (db, worker) = unique("running", "keep").await;
    let ended = of_key(&db, "a").await;
    worker.succeed(&worker.take().await).await;
    // A purge that has begun to look at the tasks waits here.
    let pauses = "in all_tasks: finished_at, next_trigger_at, fence, payload, ordering_key, limit_key, \
                  fairness_key, unique_key, traceparent from tuskline.task union \
                  ==> case when tuskline.pause() then finished_at end as finished_at, next_trigger_at, \
                  fence, payload, ordering_key, limit_key, fairness_key, unique_key, traceparent from tuskline.task union";
    db.run(
        "create function tuskline.pause() returns boolean language plpgsql volatile as
           $$ begin perform pg_advisory_xact_lock_shared(7); return true; end $$",
    )
    .await;
    db.run(&tuskline_breaks::edited(pauses).unwrap()).await;
    db.run("select pg_advisory_lock(7)").await;
    let janitor = db.connect().await;
    let pid: i32 = janitor.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let purge = janitor.query_one("select gone from tuskline.purge_keys('', '')", &[]);
    let takes = async {
        db.until_blocked(pid).await;
        let second = of_key(&db, "a").await;
        db.run("select pg_advisory_unlock(7)").await;
        second
    };
    let (gone, second) = tokio::join!(purge, takes);
    assert_ne!(second, ended);
    assert_eq!(gone.unwrap().get::<_, i64>(0), 0);
    assert_eq!(of_key(&db, "a").await, second, "it still holds its key");
}

#[tokio::test]
async fn a_payload_that_replaces_another_is_checked_as_any() {
    let (db, _worker) = unique("queued", "replace").await;
    db.run("select tuskline.alter_lambda('work', p_max_payload_bytes => 20)").await;
    let held = of_key(&db, "a").await;
    for (payload, expected) in [
        (format!("\"{}\"", "x".repeat(40)), "TK004 payload_too_large: at most 20 bytes, got 42"),
        (r#""\u0000""#.to_owned(), r"TK003 invalid_payload: \u0000 cannot be stored in text"),
    ] {
        for call in [
            format!("schedule('work', '{payload}', p_unique_key => 'a')"),
            format!(
                "schedule_many(array['work'], array['{payload}']::json[], p_unique_keys => array['a'])"
            ),
        ] {
            let said = db.refused(&format!("select tuskline.{call}")).await;
            assert!(said.contains(expected), "{said} is not {expected}");
        }
    }
    let kept: String =
        db.ask("select payload::text from tuskline.tasks where id = $1", &[&held]).await;
    assert_eq!(kept, "1");
}
