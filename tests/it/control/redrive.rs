//! A redrive returns the dead letters that its filter matches, and no others, at the requested
//! rate. It stops when they die again.

use std::time::Duration;

use crate::support::{Db, Gate, Running, ScriptedWorker, Task, calm};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

async fn with_worker() -> (Db, ScriptedWorker) {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    (db, worker)
}

async fn fail(worker: &ScriptedWorker, task: &Task, message: &str) {
    let note =
        format!(r#""status": "fatal_failure", "error_class": "fatal", "message": "{message}""#);
    worker.note(task, &note).await;
}

/// Makes so many tasks that fail for good with a message; returns their ids.
async fn die(db: &Db, worker: &ScriptedWorker, count: i32, message: &str) -> Vec<i64> {
    let ids = db.schedule_many("work", count).await;
    for task in worker.claim(count).await {
        fail(worker, &task, message).await;
    }
    ids
}

/// Sets a redrive with a reason; returns its number.
async fn redrive(db: &Db, arguments: &str) -> i64 {
    db.one(&format!(
        "select tuskline.start_operation('redrive', {arguments}, p_reason => 'the bug is fixed')"
    ))
    .await
}

/// Runs the store consumer's verbs once.
async fn consume(db: &Db) {
    db.run("select tuskline.run_policies()").await;
    db.enqueue_due().await;
}

/// Lets the store consumer finish, then claims: the tasks that the worker gets.
async fn next(db: &Db, worker: &ScriptedWorker) -> Vec<Task> {
    consume(db).await;
    worker.claim(1000).await
}

fn ids(tasks: &[Task]) -> Vec<i64> {
    tasks.iter().map(|task| task.id).collect()
}

async fn state(db: &Db) -> Vec<String> {
    db.lines(
        "select state, changed, died_again, note from tuskline.operations where action = 'redrive' order by operation_id",
    )
    .await
}

async fn letters(db: &Db) -> Vec<i64> {
    db.all("select task_id from tuskline.dead_letter order by task_id").await
}

#[tokio::test]
async fn the_dead_of_a_lambda_return_and_the_redrive_is_done() {
    let (db, worker) = with_worker().await;
    let all = die(&db, &worker, 3, "no").await;
    let number = redrive(&db, "'work'").await;
    assert_eq!(state(&db).await, ["running | 0 | 0 | -"]);
    let tasks = next(&db, &worker).await;
    assert_eq!(ids(&tasks), all);
    assert!(tasks.iter().all(|task| task.attempt == 1), "with all their attempts");
    consume(&db).await;
    assert_eq!(state(&db).await, ["done | 3 | 0 | -"]);
    assert!(letters(&db).await.is_empty());
    let audited = db.lines("select verb, subject, detail from tuskline.audit where verb like '%operation' order by at, verb desc").await;
    let begun = format!("start_operation | work | operation {number}: redrive, statuses ");
    assert!(audited[0].starts_with(&begun), "{}", audited[0]);
    assert!(audited[0].ends_with(", reason the bug is fixed"), "{}", audited[0]);
    assert_eq!(audited[1], format!("end_operation | operation {number} | done 3 changed"));
}

#[tokio::test]
async fn what_is_asked_for_is_what_the_preview_shows_and_no_more() {
    let (db, worker) = with_worker().await;
    db.define("other").await;
    let unknown = die(&db, &worker, 3, "order 1 is unknown").await;
    let money = die(&db, &worker, 2, "no money").await;
    let of_news: i64 = db.one("select tuskline.schedule('work', p_collection => 'news')").await;
    fail(&worker, &worker.take().await, "no money").await;
    db.advance(SECOND).await;
    let late = die(&db, &worker, 1, "no money").await;
    let worker_of_other = db.worker("other").await;
    let others = db.schedule("other").await;
    fail(&worker_of_other, &worker_of_other.take().await, "no money").await;
    let cause: String = db
        .ask("select fingerprint from tuskline.dead_letter where task_id = $1", &[&money[0]])
        .await;
    for (arguments, meant) in [
        (
            format!(
                "'work', p_fingerprint => '{cause}', p_ended_to => tuskline.clock() - interval '1 second', p_collection => 'news'"
            ),
            vec![of_news],
        ),
        (format!("'work', p_fingerprint => '{cause}', p_limit => 1"), vec![money[0]]),
        (
            format!(
                "'work', p_fingerprint => '{cause}', p_ended_to => tuskline.clock() - interval '1 second'"
            ),
            vec![money[1]],
        ),
        (
            format!("p_ids => array[{}, {}, {}, 4711]", unknown[1], others, unknown[0]),
            vec![unknown[0], unknown[1], others],
        ),
        (format!("'work', p_ids => array[{}, {}]", late[0], others), vec![late[0]]),
        ("'other'".to_owned(), vec![]),
        ("'work'".to_owned(), vec![unknown[2]]),
    ] {
        let before = letters(&db).await;
        let preview = format!("tuskline.preview_operation('redrive', {arguments})");
        let shown: i64 =
            db.one(&format!("select coalesce(sum(tasks), 0)::bigint from {preview}")).await;
        let first: Vec<i64> = db
            .all(&format!("select id from {preview} p, unnest(p.first_ids) as id order by id"))
            .await;
        redrive(&db, &arguments).await;
        consume(&db).await;
        consume(&db).await;
        let after = letters(&db).await;
        let gone: Vec<i64> = before.into_iter().filter(|id| !after.contains(id)).collect();
        assert_eq!((&gone, &first), (&meant, &meant), "{arguments}");
        assert_eq!(usize::try_from(shown).unwrap(), meant.len(), "{arguments}");
    }
    let ended: i64 = db.one("select count(*) from tuskline.operations where state = 'done'").await;
    assert_eq!(ended, 7);
}

#[tokio::test]
async fn a_redrive_goes_batch_by_batch_and_asks_to_be_called_again_at_once() {
    let (db, worker) = with_worker().await;
    die(&db, &worker, 25, "order 1 is unknown").await;
    die(&db, &worker, 5, "no money").await;
    redrive(&db, "'work'").await;
    let mut left = Vec::new();
    for _ in 0..4 {
        let again: Option<i64> = db.one("select next_due_ms from tuskline.run_policies(10)").await;
        left.push((letters(&db).await.len(), again));
    }
    assert_eq!(left, [(20, Some(0)), (10, Some(0)), (0, Some(0)), (0, None)]);
    let gates: bool = db.one("select gates from tuskline.enqueue_due()").await;
    assert!(!gates, "no gate asks for it any more");
}

#[tokio::test]
async fn no_more_than_so_many_a_second_return() {
    let (db, worker) = with_worker().await;
    die(&db, &worker, 20, "no").await;
    redrive(&db, "'work', p_per_second => 4").await;
    let again: Option<i64> = db.one("select next_due_ms from tuskline.run_policies()").await;
    assert_eq!((again, letters(&db).await.len()), (Some(250), 19));
    let mut left = Vec::new();
    for _ in 0..4 {
        consume(&db).await;
        db.advance(SECOND / 4).await;
        consume(&db).await;
        left.push(letters(&db).await.len());
    }
    assert_eq!(left, [18, 17, 16, 15]);
    db.advance(SECOND * 60).await;
    consume(&db).await;
    assert_eq!(letters(&db).await.len(), 10, "a minute of rest is worth a second's, and the next");
}

#[tokio::test]
async fn a_canary_lets_one_go_then_ten_then_the_rest() {
    let (db, worker) = with_worker().await;
    die(&db, &worker, 40, "no").await;
    redrive(&db, "'work', p_canary => true").await;
    let mut went = Vec::new();
    for _ in 0..4 {
        let tasks = next(&db, &worker).await;
        went.push(tasks.len());
        assert!(next(&db, &worker).await.is_empty() || went.len() > 2, "it waits for their ends");
        assert!(worker.succeed_all(&tasks).await.is_empty());
    }
    assert_eq!(went, [1, 10, 29, 0]);
    assert_eq!(state(&db).await, ["done | 40 | 0 | -"]);
}

#[tokio::test]
async fn a_canary_that_dies_again_stops_the_redrive() {
    for (good, message) in [(0, "no"), (1, "no"), (1, "something else")] {
        let (db, worker) = with_worker().await;
        die(&db, &worker, 40, "no").await;
        redrive(&db, "'work', p_canary => true").await;
        if good > 0 {
            worker.succeed_all(&next(&db, &worker).await).await;
        }
        let tasks = next(&db, &worker).await;
        fail(&worker, &tasks[0], message).await;
        assert!(next(&db, &worker).await.is_empty());
        let released = if good > 0 { 11 } else { 1 };
        let id = tasks[0].id;
        assert_eq!(
            state(&db).await,
            [format!("died_again | {released} | 1 | task {id} died again: fatal, {message}")]
        );
        assert_eq!(letters(&db).await.len(), 40 - released + 1);
    }
}

/// The effects of an end may run later, or commit between two queries of one step.
#[tokio::test]
async fn a_canary_waits_for_the_dead_letter_of_a_task_that_died_again() {
    let (db, worker) = with_worker().await;
    die(&db, &worker, 3, "no").await;
    redrive(&db, "'work', p_canary => true").await;
    let tasks = next(&db, &worker).await;
    fail(&worker, &tasks[0], "no").await;
    let id = tasks[0].id;
    db.run("create table late as select * from tuskline.dead_letter").await;
    db.run(&format!("delete from tuskline.dead_letter where task_id = {id}")).await;
    assert!(next(&db, &worker).await.is_empty(), "no second task before the first is judged");
    assert_eq!(state(&db).await, ["canary | 1 | 0 | -"]);
    db.run(&format!("insert into tuskline.dead_letter select * from late where task_id = {id}"))
        .await;
    assert!(next(&db, &worker).await.is_empty());
    assert!(state(&db).await[0].starts_with("died_again | 1 | 1 | "));
}

#[tokio::test]
async fn the_rest_of_a_canary_stops_for_the_same_cause_only() {
    let (db, worker) = with_worker().await;
    die(&db, &worker, 40, "no").await;
    redrive(&db, "'work', p_canary => true, p_per_second => 20").await;
    worker.succeed_all(&next(&db, &worker).await).await;
    db.advance(SECOND).await;
    worker.succeed_all(&next(&db, &worker).await).await;
    db.advance(SECOND / 2).await;
    let tasks = next(&db, &worker).await;
    assert!(!tasks.is_empty());
    fail(&worker, &tasks[0], "something else").await;
    db.advance(SECOND / 10).await;
    let more = next(&db, &worker).await;
    assert!(!more.is_empty(), "that is another matter");
    fail(&worker, &more[0], "no").await;
    db.advance(SECOND).await;
    assert!(next(&db, &worker).await.is_empty());
    assert!(state(&db).await[0].starts_with("died_again | "));
}

#[tokio::test]
async fn a_canary_whose_tasks_were_cancelled_has_said_nothing() {
    let (db, worker) = with_worker().await;
    die(&db, &worker, 5, "no").await;
    redrive(&db, "'work', p_canary => true").await;
    let tasks = next(&db, &worker).await;
    worker.stopped(&tasks[0]).await;
    assert_eq!(next(&db, &worker).await.len(), 1, "one more");
}

#[tokio::test]
async fn a_task_returns_with_another_payload_and_the_old_one_is_kept() {
    let (db, worker) = with_worker().await;
    let id = db.schedule_with("work", r#"{"to": "adda"}"#).await;
    fail(&worker, &worker.take().await, "no such address").await;
    redrive(&db, &format!(r#"p_ids => array[{id}], p_payload => '{{"to": "ada"}}'"#)).await;
    assert_eq!(ids(&next(&db, &worker).await), [id]);
    let seen = db
        .lines("select t.payload, v.old_payload from tuskline.tasks t join tuskline.redriven v on v.task_id = t.id")
        .await;
    assert_eq!(seen, [r#"{"to": "ada"} | {"to": "adda"}"#]);
}

#[tokio::test]
async fn a_task_that_has_outlived_its_segment_returns_with_a_fresh_one() {
    let (db, worker) = with_worker().await;
    let no = db.first_segment();
    db.run("select tuskline.alter_lambda('work', p_retention => '1 day'); select tuskline.roll_segments()").await;
    let all = die(&db, &worker, 3, "no").await;
    db.advance(DAY).await;
    db.run(&format!("select tuskline.roll_segments(); select tuskline.keep_remaining({no})")).await;
    db.run(&format!(
        "alter table tuskline_core.task_store detach partition tuskline_core.task_{no} concurrently"
    ))
    .await;
    db.run(&format!("drop table tuskline_core.task_{no}")).await;
    db.run(&format!("select tuskline.purge_history({no}); select tuskline.return_kept({no})"))
        .await;
    redrive(&db, &format!("p_ids => array[{}], p_payload => '7'", all[1])).await;
    consume(&db).await;
    assert_eq!((letters(&db).await, db.timers().await), (vec![all[0], all[2]], 0));
    assert_eq!(
        db.lines("select * from tuskline.segments_to_finish()").await,
        [format!("{no} | dropped")]
    );
    assert_eq!(db.one::<i64>(&format!("select tuskline.return_kept({no})")).await, 1);
    let tasks = next(&db, &worker).await;
    assert_eq!(ids(&tasks), [all[1]]);
    let payload: String =
        db.ask("select payload::text from tuskline.tasks where id = $1", &[&all[1]]).await;
    assert_eq!(payload, "7");
}

#[tokio::test]
async fn a_task_that_two_redrives_want_returns_once() {
    let (db, worker) = with_worker().await;
    let all = die(&db, &worker, 4, "no").await;
    let first = redrive(&db, "'work'").await;
    redrive(&db, "'work'").await;
    // Another store consumer has just released two tasks for the first redrive.
    let other = db.connect().await;
    let advance = format!("begin; select tuskline.advance_operation({first}, 2)");
    other.batch_execute(&advance).await.unwrap();
    consume(&db).await;
    assert_eq!(letters(&db).await, all[..2], "the others go, for the second");
    other.batch_execute("commit").await.unwrap();
    consume(&db).await;
    consume(&db).await;
    assert_eq!(ids(&worker.claim(100).await), all);
    let went: i64 = db
        .one("select sum(changed)::bigint from tuskline.operation where action = 'redrive'")
        .await;
    assert_eq!(went, 4);
}

#[tokio::test]
async fn a_task_that_is_retried_meanwhile_returns_once() {
    let (db, worker) = with_worker().await;
    let all = die(&db, &worker, 2, "no").await;
    redrive(&db, "'work'").await;
    let operator = db.connect().await;
    operator.batch_execute(&format!("begin; select tuskline.retry({})", all[0])).await.unwrap();
    assert_eq!(ids(&next(&db, &worker).await), [all[1]], "the other does not wait");
    consume(&db).await;
    assert_eq!(state(&db).await, ["running | 1 | 0 | -"], "it may come to nothing");
    operator.batch_execute("commit").await.unwrap();
    db.advance(Duration::from_secs(1)).await;
    assert_eq!(ids(&next(&db, &worker).await), [all[0]]);
    consume(&db).await;
    assert_eq!(state(&db).await, ["done | 1 | 0 | -"]);
}

#[tokio::test]
async fn a_redrive_of_locked_letters_rests_before_it_looks_again() {
    let (db, worker) = with_worker().await;
    let all = die(&db, &worker, 1, "no").await;
    redrive(&db, "'work'").await;
    let operator = db.connect().await;
    let sql = format!("begin; select from tuskline.task where id = {} for update", all[0]);
    operator.batch_execute(&sql).await.unwrap();
    let rests = "select next_due_ms >= 100 from tuskline.run_policies()";
    assert_eq!(db.all::<bool>(rests).await, [true]);
    operator.batch_execute("commit").await.unwrap();
    db.advance(Duration::from_secs(1)).await;
    assert_eq!(ids(&next(&db, &worker).await), all);
}

#[tokio::test]
async fn a_retry_waits_for_the_redrive_and_finds_it_done() {
    let (db, worker) = with_worker().await;
    let all = die(&db, &worker, 1, "no").await;
    redrive(&db, "'work'").await;
    let consumer = db.connect().await;
    consumer.batch_execute("begin; select tuskline.run_policies()").await.unwrap();
    let operator = db.connect().await;
    let pid: i32 = operator.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let retry = format!("select tuskline.retry({})", all[0]);
    let retries = operator.query_one(&retry, &[]);
    let commits = async {
        db.until_blocked(pid).await;
        consumer.batch_execute("commit").await.unwrap();
    };
    let (said, ()) = tokio::join!(retries, commits);
    assert_eq!(said.unwrap().get::<_, &str>(0), "too_early");
    assert_eq!(ids(&next(&db, &worker).await), all);
}

#[tokio::test]
async fn a_redrive_that_is_stopped_lets_no_more_go() {
    let (db, worker) = with_worker().await;
    die(&db, &worker, 10, "no").await;
    let number = redrive(&db, "'work'").await;
    let consumer = db.connect().await;
    consumer.batch_execute("begin; select tuskline.run_policies(3)").await.unwrap();
    let operator = db.connect().await;
    let pid: i32 = operator.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let stop = format!("select tuskline.stop_operation({number})");
    let stops = operator.query_one(&stop, &[]);
    let commits = async {
        db.until_blocked(pid).await;
        consumer.batch_execute("commit").await.unwrap();
    };
    let (stopped, ()) = tokio::join!(stops, commits);
    assert!(stopped.unwrap().get::<_, bool>(0));
    assert_eq!(next(&db, &worker).await.len(), 3, "what went, goes on");
    assert_eq!(letters(&db).await.len(), 7);
    assert!(state(&db).await[0].starts_with("stopped | 3 | 0 | by "));
    assert!(!db.ask::<bool>("select tuskline.stop_operation($1)", &[&number]).await);
}

#[tokio::test]
async fn a_task_that_dies_again_is_not_taken_a_second_time_by_the_same_redrive() {
    let (db, worker) = with_worker().await;
    let all = die(&db, &worker, 3, "no").await;
    redrive(&db, "'work'").await;
    db.run("select tuskline.run_policies(2)").await;
    db.enqueue_due().await;
    // The tasks fail at the same instant at which the redrive was set.
    for task in worker.claim(2).await {
        fail(&worker, &task, "no").await;
    }
    for _ in 0..3 {
        consume(&db).await;
    }
    assert_eq!(state(&db).await, ["done | 3 | 2 | -"]);
    assert_eq!(letters(&db).await, all[..2]);
    redrive(&db, "'work'").await;
    worker.claim(1).await;
    assert_eq!(ids(&next(&db, &worker).await), all[..2], "another may");
}

#[tokio::test]
async fn a_death_after_a_retry_by_hand_is_not_laid_at_the_redrives_door() {
    let (db, worker) = with_worker().await;
    let all = die(&db, &worker, 1, "no").await;
    redrive(&db, "'work'").await;
    fail(&worker, &next(&db, &worker).await[0], "no").await;
    assert_eq!(state(&db).await, ["running | 1 | 1 | -"]);
    db.run(&format!("select tuskline.retry({})", all[0])).await;
    db.enqueue_due().await;
    fail(&worker, &worker.take().await, "no").await;
    assert_eq!(state(&db).await, ["running | 1 | 0 | -"]);
}

#[tokio::test]
async fn a_task_that_waits_for_a_redriven_task_continues_after_it() {
    let (db, worker) = with_worker().await;
    let tasks = r#"[{"lambda": "work", "name": "a"}, {"lambda": "work", "name": "b", "after": ["a"], "on_parent_failure": "hold"}]"#;
    let chain: Vec<i64> =
        db.ask("select ids from tuskline.schedule_chain($1::text::json)", &[&tasks]).await;
    fail(&worker, &worker.take().await, "no").await;
    redrive(&db, "'work'").await;
    let child = db.connect().await;
    let lock = format!("begin; select from tuskline.task where id = {} for update", chain[1]);
    child.batch_execute(&lock).await.unwrap();
    assert!(next(&db, &worker).await.is_empty(), "another session has locked its child");
    child.batch_execute("commit").await.unwrap();
    db.advance(Duration::from_secs(1)).await;
    let tasks = next(&db, &worker).await;
    assert_eq!(ids(&tasks), [chain[0]]);
    worker.succeed(&tasks[0]).await;
    assert_eq!(ids(&next(&db, &worker).await), [chain[1]]);
}

#[tokio::test]
async fn a_letter_whose_task_is_not_dead_holds_nothing_up() {
    let (db, worker) = with_worker().await;
    let all = die(&db, &worker, 2, "no").await;
    db.run(&format!("update tuskline.task set status = 'success' where id = {}", all[0])).await;
    redrive(&db, "'work'").await;
    assert_eq!(ids(&next(&db, &worker).await), [all[1]]);
    consume(&db).await;
    consume(&db).await;
    assert_eq!(state(&db).await, ["done | 1 | 0 | -"]);
}

#[tokio::test]
async fn what_is_past_its_retention_does_not_return() {
    let (db, worker) = with_worker().await;
    die(&db, &worker, 1, "no").await;
    db.advance(DAY * 30).await;
    assert_eq!(
        db.one::<i64>("select count(*) from tuskline.preview_operation('redrive', 'work')").await,
        0
    );
    redrive(&db, "'work'").await;
    consume(&db).await;
    consume(&db).await;
    assert_eq!(state(&db).await, ["done | 0 | 0 | -"]);
}

#[tokio::test]
async fn old_operations_are_forgotten() {
    let (db, _worker) = with_worker().await;
    redrive(&db, "'work'").await;
    consume(&db).await;
    db.advance(DAY * 31).await;
    redrive(&db, "'work'").await;
    db.run("select tuskline.purge()").await;
    assert_eq!(state(&db).await, ["running | 0 | 0 | -"]);
}

#[tokio::test]
async fn redrives_retries_and_purges_at_once_lose_nothing_and_do_nothing_twice() {
    let (db, worker) = with_worker().await;
    let all = die(&db, &worker, 300, "order 1 is unknown").await;
    let spoiled = die(&db, &worker, 100, "no money").await;
    let cause: String = db
        .ask("select fingerprint from tuskline.dead_letter where task_id = $1", &[&spoiled[0]])
        .await;
    redrive(&db, "'work'").await;
    redrive(&db, "'work', p_per_second => 1000").await;
    let count = async |sql: String, times: usize| {
        let session = db.connect().await;
        let mut done = 0;
        for _ in 0..times {
            done += session.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0);
        }
        done
    };
    let retries = async {
        let session = db.connect().await;
        let mut done = 0;
        for id in all.iter().rev().step_by(3) {
            let row = session.query_one("select tuskline.retry($1)", &[id]).await.unwrap();
            done += i64::from(row.get::<_, &str>(0) == "retried");
        }
        done
    };
    let promote = || count("select moved::bigint from tuskline.run_policies(17)".to_owned(), 40);
    let purge = format!(
        "select tuskline.start_operation('purge', 'work', p_fingerprint => '{cause}', p_ended_to => tuskline.clock())"
    );
    db.run(&purge).await;
    let purge = format!("select changed from tuskline.advance_operation({}, 7)", db.number(3));
    let due = "select moved::bigint from tuskline.enqueue_due(null, 23)".to_owned();
    let (retried, ..) =
        tokio::join!(retries, count(purge, 20), promote(), promote(), count(due, 60));
    while !state(&db).await.iter().all(|line| line.starts_with("done")) {
        db.advance(SECOND).await;
        consume(&db).await;
    }
    let released: i64 = db
        .one("select sum(changed)::bigint from tuskline.operation where action = 'redrive'")
        .await;
    let third = "select changed from tuskline.operation where operation_id = $1";
    let purged: i64 = db.ask(third, &[&db.number(3)]).await;
    assert_eq!((released + retried + purged, letters(&db).await.len()), (400, 0));
    let left: i64 = db.one("select count(*) from tuskline.tasks").await;
    assert_eq!(left + purged, 400);
    while db.enqueue_due().await > 0 {}
    let begun = worker.claim(1000).await;
    assert_eq!(i64::try_from(begun.len()).unwrap(), left);
    assert!(begun.iter().all(|task| task.attempt == 1));
}

#[tokio::test]
async fn a_store_consumer_and_a_worker_carry_a_redrive_out() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    die(&db, &worker, 60, "no").await;
    db.run(&format!("select tuskline.end_executor({})", worker.executor)).await;
    let _consumer = db.store_consumer();
    let sdk_worker = Running::start(&db, calm(), vec![Gate::open().lambda("work")]);
    redrive(&db, "'work', p_canary => true").await;
    db.until_count("success", 60).await;
    db.until("select bool_and(state = 'done') from tuskline.operations").await;
    sdk_worker.stop().await;
}

#[tokio::test]
async fn what_is_no_redrive_is_refused() {
    let db = Db::with_lambda("work").await;
    for (call, said) in [
        (
            "'redrive', p_reason => 'x'",
            "say which tasks: redrive needs a lambda, ids, a key or a field",
        ),
        ("'redrive', 'work'", "reason must have 1 to 500 characters"),
        ("'redrive', 'work', p_reason => ' '", "reason must have 1 to 500 characters"),
        ("'redrive', p_ids => '{}', p_reason => 'x'", "ids must be 1 to 10000, got 0"),
        (
            "'redrive', p_ids => array(select generate_series(1, 10001)), p_reason => 'x'",
            "ids must be 1 to 10000, got 10001",
        ),
        (
            "'redrive', 'work', p_per_second => 0, p_reason => 'x'",
            "per_second must be 0.001 to 1000000, got 0",
        ),
        (
            "'redrive', 'work', p_canary => null, p_reason => 'x'",
            "canary and files must be true or false, got null",
        ),
        (
            "'redrive', 'work', p_payload => '1', p_reason => 'x'",
            "a payload is for one task: give its id, and no other",
        ),
        (
            "'retry', 'work', p_canary => true",
            "a canary and a payload are for a redrive, got retry",
        ),
        (
            "'cancel', 'work', p_fingerprint => 'x', p_statuses => '{new}'",
            "a fingerprint is for tasks that are dead or fatal_failure, got {new}",
        ),
        (
            "'cancel', 'work', p_ended_to => tuskline.clock()",
            "cancel is for tasks that have not ended, got ended_to",
        ),
    ] {
        let answer = db.refused(&format!("select tuskline.start_operation({call})")).await;
        assert!(answer.contains(&format!("TK029 invalid_operation: {said}")), "{call}\n{answer}");
    }
    db.run("select tuskline.alter_lambda('work', p_max_payload_bytes => 5)").await;
    let id = db.schedule("work").await;
    let payload = |json: &str| {
        format!(
            "select tuskline.start_operation('redrive', p_ids => array[{id}], p_payload => '{json}', p_reason => 'x')"
        )
    };
    let answer = db.refused(&payload("123456")).await;
    assert!(answer.contains("TK004 payload_too_large: at most 5 bytes, got 6"), "{answer}");
    db.run("select tuskline.alter_lambda('work', p_max_payload_bytes => 50)").await;
    let answer = db.refused(&payload(r#""\u0000""#)).await;
    assert!(answer.contains("TK003 invalid_payload"), "{answer}");
    assert_eq!(db.one::<i64>("select count(*) from tuskline.operation").await, 0);
}

#[tokio::test]
async fn a_collection_is_sought_a_batch_of_letters_at_a_time() {
    let (db, worker) = with_worker().await;
    die(&db, &worker, 25, "no").await;
    let of_news = "select tuskline.schedule('work', p_collection => 'news')";
    let first: i64 = db.one(of_news).await;
    fail(&worker, &worker.take().await, "no").await;
    die(&db, &worker, 25, "no").await;
    let second: i64 = db.one(of_news).await;
    fail(&worker, &worker.take().await, "no").await;
    for (arguments, meant) in [("p_canary => true", first), ("p_limit => 1", second)] {
        redrive(&db, &format!("'work', p_collection => 'news', {arguments}")).await;
        let mut calls = 0;
        while db.status(meant).await == "fatal_failure" {
            let at_once: bool = db
                .one("select next_due_ms is not distinct from 0 from tuskline.run_policies(10)")
                .await;
            calls += 1;
            assert!(at_once || db.status(meant).await == "new", "there is more to look at");
        }
        assert!((3..=6).contains(&calls), "{calls} calls");
        db.enqueue_due().await;
        let task = worker.take().await;
        assert_eq!(task.id, meant);
        worker.succeed(&task).await;
        if meant == first {
            db.run(&format!("select tuskline.stop_operation({})", db.number(1))).await;
        }
    }
    db.connect().await.batch_execute("select tuskline.run_policies(10)").await.unwrap();
    let shown =
        db.lines("select state, changed from tuskline.operations order by operation_id").await;
    assert_eq!(shown, ["stopped | 1", "done | 1"]);
    let none = redrive(&db, "'work', p_collection => 'news'").await;
    for _ in 0..10 {
        db.run("select tuskline.run_policies(10)").await;
    }
    let ended: bool = db
        .ask(
            "select state = 'done' and changed = 0 from tuskline.operation where operation_id = $1",
            &[&none],
        )
        .await;
    assert!(ended, "it has been through all of them");
    assert_eq!(letters(&db).await.len(), 50);
}

#[tokio::test]
async fn a_locked_task_is_met_again_among_many_that_do_not_match() {
    let (db, worker) = with_worker().await;
    let of_news: i64 = db.one("select tuskline.schedule('work', p_collection => 'news')").await;
    fail(&worker, &worker.take().await, "no").await;
    die(&db, &worker, 25, "no").await;
    let other = db.connect().await;
    let lock = format!("begin; select from tuskline.task where id = {of_news} for update");
    other.batch_execute(&lock).await.unwrap();
    redrive(&db, "'work', p_collection => 'news'").await;
    for _ in 0..10 {
        db.run("select tuskline.run_policies(10)").await;
    }
    assert_eq!(state(&db).await, ["running | 0 | 0 | -"]);
    other.batch_execute("commit").await.unwrap();
    for _ in 0..10 {
        db.advance(Duration::from_secs(1)).await;
        db.run("select tuskline.run_policies(10)").await;
    }
    assert_eq!(state(&db).await, ["done | 1 | 0 | -"]);
}

#[tokio::test]
async fn a_death_that_is_committed_late_is_met_by_the_next_walk() {
    let (db, worker) = with_worker().await;
    let all = die(&db, &worker, 2, "no").await;
    let first = format!("from tuskline.dead_letter where task_id = {}", all[0]);
    db.run(&format!("create temp table late as select * {first}; delete {first}")).await;
    redrive(&db, "'work'").await;
    assert_eq!(ids(&next(&db, &worker).await), [all[1]]);
    db.run("insert into tuskline.dead_letter select * from late").await;
    assert_eq!(ids(&next(&db, &worker).await), [all[0]]);
    consume(&db).await;
    assert_eq!(state(&db).await, ["done | 2 | 0 | -"]);
}
