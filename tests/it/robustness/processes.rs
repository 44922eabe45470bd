//! The host controller: executors are processes, and an attempt goes to another one only after its own has ended.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tuskline_postgres::Stop;

use crate::support::host::{Host, Wire, runs, signal};
use crate::support::{Db, own_cluster};

/// A database with a lambda, and a host with so many executors that have so many slots for it.
async fn host(settings: &str, processes: usize, slots: usize) -> (Db, Host) {
    let db = Db::new().await;
    db.define_with("work", settings).await;
    let host = Host::start(&db, processes, json!([{"name": "work", "slots": slots}]));
    host.until(|host| (host.joined().len() == processes).then_some(())).await;
    (db, host)
}

async fn schedule(db: &Db, payload: &str) -> i64 {
    db.schedule_with("work", &json!(payload).to_string()).await
}

#[tokio::test]
async fn a_process_runs_a_task_and_its_output_comes_back_as_it_was() {
    let (db, host) = host("p_max_attempts => 3", 1, 2).await;
    let id = schedule(&db, "go").await;
    db.until_status(id, "success").await;
    let output: Value = db.one("select output from tuskline.task_output").await;
    assert_eq!(output, "go");
    let line = host.until_log("the body of \"go\"").await;
    assert!(line.contains(&format!("task={id} attempt=1")), "{line}");
}

/// The process is ended for one attempt. The others were not charged, and run in its successor.
#[tokio::test]
async fn an_attempt_past_its_deadline_ends_its_process_and_its_neighbours_go_back_uncharged() {
    let (db, host) = host("p_attempt_timeout => '1 s', p_max_attempts => 1", 1, 3).await;
    let neighbour = schedule(&db, "obey").await;
    host.record().until_begun(1).await;
    let stubborn = schedule(&db, "hold").await;
    db.until_status(stubborn, "dead").await;
    let first = host.joined()[0];
    assert!(!runs(first));
    // The neighbour had its own deadline by then, or goes back: either way no crash.
    let crashes: i64 = db.one("select count(*) from tuskline.task where crashes > 0").await;
    assert_eq!(crashes, 0);
    let charged = db
        .lines(&format!("select error_class from tuskline.task_failure where task_id = {stubborn}"))
        .await;
    assert_eq!(charged, ["timeout"]);
    assert_ne!(neighbour, stubborn);
    assert_eq!(host.overlaps(), "");
}

/// A cancel that is ignored ends the process; a neighbour without a deadline goes on in the next one.
#[tokio::test]
async fn a_cancel_that_is_ignored_ends_the_process_and_the_task() {
    let (db, host) = host("p_attempt_timeout => '1 h'", 1, 2).await;
    let (neighbour, stubborn) = (schedule(&db, "hold").await, schedule(&db, "hold").await);
    host.record().until_begun(2).await;
    db.cancel(stubborn).await;
    db.until_status(stubborn, "cancelled").await;
    let executions = host.record().until_begun(3).await;
    assert_eq!(executions[2].task, neighbour);
    host.open();
    db.until_status(neighbour, "success").await;
    let charged = db
        .lines(&format!("select attempt, crashes from tuskline.task where id = {neighbour}"))
        .await;
    assert_eq!(charged, ["1 | 0"]);
    assert_eq!(host.overlaps(), "");
}

/// Each task in hand of a process that ends by itself is charged. Then each runs alone, so only the culprit
/// is charged again.
#[tokio::test]
async fn only_the_culprit_of_a_crash_is_dead_in_the_end() {
    let (db, host) = host("p_attempt_timeout => '1 h'", 1, 4).await;
    let neighbours = [schedule(&db, "hold").await, schedule(&db, "hold").await];
    host.record().until_begun(2).await;
    let culprit = schedule(&db, "abort").await;
    db.until("select count(*) = 3 from tuskline.task where crashes >= 1").await;
    host.open();
    db.until_status(culprit, "dead").await;
    for neighbour in neighbours {
        db.until_status(neighbour, "success").await;
    }
    let causes = db
        .lines("select task_id, error_class, count(*) from tuskline.task_failure group by 1, 2 order by 1")
        .await;
    let charged = |task: i64, times: i64| format!("{task} | signal 6 | {times}");
    let expected = [charged(neighbours[0], 1), charged(neighbours[1], 1), charged(culprit, 3)];
    assert_eq!(causes, expected);
    assert_eq!(host.overlaps(), "");
}

#[tokio::test]
async fn an_exit_with_a_task_in_hand_is_a_crash_with_its_code() {
    let (db, _host) = host("p_max_crashes => 2", 1, 1).await;
    let id = schedule(&db, "exit").await;
    db.until_status(id, "dead").await;
    let causes = db.lines("select distinct error_class from tuskline.task_failure").await;
    assert_eq!(causes, ["exit 3"]);
}

/// A body and its daemon, which write the time without a pause, are killed at its deadline. Whatever the controller
/// does with its neighbour comes later than the last thing that they wrote. `TUSKLINE_TEST_KILLS` says how often. Its process has
/// lived for longer than a second, so the next one begins without a pause.
#[tokio::test]
async fn a_process_writes_nothing_after_its_neighbours_are_given_back() {
    let kills = std::env::var("TUSKLINE_TEST_KILLS").map_or(5, |kills| kills.parse().unwrap());
    let db = Db::new().await;
    db.define_with("work", "p_attempt_timeout => '1 h'").await;
    db.define_with("beat", "p_attempt_timeout => '1 s', p_max_attempts => 1").await;
    let lambdas = json!([{"name": "work", "slots": 1}, {"name": "beat", "slots": 1}]);
    let host = Host::start(&db, 1, lambdas);
    let neighbour = schedule(&db, "hold").await;
    let begun = |host: &Host| {
        let all = host.record().executions();
        all.iter().filter(|one| one.task == neighbour).count()
    };
    for kill in 1..=kills {
        host.until(|host| (begun(host) >= kill).then_some(())).await;
        let id = db.schedule_with("beat", "\"beat\"").await;
        db.until_status(id, "dead").await;
    }
    host.until(|host| (begun(host) > kills).then_some(())).await;
    let log = host.log();
    let given_back = |task: i64| {
        let all = log.lines().filter(|line| line.contains("has ended with tasks in hand"));
        let mut of_task = all.filter(|line| tasks_of(line).contains(&task));
        logged_at_ns(of_task.next().unwrap())
    };
    let rest = host.beats().into_iter().map(|(task, beat)| given_back(task) - beat.cast_signed());
    let mut rest: Vec<i64> = rest.collect();
    rest.sort_unstable();
    assert!(rest[0] > 0, "written after the hand-back: {rest:?}");
    let [least, median, most] = [0, rest.len() / 2, rest.len() - 1].map(|at| rest[at] / 1000);
    println!(
        "{} bodies in {kills} kills: nothing written after the hand-back; from the last write to it at least {least} µs, \
         median {median}, at most {most}",
        rest.len()
    );
    let charged = format!("select attempt, crashes from tuskline.task where id = {neighbour}");
    assert_eq!(db.lines(&charged).await, ["1 | 0"]);
    assert_eq!(host.overlaps(), "");
}

/// The tasks that a line of the log names.
fn tasks_of(line: &str) -> Vec<i64> {
    let list = line.split("tasks=[").nth(1).and_then(|rest| rest.split(']').next()).unwrap();
    list.split(", ").map(|task| task.parse().unwrap()).collect()
}

/// The time of a line of the log: nanoseconds since 1970.
fn logged_at_ns(line: &str) -> i64 {
    let at = line.split(' ').next().unwrap();
    chrono::DateTime::parse_from_rfc3339(at).unwrap().timestamp_nanos_opt().unwrap()
}

#[tokio::test]
async fn a_process_that_holds_too_much_memory_is_ended_and_the_cause_is_named() {
    let db = Db::new().await;
    db.define_with("work", "p_max_crashes => 2").await;
    let host = Host::start(&db, 1, json!([{"name": "work", "slots": 1, "memory_mib": 256}]));
    let id = schedule(&db, "eat").await;
    db.until_status(id, "dead").await;
    let causes = db.lines("select distinct error_class from tuskline.task_failure").await;
    assert_eq!(causes, ["memory"]);
    assert_eq!(host.overlaps(), "");
}

/// A daemon that a lambda has started on purpose ends with its executor, before the task runs again.
#[tokio::test]
async fn a_process_that_a_lambda_has_left_behind_ends_with_its_executor() {
    let (db, host) = host("p_attempt_timeout => '1 h'", 2, 1).await;
    let id = schedule(&db, "leave").await;
    let left = host.until(|host| host.left().first().copied()).await;
    host.record().until_begun(1).await;
    assert!(runs(left));
    db.cancel(id).await;
    db.until_status(id, "cancelled").await;
    assert!(!runs(left), "it ended before the result was given");
}

/// The database counts the controller as dead only after its executors have ended.
#[tokio::test]
async fn executors_of_a_controller_that_stands_still_end_before_the_lease() {
    let (db, host) = host("p_attempt_timeout => '1 h'", 2, 1).await;
    let id = schedule(&db, "hold").await;
    host.record().until_begun(1).await;
    let executors = host.joined();
    signal(host.controller(&db).await, Signal::STOP);
    host.until(|_| executors.iter().all(|pid| !runs(*pid)).then_some(())).await;
    let status = db.status(id).await;
    assert!(["claimed", "processing"].contains(&&*status), "{status}: nobody else may have it yet");
    signal(host.guardian(), Signal::KILL);
}

/// When it goes on, it hears what its controller has said meanwhile before it judges whose time is over.
#[tokio::test]
async fn a_guardian_that_stood_still_ends_nothing_of_a_controller_that_beats() {
    let (db, host) = host("p_attempt_timeout => '1 h'", 2, 1).await;
    let id = schedule(&db, "hold").await;
    host.record().until_begun(1).await;
    let executors = host.joined();
    signal(host.guardian(), Signal::STOP);
    // Longer than the time until which executors might run when it was stopped: T and a third of M.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    signal(host.guardian(), Signal::CONT);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(executors.iter().all(|pid| runs(*pid)), "{}", host.log());
    host.open();
    db.until_status(id, "success").await;
    let charged = db.lines("select attempt, crashes from tuskline.task").await;
    assert_eq!(charged, ["1 | 0"]);
}

#[tokio::test]
async fn executors_end_with_their_controller_and_with_their_guardian() {
    for who in ["controller", "guardian"] {
        let (db, mut host) = host("p_attempt_timeout => '1 h'", 2, 1).await;
        schedule(&db, "leave").await;
        let left = host.until(|host| host.left().first().copied()).await;
        let executors = host.joined();
        match who {
            "controller" => signal(host.controller(&db).await, Signal::KILL),
            _ => signal(host.guardian(), Signal::KILL),
        }
        let status = host.ended().await;
        host.until(|_| executors.iter().all(|pid| !runs(*pid)).then_some(())).await;
        if who == "controller" {
            assert_eq!(status.code(), Some(137));
            assert!(!runs(left), "the guardian has adopted and ended it");
        }
    }
}

#[tokio::test]
async fn explain_and_the_list_of_workers_name_the_process_of_a_task() {
    let (db, host) = host("p_attempt_timeout => '1 h'", 1, 1).await;
    let id = schedule(&db, "hold").await;
    host.record().until_begun(1).await;
    let process = host.joined()[0];
    db.until_status(id, "processing").await;
    let explained = format!(
        "select exists (select from tuskline.explain({id}) where detail like '%in its process {process} since%')"
    );
    db.until(&explained).await;
    db.until(&format!("select processes = '{{{process}}}' from tuskline.executors")).await;
    let said = format!("select said_at::text from tuskline.task_status({id})");
    assert_eq!(db.one::<Option<String>>(&said).await, None, "it has reported nothing yet");
}

/// Attempts that run may finish; one that does not within the grace goes back.
#[tokio::test]
async fn a_drain_lets_tasks_in_hand_finish_and_ends_in_order() {
    let (db, mut host) = host("p_attempt_timeout => '1 h'", 1, 2).await;
    let id = schedule(&db, "hold").await;
    host.record().until_begun(1).await;
    signal(host.guardian(), Signal::TERM);
    host.until_log("stopping").await;
    let late = schedule(&db, "go").await;
    host.open();
    assert_eq!(host.ended().await.code(), Some(0));
    assert_eq!(db.status(id).await, "success");
    assert_eq!(db.status(late).await, "enqueued");
    let ended = "select count(*) from tuskline.executor where ended_at is not null and end_reason = 'stopped'";
    assert_eq!(db.one::<i64>(ended).await, 1);
}

/// A lambda that is not defined is a mistake of the command, which is not started again and again.
#[tokio::test]
async fn a_command_whose_lambda_is_unknown_ends_the_controller() {
    let db = Db::new().await;
    let mut host = Host::start(&db, 1, json!([{"name": "nowhere", "slots": 1}]));
    assert_eq!(host.ended().await.code(), Some(2));
    assert!(host.log().contains("TK001"), "{}", host.log());
    assert_eq!(host.log().matches("refused:").count(), 1);
}

#[tokio::test]
async fn a_process_that_the_controller_has_not_started_is_refused() {
    let (_db, host) = host("p_max_attempts => 3", 1, 1).await;
    let line = host.until_log("the controller answers executors").await;
    let socket = line.split("socket=").nth(1).unwrap().trim();
    let mut wire = Wire::open(socket.as_ref());
    let join = json!({"protocol": 1, "lambdas": [{"name": "work"}]});
    let (status, refusal) = wire.ask("Join", &join);
    assert_eq!((status, &refusal["name"]), (400, &json!("invalid_message")));
    assert!(refusal["message"].as_str().unwrap().contains("not started by this controller"));
    let ask = json!({"executor": "1.0", "no": 1});
    assert_eq!(wire.ask("NextWork", &ask).0, 410);
    assert_eq!(wire.ask("NextWork", &json!({"no": 1})).0, 400);
    assert_eq!(wire.ask("Nothing", &json!({})).0, 404);
    let protocol = json!({"protocol": 0, "lambdas": [{"name": "work"}]});
    assert_eq!(wire.ask("Join", &protocol).1["name"], "unsupported_protocol");
    let twice = json!({"protocol": 1, "lambdas": [{"name": "work"}, {"name": "work"}]});
    assert_eq!(wire.ask("Join", &twice).1["field"], "lambdas[1].name");
}

/// The outage lasts longer than T: executors are ended, the controller goes on.
#[tokio::test]
async fn an_outage_ends_what_runs_and_the_controller_registers_again() {
    let mut cluster = own_cluster().await;
    let mut db = Db::in_cluster(&cluster).await;
    db.define_with("work", "p_attempt_timeout => '1 h'").await;
    let _consumer = db.store_consumer();
    let host = Host::start(&db, 1, json!([{"name": "work", "slots": 2}]));
    let (obeying, stubborn) = (schedule(&db, "obey").await, schedule(&db, "hold").await);
    host.record().until_begun(2).await;
    let first = host.joined()[0];
    cluster.stop(Stop::Fast).await.unwrap();
    host.until(|_| (!runs(first)).then_some(())).await;
    cluster.start_again().await.unwrap();
    db.reconnect().await;
    host.open();
    db.until_status(obeying, "success").await;
    db.until_status(stubborn, "success").await;
    assert_eq!(host.overlaps(), "");
    assert_eq!(host.log().matches("worker registered").count(), 2, "{}", host.log());
    let charged = db.lines("select attempt, crashes from tuskline.task").await;
    assert_eq!(charged, ["1 | 0", "1 | 0"]);
}
