//! Mistakes of executors: the controller refuses them by name, and nothing is lost.

use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::Db;
use crate::support::cli::{Running, on};

/// How long one answer may take.
const LIMIT: Duration = Duration::from_secs(60);

/// A controller whose only process does nothing. The test speaks for it.
struct Controller {
    socket: PathBuf,
    /// The process below the guardian.
    pid: u32,
    running: Option<Running>,
}

impl Controller {
    fn start(db: &Db) -> Self {
        Self::start_with(db, &[])
    }

    fn start_with(db: &Db, options: &[&str]) -> Self {
        let dir = std::env::temp_dir().join(format!("{}-wire", db.config.get_dbname().unwrap()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        let (socket, own) = (dir.join("socket"), dir.join("pid"));
        let script = format!("echo $$ >{0}.new; mv {0}.new {0}; exec sleep 3600", own.display());
        let mut call = on(&db.config, "controller --heartbeat 1s --drain-grace 100ms --socket");
        call = call.arg(socket.to_str().unwrap());
        for option in options {
            call = call.arg(option);
        }
        for argument in ["--cancel-grace", "100ms", "--", "sh", "-c", &script] {
            call = call.arg(argument);
        }
        let running = call.start();
        let mut controller = Self { socket, pid: 0, running: Some(running) };
        controller.until_another();
        controller
    }

    /// Waits until another process than the last one was started. From then on the test speaks for it.
    fn until_another(&mut self) {
        let own = self.socket.with_file_name("pid");
        let deadline = Instant::now() + LIMIT;
        let last = self.pid;
        while self.pid == last {
            let text = std::fs::read_to_string(&own).unwrap_or_default();
            self.pid = text.trim().parse().unwrap_or(last);
            assert!(Instant::now() < deadline, "no process was started");
            std::thread::yield_now();
        }
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    /// The status and the body of an answer.
    fn send(&self, message: &str, body: &[u8]) -> (u16, String) {
        let mut stream = self.connect();
        let head = format!(
            "POST /tuskline.v1.Controller/{message} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        // It may refuse before it has read everything.
        let _ = stream.write_all(body);
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, body.to_owned())
    }

    fn ask(&self, message: &str, body: &Value) -> (u16, Value) {
        let (status, answer) = self.send(message, body.to_string().as_bytes());
        (status, serde_json::from_str(&answer).unwrap())
    }

    /// The status, the name and the field of a refusal.
    fn refused(&self, message: &str, body: &Value) -> String {
        let (status, answer) = self.ask(message, body);
        let text = |name: &str| answer[name].as_str().unwrap_or("-").to_owned();
        format!("{status} {} {}", text("name"), text("field"))
    }

    fn join(&self, slots: usize) -> String {
        let lambdas = json!([{"name": "work", "slots": slots}]);
        let join = json!({"protocol": 1, "pid": self.pid, "lambdas": lambdas});
        let (status, answer) = self.ask("Join", &join);
        assert_eq!(status, 200, "{answer}");
        answer["executor"].as_str().unwrap().to_owned()
    }

    /// Ends it, so that the database has no session of it.
    fn end(mut self) {
        let running = self.running.take().unwrap();
        running.signal(rustix::process::Signal::TERM);
        running.end();
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.socket.parent().unwrap());
    }
}

#[tokio::test]
async fn messages_that_make_no_sense_are_refused_by_name() {
    let db = Db::with_lambda("work").await;
    let controller = Controller::start(&db);
    let (status, answer) = controller.send("NextWork", b"{\"no\": 1");
    assert_eq!(status, 400);
    assert!(answer.contains("invalid_message") && answer.contains("EOF"), "{answer}");
    let (status, _) = controller.send("Dance", b"{}");
    assert_eq!(status, 404);
    let (status, answer) = controller.send("NextWork", &vec![b' '; (8 << 20) + 1]);
    assert_eq!(status, 400, "{answer}");
    assert!(answer.contains("too_large"), "{answer}");
    let join = |change: fn(&mut Value)| {
        let lambdas = json!([{"name": "work", "slots": 1}]);
        let mut join = json!({"protocol": 1, "pid": controller.pid, "lambdas": lambdas});
        change(&mut join);
        controller.refused("Join", &join)
    };
    assert_eq!(join(|join| join["protocol"] = 0.into()), "400 unsupported_protocol -");
    assert_eq!(join(|join| join["lambdas"] = json!([])), "400 invalid_message lambdas");
    assert_eq!(
        join(|join| join["lambdas"][0]["slots"] = 0.into()),
        "400 invalid_message lambdas[0].slots"
    );
    assert_eq!(
        join(|join| join["lambdas"] = json!([{"name": "work"}, {"name": "work"}])),
        "400 invalid_message lambdas[1].name"
    );
    let fork = json!({"protocol": 1, "lambdas": [{"name": "work"}]});
    assert_eq!(controller.refused("NextFork", &fork), "400 invalid_message protocol");
    assert_eq!(
        join(|join| join["lambdas"][0]["name"] = "dance".into()),
        "400 unknown_lambda lambdas"
    );
    controller.end();
}

#[tokio::test]
async fn a_process_that_the_controller_did_not_start_cannot_join() {
    let db = Db::with_lambda("work").await;
    let controller = Controller::start(&db);
    let mode = std::fs::metadata(&controller.socket).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600, "no other user connects");
    let join = json!({"protocol": 1, "lambdas": [{"name": "work"}]});
    assert_eq!(controller.refused("Join", &join), "400 invalid_message pid", "the test itself");
    let join = json!({"protocol": 1, "pid": 1, "lambdas": [{"name": "work"}]});
    assert_eq!(controller.refused("Join", &join), "400 invalid_message pid", "not below it");
    for message in ["NextWork", "Leave", "Save"] {
        let body = json!({"executor": "1.0000000000000000", "no": 1, "task": "1", "fence": "1",
                          "checkpoint": "1"});
        assert_eq!(controller.refused(message, &body), "410 unknown_executor -");
    }
    controller.end();
}

#[tokio::test]
async fn a_number_out_of_turn_is_refused_with_the_one_that_is_expected() {
    let db = Db::with_lambda("work").await;
    let id = db.schedule("work").await;
    let controller = Controller::start(&db);
    let executor = controller.join(1);
    assert_eq!(controller.join(1), executor, "before its first message a Join may be repeated");
    let next = |no: u64| json!({"executor": executor, "no": no, "wait_ms": 25_000});
    let (status, first) = controller.ask("NextWork", &next(1));
    assert_eq!((status, &first["tasks"][0]["task"]), (200, &id.to_string().into()));
    assert_eq!(controller.ask("NextWork", &next(1)), (200, first), "the same again");
    for wrong in [0, 3] {
        let (status, answer) = controller.ask("NextWork", &next(wrong));
        assert_eq!((status, &answer["name"]), (400, &"wrong_number".into()));
        assert_eq!(answer["expected"], 2);
    }
    let join = json!({"protocol": 1, "pid": controller.pid, "lambdas": [{"name": "work"}]});
    assert_eq!(controller.refused("Join", &join), "400 invalid_message pid", "it has work");
    for lane in 1..16 {
        let next = json!({"executor": executor, "lane": lane, "no": 1});
        assert_eq!(controller.ask("NextWork", &next).0, 200);
    }
    let next = json!({"executor": executor, "lane": 16, "no": 1});
    assert_eq!(controller.refused("NextWork", &next), "400 invalid_message lane");
    controller.end();
}

#[tokio::test]
async fn a_result_that_is_wrong_refuses_no_other() {
    let db = Db::with_lambda("work").await;
    let ids = db.schedule_many("work", 3).await;
    let controller = Controller::start(&db);
    let executor = controller.join(3);
    let mut given = Vec::new();
    for no in 1.. {
        let next = json!({"executor": executor, "no": no, "wait_ms": 25_000});
        let (_, answer) = controller.ask("NextWork", &next);
        given.extend(answer["tasks"].as_array().cloned().unwrap_or_default());
        if given.len() == 3 {
            break;
        }
    }
    let result = |at: usize, status: &str| json!({"task": given[at]["task"], "fence": given[at]["fence"], "status": status});
    let mut stale = result(2, "success");
    stale["fence"] = "4711".into();
    let mut endless = result(2, "snoozed");
    endless["task"] = "4711".into();
    let results = json!([
        {"status": "success"}, {"task": 4711, "fence": "1", "status": "success"}, "success", null,
        result(0, "dance"), result(1, "success"), stale, endless
    ]);
    let deliver = json!({"executor": executor, "lane": 1, "no": 1, "results": results});
    let (status, answer) = controller.ask("NextWork", &deliver);
    assert_eq!(status, 200, "{answer}");
    let refused = json!([{"task": given[2]["task"], "fence": "4711"},
                         {"task": "4711", "fence": given[2]["fence"]}]);
    assert_eq!(answer["refused"], refused, "{answer}");
    let mut last = result(2, "success");
    last["output"] = "no JSON".into();
    let deliver = json!({"executor": executor, "lane": 1, "no": 2, "results": [last]});
    assert_eq!(controller.ask("NextWork", &deliver).0, 200);
    let ended = "select count(*) = 3 from tuskline.tasks where finished_at is not null";
    db.until(ended).await;
    let ended = db.lines("select status, count(*) from tuskline.tasks group by 1 order by 1").await;
    assert_eq!(ended, ["success | 1", "fatal_failure | 2"], "{ids:?}");
    let classes = db.lines("select error_class from tuskline.task_failure order by 1").await;
    assert_eq!(classes, ["output", "result"]);
    let save = json!({"executor": executor, "task": given[2]["task"], "fence": given[2]["fence"],
                      "checkpoint": "1"});
    assert_eq!(controller.refused("Save", &save), "409 not_current -", "it is over");
    controller.end();
}

#[tokio::test]
async fn a_message_that_does_not_end_holds_up_no_other() {
    let db = Db::with_lambda("work").await;
    let id = db.schedule("work").await;
    let controller = Controller::start(&db);
    let mut slow = controller.connect();
    slow.write_all(b"POST /tuskline.v1.Controller/Join HTTP/1.1\r\ncontent-length: 99\r\n\r\n{")
        .unwrap();
    let mut noise = controller.connect();
    noise.write_all(b"\x16\x03\x01 no HTTP\r\n\r\n").unwrap();
    let executor = controller.join(1);
    // Half an answer is read, then the connection breaks.
    let mut broken = controller.connect();
    let text = json!({"executor": executor, "no": 1, "wait_ms": 25_000}).to_string();
    let head = "POST /tuskline.v1.Controller/NextWork HTTP/1.1\r\nhost: t\r\ncontent-length:";
    write!(broken, "{head} {}\r\n\r\n{text}", text.len()).unwrap();
    assert_eq!(broken.read(&mut [0; 16]).unwrap(), 16);
    drop(broken);
    let next = json!({"executor": executor, "no": 1, "wait_ms": 25_000});
    let (_, answer) = controller.ask("NextWork", &next);
    assert_eq!(answer["tasks"][0]["task"], id.to_string(), "it comes again");
    let result = json!([{"task": id.to_string(), "fence": answer["tasks"][0]["fence"],
                         "status": "success", "output": "9007199254740993"}]);
    let next = json!({"executor": executor, "no": 2, "results": result});
    assert_eq!(controller.ask("NextWork", &next).0, 200);
    db.until("select status = 'success' from tuskline.tasks").await;
    let output: String = db.one("select output::text from tuskline.task_output").await;
    assert_eq!(output, "9007199254740993");
    controller.end();
}

/// With a free slot it should ask. What it has in hand goes back uncharged, after its process has ended.
#[tokio::test]
async fn an_executor_with_a_free_slot_that_asks_for_nothing_is_replaced() {
    let db = Db::with_lambda("work").await;
    let id = db.schedule("work").await;
    let mut controller = Controller::start_with(&db, &["--silence", "2s"]);
    let silent = controller.join(2);
    let take = |controller: &Controller, executor: &str| {
        let next = json!({"executor": executor, "no": 1, "wait_ms": 25_000});
        let (status, answer) = controller.ask("NextWork", &next);
        assert_eq!((status, &answer["tasks"][0]["task"]), (200, &id.to_string().into()));
        answer["tasks"][0].clone()
    };
    let first = take(&controller, &silent);
    controller.until_another();
    let next = json!({"executor": silent, "no": 2});
    assert_eq!(controller.refused("NextWork", &next), "410 unknown_executor -");
    let executor = controller.join(2);
    let second = take(&controller, &executor);
    assert_ne!(first["fence"], second["fence"]);
    assert_eq!(second["attempt"], 1, "it was not charged");
    let result = json!([{"task": second["task"], "fence": second["fence"], "status": "success"}]);
    let next = json!({"executor": executor, "no": 2, "results": result});
    assert_eq!(controller.ask("NextWork", &next).0, 200);
    db.until_status(id, "success").await;
    assert_eq!(db.lines("select attempt, crashes from tuskline.task").await, ["1 | 0"]);
    controller.end();
}

/// One that has joined and never says a word, too.
#[tokio::test]
async fn an_executor_that_joins_and_never_asks_is_replaced() {
    let db = Db::with_lambda("work").await;
    let mut controller = Controller::start_with(&db, &["--silence", "2s"]);
    controller.join(1);
    controller.until_another();
    controller.join(1);
    controller.end();
}

/// All its slots are in use: there is nothing that it could ask for.
#[tokio::test]
async fn a_silent_executor_without_a_free_slot_works_on() {
    let db = Db::with_lambda("work").await;
    let id = db.schedule("work").await;
    let controller = Controller::start_with(&db, &["--silence", "2s"]);
    let executor = controller.join(1);
    let next = json!({"executor": executor, "no": 1, "wait_ms": 25_000});
    let (_, answer) = controller.ask("NextWork", &next);
    let fence = &answer["tasks"][0]["fence"];
    // Waits for cancels only, for longer than an executor may be silent.
    let listen = json!({"executor": executor, "lane": 1, "no": 1, "max": 0, "wait_ms": 3000});
    assert_eq!(controller.ask("NextWork", &listen).0, 200, "it runs");
    let result = json!([{"task": id.to_string(), "fence": fence, "status": "success"}]);
    let next = json!({"executor": executor, "no": 2, "results": result});
    let (status, answer) = controller.ask("NextWork", &next);
    assert_eq!((status, &answer["refused"]), (200, &Value::Null));
    db.until_status(id, "success").await;
    controller.end();
}
