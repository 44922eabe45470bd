//! The specification: the effect of every verb on a task in every state.
//!
//! The test makes the table by calling the verbs. ARCHITECTURE.md shows the same table.

use crate::support::{Answer, Db, ScriptedWorker, Task};

/// The columns, in the order in which tasks are brought there. Enqueued comes last, so that no
/// claim on the way takes it.
const OPEN: [&str; 5] = ["claimed", "processing", "retriable_failure", "new", "enqueued"];
const TERMINAL: [&str; 5] = ["success", "fatal_failure", "dead", "cancelled", "dropped"];

/// The rows of the table, in the order of a task's life.
const VERBS: [&str; 44] = [
    "enqueue_due",
    "enqueue_due, paused",
    "enqueue_due, dropped",
    "enqueue_due, diverted",
    "claim",
    "claim, paused",
    "claim, over a limit",
    "claim, dropped",
    "claim, diverted",
    "start",
    "start, old fence",
    "heartbeat",
    "assert_current",
    "assert_current, old f.",
    "complete",
    "complete, old fence",
    "success",
    "success, asked to stop",
    "retriable",
    "retriable, asked",
    "retriable, last attempt",
    "snoozed",
    "snoozed, asked to stop",
    "fatal",
    "cancelled",
    "the same result again",
    "any result, old fence",
    "release",
    "release, old fence",
    "report_crashes",
    "report_crashes, third",
    "report_crashes, asked",
    "report_crashes, old f.",
    "rescue",
    "rescue, third crash",
    "rescue, asked to stop",
    "cancel",
    "retry",
    "operation redrive",
    "operation cancel",
    "operation retry",
    "operation purge",
    "operation erase",
    "rebuild_queues",
];

#[tokio::test]
async fn every_verb_does_to_every_status_what_the_table_says() {
    let mut lines = vec![
        line("verb", &["new", "enqueued", "claimed", "processing", "retriable", "terminal"]),
        format!(
            "|{}|{}|",
            "-".repeat(25),
            [11, 11, 12, 12, 11, 10].map(|n| "-".repeat(n)).join("|")
        ),
    ];
    let db = Db::new().await;
    db.pin().await;
    db.define_with("work", "p_retry_base => '10 seconds'").await;
    for verb in VERBS {
        let cells = row(&db, verb).await;
        lines.push(line(verb, &cells.iter().map(String::as_str).collect::<Vec<_>>()));
    }
    let table = lines.join("\n");
    assert!(lines.iter().all(|line| line.len() <= 100));
    insta::assert_snapshot!("matrix", table);
}

#[test]
fn the_documents_show_the_table_of_the_snapshot() {
    let snapshot = include_str!("snapshots/it__life__matrix__matrix.snap");
    let table = snapshot.splitn(3, "---\n").nth(2).unwrap().trim();
    let shown = include_str!("../../../ARCHITECTURE.md")
        .split_once("<!-- matrix -->")
        .and_then(|(_, rest)| rest.split_once("<!-- /matrix -->"))
        .expect("ARCHITECTURE.md has the marks");
    assert_eq!(shown.0.trim(), table, "ARCHITECTURE.md: paste the table of the snapshot");
}

fn line(verb: &str, cells: &[&str]) -> String {
    let widths = [9, 9, 10, 10, 9, 8];
    let cells: Vec<_> =
        cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
    format!("| {verb:<23} | {} |", cells.join(" | "))
}

/// A task in some state, and the executor that last held it.
struct Staged {
    status: &'static str,
    task: Task,
}

/// Runs a verb on a task of every status. The last cell is for every terminal status.
async fn row(db: &Db, verb: &str) -> Vec<String> {
    db.empty().await;
    let worker = db.worker("work").await;
    let mut staged = Vec::new();
    for status in TERMINAL.iter().chain(&OPEN) {
        staged.push(stage(db, &worker, status).await);
    }
    prepare(verb, db, &worker, &staged).await;
    let lost = act(verb, db, &worker, &staged).await;
    let mut cells = Vec::new();
    for (staged, lost) in staged.iter().zip(lost) {
        cells.push(cell(db, staged, lost).await);
    }
    let terminal: Vec<_> = cells.drain(..TERMINAL.len()).filter(|cell| !cell.is_empty()).collect();
    assert!(terminal.iter().all(|cell| *cell == terminal[0]), "{verb}: terminal {terminal:?}");
    cells.rotate_left(3);
    cells.push(terminal[0].clone());
    cells
}

/// The effect on one task: a status, `-` for no change, `lost` for a refusal, blank for a case that
/// does not apply.
async fn cell(db: &Db, staged: &Staged, lost: Reply) -> String {
    let status = "select coalesce((select status::text from tuskline.tasks where id = $1), 'gone')";
    let status: String = db.ask(status, &[&staged.task.id]).await;
    let changed = status != staged.status;
    match lost {
        Reply::Lost if changed => {
            panic!("told lost, and it went {} -> {status}", staged.status)
        }
        Reply::Lost => "lost".to_owned(),
        Reply::Asked if !changed => "asked".to_owned(),
        Reply::NotDone => String::new(),
        _ if !changed => "-".to_owned(),
        _ => status.trim_end_matches("_failure").to_owned(),
    }
}

/// The answer of a verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reply {
    Nothing,
    Lost,
    Asked,
    /// The verb makes no sense here, or the answer is the row of another verb.
    NotDone,
}

/// Takes a new task to a status, by verbs where there is one.
async fn stage(db: &Db, worker: &ScriptedWorker, status: &'static str) -> Staged {
    let id = match status {
        "new" => db.schedule_in("work", std::time::Duration::from_secs(60)).await,
        _ => db.schedule("work").await,
    };
    let unclaimed = Task::unclaimed(id);
    if matches!(status, "new" | "enqueued") {
        return Staged { status, task: unclaimed };
    }
    let task = worker.take().await;
    assert_eq!(task.id, id);
    match status {
        "processing" => assert!(worker.start(&task).await),
        "retriable_failure" => assert_eq!(worker.fail(&task).await, Answer::Accepted),
        "success" => assert_eq!(worker.succeed(&task).await, Answer::Accepted),
        "fatal_failure" => assert_eq!(worker.fail_for_good(&task).await, Answer::Accepted),
        "cancelled" => assert_eq!(worker.stopped(&task).await, Answer::Accepted),
        "dead" => {
            last_attempt(db).await;
            assert_eq!(worker.fail(&task).await, Answer::Accepted);
        }
        // A gate would drop the task; the test does it without one.
        "dropped" => {
            db.run(&format!(
                "update tuskline.task set status = 'dropped', next_trigger_at = null, finished_at = tuskline.clock() where id = {id}"
            ))
            .await;
        }
        _ => {}
    }
    assert_eq!(db.status(id).await, status);
    Staged { status, task }
}

async fn last_attempt(db: &Db) {
    db.run("update tuskline.task set attempt = 20 where status in ('claimed', 'processing')").await;
}

/// Prepares the circumstances that a row names, for tasks of every status.
async fn prepare(verb: &str, db: &Db, worker: &ScriptedWorker, staged: &[Staged]) {
    let executor = worker.executor;
    for Staged { task: Task { id, fence, .. }, status } in staged {
        let lead = match verb {
            _ if verb.starts_with("enqueue_due") => format!("insert into tuskline.timer values (tuskline.clock(), {id}) on conflict do nothing"),
            _ if verb.starts_with("claim") && *status != "enqueued" => format!(
                "insert into tuskline.queued (queue_id, task_id) select queue_id, {id} from tuskline.queue where priority = 'normal'"
            ),
            _ if verb.starts_with("rescue") => format!(
                "insert into tuskline.lease values ({executor}, {fence}, array[{id}])
                 on conflict (executor_id, lease_id) do update set task_ids = lease.task_ids || excluded.task_ids"
            ),
            _ => continue,
        };
        db.run(&lead).await;
    }
    if verb.contains("asked") {
        db.run("insert into tuskline.cancellation (task_id, fence, requested_at) select id, fence, tuskline.clock() from tuskline.task").await;
        db.run("update tuskline.task set flags = flags | 2").await;
    }
    let gate = [("paused", "pause"), ("dropped", "drop"), ("diverted", "divert")];
    if let Some((_, action)) = gate.iter().find(|(word, _)| verb.ends_with(word)) {
        db.run(&format!("select tuskline.gate('work', '{action}', p_reason => 'x')")).await;
    }
    match verb {
        "claim, over a limit" => db.run("select tuskline.set_limit('work', 0)").await,
        "retriable, last attempt" => last_attempt(db).await,
        "rescue, third crash" | "report_crashes, third" => {
            db.run("update tuskline.task set crashes = 2").await
        }
        "rebuild_queues" => {
            db.run("delete from tuskline_core.queues_complete; delete from tuskline.queued").await
        }
        _ => {}
    }
    if verb.starts_with("enqueue_due") || verb.starts_with("rescue") {
        db.advance(std::time::Duration::from_secs(60)).await;
    }
}

/// Runs the row's verb on every task, and notes each answer.
async fn act(verb: &str, db: &Db, worker: &ScriptedWorker, staged: &[Staged]) -> Vec<Reply> {
    match verb.split(',').next().unwrap() {
        "enqueue_due" => _ = db.enqueue_due().await,
        "claim" => _ = worker.claim(100).await,
        "heartbeat" => assert!(worker.heartbeat().await),
        "rebuild_queues" => {
            let tasks: i64 = db.one("select tasks from tuskline.rebuild_queues()").await;
            assert_eq!((tasks, db.queued().await), (1, 1), "only what is enqueued");
        }
        "rescue" => _ = db.rescue().await,
        "operation redrive" => return redrive(db, staged).await,
        "operation cancel" => {
            to_the_end(db, "'cancel', 'work'").await;
            return asked(db, staged).await;
        }
        "operation erase" => {
            erase(db).await;
            return asked(db, staged).await;
        }
        "operation retry" => {
            to_the_end(db, "'retry', 'work'").await;
            return but_for_failures(db, staged).await;
        }
        "operation purge" => {
            to_the_end(db, "'purge', 'work', p_ended_to => tuskline.clock()").await;
        }
        _ => {
            let mut replies = Vec::new();
            for one in staged {
                replies.push(act_on(verb, db, worker, one).await);
            }
            return replies;
        }
    }
    vec![Reply::Nothing; staged.len()]
}

/// The redrive names all tasks by their ids, but it concerns only fatal failures.
async fn redrive(db: &Db, staged: &[Staged]) -> Vec<Reply> {
    let ids: Vec<String> = staged.iter().map(|one| one.task.id.to_string()).collect();
    let ids = ids.join(",");
    to_the_end(db, &format!("'redrive', p_ids => array[{ids}], p_reason => 'x'")).await;
    but_for_failures(db, staged).await
}

/// Starts an operation, and calls until it is done.
async fn to_the_end(db: &Db, arguments: &str) {
    let number: i64 = db.one(&format!("select tuskline.start_operation({arguments})")).await;
    let advance = format!("select state from tuskline.advance_operation({number})");
    while db.one::<String>(&advance).await == "running" {}
}

/// Runs the erase's first walk, which ends the waiting tasks, and a batch of the second. The erase
/// then waits for the worker.
async fn erase(db: &Db) {
    let start = "select tuskline.start_operation('erase', 'work', p_reason => 'x')";
    let number: i64 = db.one(start).await;
    for _ in ["a batch", "the end of the walk", "a batch of the next walk"] {
        let advance = format!("select state from tuskline.advance_operation({number})");
        assert_eq!(db.one::<String>(&advance).await, "running");
    }
}

/// Tells for each task whether its worker is asked to stop.
async fn asked(db: &Db, staged: &[Staged]) -> Vec<Reply> {
    let mut replies = Vec::new();
    for one in staged {
        let asked = "select exists (select from tuskline.cancellation where task_id = $1)";
        let asked: bool = db.ask(asked, &[&one.task.id]).await;
        replies.push(if asked { Reply::Asked } else { Reply::Nothing });
    }
    replies
}

/// The verb concerns only failures among ended tasks; the others stay as they are.
async fn but_for_failures(db: &Db, staged: &[Staged]) -> Vec<Reply> {
    let mut replies = Vec::new();
    for one in staged {
        replies.push(match one.status {
            "success" | "cancelled" | "dropped" => {
                assert_eq!(db.status(one.task.id).await, one.status);
                Reply::NotDone
            }
            _ => Reply::Nothing,
        });
    }
    replies
}

async fn act_on(verb: &str, db: &Db, worker: &ScriptedWorker, staged: &Staged) -> Reply {
    let task = &staged.task;
    let old = Task { fence: task.fence - 1, ..task.clone() };
    let same = matches!(
        (verb.split(',').next().unwrap(), staged.status),
        ("success", "success")
            | ("retriable", "retriable_failure" | "dead")
            | ("fatal", "fatal_failure")
            | ("cancelled", "cancelled")
    );
    let sent = match verb {
        "start" => worker.start(task).await,
        "start, old fence" => worker.start(&old).await,
        "assert_current" => worker.assert_current(task).await,
        "assert_current, old f." => worker.assert_current(&old).await,
        "complete" => worker.complete(task).await,
        "complete, old fence" => worker.complete(&old).await,
        "release" => worker.release(task).await,
        "release, old fence" => worker.release(&old).await,
        "report_crashes" | "report_crashes, third" | "report_crashes, asked" => {
            worker.crash(task).await
        }
        "report_crashes, old f." => worker.crash(&old).await,
        "cancel" => match db.cancel(task.id).await.as_str() {
            "requested" => return Reply::Asked,
            said => said == "cancelled",
        },
        "retry" => {
            let said: String = db.ask("select tuskline.retry($1)", &[&task.id]).await;
            match staged.status {
                "success" => {
                    assert_eq!(said, "succeeded");
                    return Reply::NotDone;
                }
                _ => said == "retried",
            }
        }
        // Another row of the table covers "the same result again".
        _ if same => return Reply::NotDone,
        "success" | "success, asked to stop" => accepted(worker.succeed(task).await),
        "retriable" | "retriable, asked" | "retriable, last attempt" => {
            accepted(worker.fail(task).await)
        }
        "snoozed" | "snoozed, asked to stop" => accepted(worker.snooze(task).await),
        "fatal" => accepted(worker.fail_for_good(task).await),
        "cancelled" => accepted(worker.stopped(task).await),
        "any result, old fence" => {
            accepted(worker.succeed(&old).await)
                || accepted(worker.succeed_with(&old, "1").await)
                || accepted(worker.fail(&old).await)
                || accepted(worker.fail_for_good(&old).await)
                || accepted(worker.stopped(&old).await)
        }
        "the same result again" => match staged.status {
            "success" => accepted(worker.succeed(task).await),
            "retriable_failure" | "dead" => accepted(worker.fail(task).await),
            "fatal_failure" => accepted(worker.fail_for_good(task).await),
            "cancelled" => accepted(worker.stopped(task).await),
            _ => return Reply::NotDone,
        },
        other => panic!("no such row: {other}"),
    };
    if sent { Reply::Nothing } else { Reply::Lost }
}

fn accepted(answer: Answer) -> bool {
    answer == Answer::Accepted
}
