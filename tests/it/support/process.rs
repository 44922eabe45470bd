//! Real workers in processes of their own, which a test kills, freezes and resumes. They die with
//! the test: it holds their standard input, and the kernel ends them with the thread that started
//! them.

use std::fs::File;
use std::io::{BufRead as _, PipeReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, kill_process, prlimit,
    set_parent_process_death_signal, waitpid,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;
use tuskline_sdk::{Context, Lambda, Outcome, Worker};

use super::record::{Begun, Record};
use super::worker::{mortal, quick};
use super::{DEADLINE, Db, within};

const ORDER: &str = "TUSKLINE_TEST_WORKER";
/// The filter of its log, which it writes only if this is set.
const LOG: &str = "TUSKLINE_TEST_WORKER_LOG";

/// The settings of the process.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    host: PathBuf,
    database: String,
    user: String,
    port: u16,
    record: PathBuf,
    lambda: String,
    slots: usize,
    /// None: the process shall die soon when its heartbeats fail.
    drain_grace_ms: Option<u64>,
}

/// A worker process with one lambda. Its bodies wait until [`Process::open`], except for a payload
/// `"go"`. A `"stubborn"` body ignores the request to stop, and a `"stuck"` body does not even
/// yield. A `"beside"` body waits for a blocking thread that ignores it.
pub struct Process {
    child: Child,
    stdin: ChildStdin,
    record: Record,
    said: PathBuf,
    _unread: Option<PipeReader>,
    _dir: tempfile::TempDir,
}

impl Process {
    /// Starts a worker with so many slots that shall die soon when its heartbeats fail.
    pub fn start(db: &Db, lambda: &str, slots: usize) -> Self {
        Self::start_saying(db, lambda, slots, None, None)
    }

    /// The same, with the log as a part of its output.
    pub fn start_logging(db: &Db, lambda: &str, slots: usize, filter: &str) -> Self {
        Self::start_with(db, lambda, slots, None, None, Some(filter))
    }

    /// The same, without a reader of its output: the pipe that is its standard error is full.
    pub fn start_unheard(db: &Db, lambda: &str, slots: usize) -> Self {
        let (unread, mut full) = std::io::pipe().unwrap();
        fcntl_setfl(&full, OFlags::NONBLOCK).unwrap();
        while full.write(&[b'x'; 4096]).is_ok() {}
        fcntl_setfl(&full, OFlags::empty()).unwrap();
        let mut unheard = Self::start_saying(db, lambda, slots, None, Some(full.into()));
        unheard._unread = Some(unread);
        unheard
    }

    /// Starts a worker with the usual timings, but a limit for its drain.
    pub fn draining_within(db: &Db, lambda: &str, slots: usize, drain_grace: Duration) -> Self {
        Self::start_saying(db, lambda, slots, Some(drain_grace), None)
    }

    /// Without a `stderr`, a file keeps the output.
    fn start_saying(
        db: &Db,
        lambda: &str,
        slots: usize,
        drain_grace: Option<Duration>,
        stderr: Option<Stdio>,
    ) -> Self {
        Self::start_with(db, lambda, slots, drain_grace, stderr, None)
    }

    fn start_with(
        db: &Db,
        lambda: &str,
        slots: usize,
        drain_grace: Option<Duration>,
        stderr: Option<Stdio>,
        log: Option<&str>,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let record = Record::at(&dir.path().join("record"));
        let tokio_postgres::config::Host::Unix(host) = &db.config.get_hosts()[0] else {
            panic!("the cluster has a socket");
        };
        let order = Order {
            host: host.clone(),
            database: db.config.get_dbname().unwrap().into(),
            user: db.config.get_user().unwrap().into(),
            port: db.config.get_ports()[0],
            record: record.path().into(),
            lambda: lambda.into(),
            slots,
            drain_grace_ms: drain_grace.map(|grace| u64::try_from(grace.as_millis()).unwrap()),
        };
        let said = dir.path().join("stderr");
        let kept = File::create(&said).unwrap().into();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "support::process::as_a_child_work", "--nocapture"])
            .env(ORDER, serde_json::to_string(&order).unwrap())
            .envs(log.map(|filter| (LOG, filter)))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(stderr.unwrap_or(kept))
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        Self { child, stdin, record, said, _unread: None, _dir: dir }
    }

    /// The record of its executions.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Lets every body end.
    pub fn open(&mut self) {
        self.stdin.write_all(b"open\n").unwrap();
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Lets it open nothing any more: no file, no connection, and no threads for a lambda.
    pub fn refuse_descriptors(&self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        let none = Rlimit { current: Some(3), maximum: Some(3) };
        prlimit(pid, Resource::Nofile, none).unwrap();
    }

    /// Freezes it; every thread stands still when this returns, which takes a while on a busy
    /// machine after the signal was sent.
    pub async fn freeze(&self) {
        self.signal(Signal::STOP);
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        within(async {
            while waitpid(pid, WaitOptions::UNTRACED | WaitOptions::NOHANG).unwrap().is_none() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> ExitStatus {
        let asking = async {
            loop {
                if let Some(status) = self.child.try_wait().unwrap() {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(DEADLINE, asking).await.expect("the process ended")
    }

    /// Whether it has not ended.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Kills it; it is gone when this returns.
    pub async fn kill(&mut self) {
        self.signal(Signal::KILL);
        assert_eq!(self.ended().await.signal(), Some(9));
    }

    /// Its output on standard error.
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.said).unwrap()
    }

    /// Its number in the executor table.
    pub async fn executor(&self, db: &Db) -> i64 {
        let pid = self.child.id();
        db.until(&format!(
            "select exists (select from tuskline.executor where pid = {pid} and ended_at is null)"
        ))
        .await;
        db.one(&format!("select max(executor_id) from tuskline.executor where pid = {pid}")).await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("a worker process said: {}", self.said());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The other half, which runs in the process. Run as a test of its own it has no order and does
/// nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_a_child_work() {
    let Ok(order) = std::env::var(ORDER) else { return };
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    if let Ok(filter) = std::env::var(LOG) {
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
        log.with_target(false).with_writer(std::io::stderr).init();
    }
    let order: Order = serde_json::from_str(&order).unwrap();
    let (open, opened) = watch::channel(false);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            assert_eq!(line.unwrap(), "open");
            open.send_replace(true);
        }
        // The test is gone.
        std::process::exit(3);
    });
    let mut config = mortal();
    if let Some(grace_ms) = order.drain_grace_ms {
        config = quick();
        config.drain_grace = Duration::from_millis(grace_ms);
    }
    let mut database = tokio_postgres::Config::new();
    database.host_path(&order.host).port(order.port).user(&order.user).dbname(&order.database);
    Worker::builder(database)
        .config(config)
        .serve(lambda(&order.lambda, &order.record, opened).slots(order.slots))
        .run()
        .await
        .unwrap();
}

fn lambda(name: &str, record: &Path, opened: watch::Receiver<bool>) -> Lambda {
    let record = Record::at(record);
    Lambda::named(name, move |payload: Value, context: Context| {
        let (record, mut opened) = (record.clone(), opened.clone());
        async move {
            let begun = record.begin(&context);
            if payload == "stuck" {
                stuck(&begun);
            }
            if payload == "beside" {
                tokio::task::spawn_blocking(move || stuck(&begun)).await.unwrap();
            }
            let requested = async {
                match payload.as_str() {
                    Some("stubborn") => std::future::pending().await,
                    _ => context.cancelled().await,
                }
            };
            tokio::select! {
                opened = opened.wait_for(|open| *open || payload == "go") => drop(opened.unwrap()),
                () = requested => return Outcome::retriable("told to stop"),
            }
            Outcome::Success(None)
        }
    })
}

fn stuck(_begun: &Begun) {
    loop {
        std::thread::park();
    }
}
