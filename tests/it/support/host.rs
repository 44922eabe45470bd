//! A host controller with executors in processes: `tuskline controller`, and a small executor that speaks to its
//! socket in the plainest way.

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::cli::{TUSKLINE, url};
use super::record::Record;
use super::{DEADLINE, Db};

const ORDER: &str = "TUSKLINE_TEST_EXECUTOR";
/// Where a daemon writes the time.
const BEAT: &str = "TUSKLINE_TEST_BEAT";

/// The order for each executor of a host.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Order {
    dir: PathBuf,
    /// Lambdas as Join takes them.
    lambdas: Value,
}

/// A controller below its guardian, with executors. The payload says what a body does:
///
/// - `go`: it succeeds, with its payload as the output;
/// - `hold`: it waits for [`Host::open`], and ignores that it shall stop;
/// - `obey`: it waits for the same, or for its cancel, and says that it has stopped;
/// - `abort`, `exit`: it ends its process by signal 6, or by `exit 3`;
/// - `leave`: it starts a process that leaves its session, and then waits as `hold`;
/// - `eat`: it takes memory until its process is ended;
/// - `beat`: it writes the time into memory that is shared, without a pause, until its process is ended. So does a
///   daemon that it has started.
pub struct Host {
    guardian: Child,
    record: Record,
    dir: tempfile::TempDir,
}

impl Host {
    /// Starts a controller that keeps so many executors of these lambdas, as Join takes them.
    pub fn start(db: &Db, processes: usize, lambdas: Value) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let record = Record::at(&dir.path().join("record"));
        let order = Order { dir: dir.path().into(), lambdas };
        let log = File::create(dir.path().join("log")).unwrap();
        let guardian = Command::new(TUSKLINE)
            .args(["controller", "--heartbeat", "400ms", "--cancel-grace", "300ms"])
            .args(["--drain-grace", "10s", "--processes", &processes.to_string(), "--"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "support::host::as_an_executor", "--nocapture"])
            .env(ORDER, serde_json::to_string(&order).unwrap())
            .env("TUSKLINE_DATABASE_URL", url(&db.config))
            .env("XDG_RUNTIME_DIR", dir.path())
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { guardian, record, dir }
    }

    /// The record of its executions.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    /// Lets bodies that wait succeed.
    pub fn open(&self) {
        File::create(self.dir.path().join("open")).unwrap();
    }

    /// The process id of the guardian.
    pub fn guardian(&self) -> u32 {
        self.guardian.id()
    }

    /// The process id of the controller.
    pub async fn controller(&self, db: &Db) -> u32 {
        let pid = "select pid from tuskline.executor order by executor_id desc limit 1";
        u32::try_from(db.one::<i32>(pid).await).unwrap()
    }

    /// Executors that have joined, in the order of their joins, also those that have ended.
    pub fn joined(&self) -> Vec<u32> {
        let log = self.log();
        let lines = log.lines().filter(|line| line.contains("an executor has joined"));
        lines.map(|line| field(line, "pid=").parse().unwrap()).collect()
    }

    /// Processes that bodies have left behind.
    pub fn left(&self) -> Vec<u32> {
        let text = std::fs::read_to_string(self.dir.path().join("left")).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// The last instants that bodies have written, by task: nanoseconds since 1970.
    pub fn beats(&self) -> Vec<(i64, u64)> {
        let files = std::fs::read_dir(self.dir.path()).unwrap().map(|file| file.unwrap().path());
        let beat = |path: PathBuf| {
            let task = path.file_name()?.to_str()?.strip_prefix("beat-")?.parse().unwrap();
            let bytes = std::fs::read(path).unwrap().try_into().unwrap();
            Some((task, u64::from_ne_bytes(bytes)))
        };
        files.filter_map(beat).collect()
    }

    /// Bodies that found another one of the same task.
    pub fn overlaps(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("overlaps")).unwrap_or_default()
    }

    /// Waits until the log has a line with this text, and returns it.
    pub async fn until_log(&self, text: &str) -> String {
        self.until(|host| host.log().lines().find(|line| line.contains(text)).map(str::to_owned))
            .await
    }

    /// Waits until something is there.
    pub async fn until<T>(&self, what: impl Fn(&Self) -> Option<T>) -> T {
        let asking = async {
            loop {
                if let Some(found) = what(self) {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        match tokio::time::timeout(DEADLINE, asking).await {
            Ok(found) => found,
            Err(_) => panic!("it never came; the log: {}", self.log()),
        }
    }

    /// Waits for the end of the guardian, and so of all below it.
    pub async fn ended(&mut self) -> ExitStatus {
        let asking = async {
            loop {
                if let Some(status) = self.guardian.try_wait().unwrap() {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(DEADLINE, asking).await.expect("the guardian ended")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the controller said: {}", self.log());
        }
        let _ = self.guardian.kill();
        let _ = self.guardian.wait();
        for pid in self.left() {
            signal(pid, Signal::KILL);
        }
    }
}

/// Sends a signal to a process that may have ended.
pub fn signal(pid: u32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal);
}

/// Whether a process runs; one whose status nobody has taken does not.
pub fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let found = line.split(name).nth(1).and_then(|rest| rest.split(' ').next());
    found.unwrap_or_else(|| panic!("no {name} in {line}"))
}

/// A connection to a controller.
pub struct Wire(BufReader<UnixStream>);

impl Wire {
    pub fn open(socket: &Path) -> Self {
        Self(BufReader::new(UnixStream::connect(socket).unwrap()))
    }

    /// Sends a message. Returns the status and the body of the answer.
    pub fn ask(&mut self, message: &str, body: &Value) -> (u16, Value) {
        let body = body.to_string();
        let (message, length) = (format!("/tuskline.v1.Controller/{message}"), body.len());
        let head =
            format!("POST {message} HTTP/1.1\r\nhost: t\r\ncontent-length: {length}\r\n\r\n");
        self.0.get_mut().write_all(format!("{head}{body}").as_bytes()).unwrap();
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        let mut length = 0;
        loop {
            line.clear();
            self.0.read_line(&mut line).unwrap();
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }
}

/// The other half, which runs in the process. Run as a test of its own it has no order and does nothing.
#[test]
fn as_an_executor() {
    let Ok(order) = std::env::var(ORDER) else { return };
    let order: Order = serde_json::from_str(&order).unwrap();
    let socket = PathBuf::from(std::env::var("TUSKLINE_SOCKET").unwrap());
    let mut wire = Wire::open(&socket);
    let (status, joined) = wire.ask("Join", &json!({"protocol": 1, "lambdas": order.lambdas}));
    if status != 200 {
        eprintln!("refused: {joined}");
        std::process::exit(if status == 400 { 2 } else { 1 });
    }
    let executor = joined["executor"].clone();
    let (results, finished) = mpsc::channel::<Value>();
    // Attempts whose results the controller has not taken, each with its cancel.
    let running: Arc<Mutex<HashMap<String, Arc<AtomicBool>>>> = Arc::default();
    let (mut sender, speaker, theirs) =
        (Wire::open(&socket), executor.clone(), Arc::clone(&running));
    std::thread::spawn(move || {
        for (at, result) in finished.iter().enumerate() {
            let no = at + 1;
            let message =
                json!({"executor": speaker, "lane": 1, "no": no, "max": 0, "results": [result]});
            assert_eq!(sender.ask("NextWork", &message).0, 200);
            theirs.lock().unwrap().remove(&attempt(&result));
        }
    });
    for no in 1.. {
        let message = json!({"executor": executor, "no": no, "wait_ms": 25_000});
        let (status, work) = wire.ask("NextWork", &message);
        assert_eq!(status, 200, "{work}");
        for cancel in work["cancel"].as_array().into_iter().flatten() {
            if let Some(cancelled) = running.lock().unwrap().get(&attempt(cancel)) {
                cancelled.store(true, Ordering::Relaxed);
            }
        }
        for task in work["tasks"].as_array().into_iter().flatten() {
            let (order, results, task) = (order.clone(), results.clone(), task.clone());
            let cancelled = Arc::new(AtomicBool::new(false));
            running.lock().unwrap().insert(attempt(&task), Arc::clone(&cancelled));
            std::thread::spawn(move || results.send(body(&order, &task, &cancelled)));
        }
        if work["draining"] == true {
            while !running.lock().unwrap().is_empty() {
                std::thread::sleep(Duration::from_millis(2));
            }
            std::process::exit(0);
        }
    }
}

fn attempt(of: &Value) -> String {
    format!("{} {}", of["task"], of["fence"])
}

/// Runs a body. Returns its result.
fn body(order: &Order, task: &Value, cancelled: &AtomicBool) -> Value {
    let number = |name: &str| task[name].as_str().unwrap().parse::<i64>().unwrap();
    let (id, fence) = (number("task"), number("fence"));
    let file = File::create(order.dir.join(format!("task-{id}"))).unwrap();
    // The kernel gives the lock back when the process has ended.
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        let overlaps = File::options().create(true).append(true).open(order.dir.join("overlaps"));
        writeln!(overlaps.unwrap(), "task {id} under fence {fence}").unwrap();
    }
    let begun = Record::at(&order.dir.join("record")).begin_attempt(id, fence);
    let payload: Value = serde_json::from_str(task["payload"].as_str().unwrap()).unwrap();
    let result = |status: &str, output: Option<&Value>| json!({"task": task["task"], "fence": task["fence"], "status": status, "output": output});
    println!("the body of {payload}");
    match payload.as_str().unwrap() {
        "abort" => std::process::abort(),
        "exit" => std::process::exit(3),
        "eat" => eat(),
        "beat" => {
            let path = order.dir.join(format!("beat-{id}"));
            let mut daemon = Command::new("setsid");
            daemon.arg("--fork").arg(std::env::current_exe().unwrap());
            daemon.args(["--exact", "support::host::as_a_daemon"]).env(BEAT, &path);
            assert!(daemon.status().unwrap().success());
            beat(&path)
        }
        "leave" => leave(&order.dir),
        _ => {}
    }
    let open = order.dir.join("open");
    while payload != "go" && !open.exists() {
        if payload == "obey" && cancelled.load(Ordering::Relaxed) {
            drop(begun);
            return result("cancelled", None);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    drop(begun);
    result("success", Some(&task["payload"]))
}

fn eat() {
    let mut eaten = Vec::new();
    loop {
        eaten.push(vec![1_u8; 8 << 20]);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a body has started, in a session of its own.
#[test]
fn as_a_daemon() {
    if let Ok(path) = std::env::var(BEAT) {
        beat(Path::new(&path));
    }
}

/// Writes to a mapping: no call of the system is made, and what was written stays when the process has ended.
#[allow(unsafe_code)]
fn beat(path: &Path) -> ! {
    let file = File::options().create(true).read(true).write(true).truncate(false).open(path);
    let file = file.unwrap();
    file.set_len(8).unwrap();
    let (access, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: the kernel chooses a place where nothing is mapped yet, and nothing unmaps it before the process ends.
    let mapped = unsafe { mmap(std::ptr::null_mut(), 8, access, shared, &file, 0) }.unwrap();
    // SAFETY: a mapping begins with a page, so it is aligned. It has the 8 bytes of the file, which nothing truncates,
    // and every process touches them as an atomic number only.
    let beat = unsafe { &*mapped.cast::<AtomicU64>() };
    loop {
        let now = clock_gettime(ClockId::Realtime);
        let ns = now.tv_sec * 1_000_000_000 + now.tv_nsec;
        beat.store(ns.unsigned_abs(), Ordering::Relaxed);
    }
}

/// Starts a process as a daemon does: in a session of its own, and orphaned at once.
fn leave(dir: &Path) {
    let left = dir.join("left");
    let script = format!("setsid sleep 1000 & echo $! >> {}", left.display());
    assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
}
