//! The processes under test: started, killed, frozen, drained, and started again as a supervisor
//! would do. Every start, stop and end is in the history. The thread that waits for a process
//! records its end as soon as the kernel reports it. It runs with precedence over all other
//! threads.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::sync::watch;
use tuskline_history::{Event, Role, Writer, now_ns};

use crate::role::{self, Load, Order, Timings};

/// Least time between two starts on one post.
const LEAST_LIFE: Duration = Duration::from_millis(300);

/// A place for one process, with a door of its own to the database.
pub struct Post {
    pub role: Role,
    pub door: tuskline_fault::proxy::Door,
    member: Option<Member>,
    started_at: Instant,
    /// Variables for the next process on this post: a shifted clock, for one.
    pub environment: Vec<(String, String)>,
}

/// A running process.
#[derive(Debug, Clone)]
pub struct Member {
    pub pid: u32,
    handle: Arc<std::os::fd::OwnedFd>,
    ended: watch::Receiver<bool>,
}

/// Everything a process needs to know.
#[derive(Debug, Clone)]
pub struct Plan {
    pub history: PathBuf,
    pub locks: PathBuf,
    pub logs: PathBuf,
    pub user: String,
    pub database: String,
    pub timings: Timings,
    pub load: Load,
    /// Variables of every process.
    pub environment: Vec<(String, String)>,
}

/// All posts.
pub struct Workers {
    plan: Plan,
    writer: Writer,
    started: u64,
    pub posts: Vec<Post>,
}

impl Workers {
    pub fn new(plan: Plan, writer: Writer) -> Self {
        Self { plan, writer, started: 0, posts: Vec::new() }
    }

    /// Adds a post and starts its first process.
    pub fn post(
        &mut self,
        role: Role,
        door: tuskline_fault::proxy::Door,
        environment: Vec<(String, String)>,
    ) -> anyhow::Result<()> {
        self.posts.push(Post { role, door, member: None, started_at: Instant::now(), environment });
        self.fill(self.posts.len() - 1)
    }

    /// Starts a process on every post whose process is gone. A process that ended right after its
    /// start waits a moment, as with any supervisor. Otherwise an outage becomes a storm of
    /// connections.
    pub fn fill_all(&mut self) -> anyhow::Result<u32> {
        let mut filled = 0;
        for at in 0..self.posts.len() {
            let post = &self.posts[at];
            if post.running().is_none() && post.started_at.elapsed() > LEAST_LIFE {
                self.fill(at)?;
                filled += 1;
            }
        }
        Ok(filled)
    }

    fn fill(&mut self, at: usize) -> anyhow::Result<()> {
        self.started += 1;
        let post = &self.posts[at];
        let plan = &self.plan;
        let order = Order {
            role: post.role,
            url: format!(
                "postgresql://{}@127.0.0.1:{}/{}?connect_timeout=3",
                plan.user,
                post.door.port(),
                plan.database
            ),
            history: plan.history.clone(),
            locks: plan.locks.clone(),
            timings: plan.timings,
            load: plan.load,
            number: self.started,
        };
        let log = plan.logs.join(format!("{:?}-{}.log", post.role, self.started).to_lowercase());
        let mut command = Command::new(std::env::current_exe()?);
        command
            .env(role::ORDER, serde_json::to_string(&order)?)
            .envs(plan.environment.iter().cloned())
            .envs(post.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(log)?);
        let child = command.spawn().context("cannot start a process")?;
        self.writer.note(Event::Spawned { pid: child.id(), role: post.role });
        self.posts[at].started_at = Instant::now();
        self.posts[at].member = Some(Member::watch(child, self.writer.clone())?);
        Ok(())
    }

    /// Posts of a role, by number.
    pub fn of(&self, role: Role) -> Vec<usize> {
        (0..self.posts.len()).filter(|at| self.posts[*at].role == role).collect()
    }

    /// The process on a post, if it runs.
    pub fn member(&self, at: usize) -> Option<Member> {
        self.posts[at].running()
    }

    /// Ends every process of a role in order; false: some had to be killed.
    pub async fn end(&mut self, role: Role, limit: Duration) -> bool {
        let members: Vec<_> = self.of(role).into_iter().filter_map(|at| self.member(at)).collect();
        for member in &members {
            member.signal(Signal::TERM);
        }
        let mut in_order = true;
        for member in members {
            if !member.ended(limit).await {
                in_order = false;
                member.signal(Signal::KILL);
                member.ended(Duration::from_secs(10)).await;
            }
        }
        self.posts.retain(|post| post.role != role);
        in_order
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for post in &self.posts {
            if let Some(member) = &post.member {
                member.signal(Signal::KILL);
            }
        }
    }
}

impl Post {
    fn running(&self) -> Option<Member> {
        self.member.clone().filter(|member| !*member.ended.borrow())
    }
}

impl Member {
    /// A process that is no child of this one. Its end is in the history as soon as its pidfd tells it.
    ///
    /// # Errors
    /// It has ended.
    pub fn adopt(pid: u32, writer: Writer) -> anyhow::Result<Self> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).context("a pid")?;
        let handle = Arc::new(pidfd_open(raw, PidfdFlags::empty())?);
        let (tell, ended) = watch::channel(false);
        let theirs = Arc::clone(&handle);
        std::thread::Builder::new().name(format!("wait-{pid}")).spawn(move || {
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), -20);
            let mut end = [PollFd::new(&*theirs, PollFlags::IN)];
            while poll(&mut end, None).is_err() {}
            writer.note(Event::Reaped { pid, code: None, signal: None });
            tell.send_replace(true);
        })?;
        Ok(Self { pid, handle, ended })
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        *self.ended.borrow()
    }

    fn watch(mut child: Child, writer: Writer) -> anyhow::Result<Self> {
        let pid = child.id();
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).context("a pid")?;
        let handle = Arc::new(pidfd_open(raw, PidfdFlags::empty())?);
        let (tell, ended) = watch::channel(false);
        std::thread::Builder::new().name(format!("wait-{pid}")).spawn(move || {
            // Else it may learn of an end, within 1 ms of SIGCONT, up to 100 ms later.
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), -20);
            let status = child.wait();
            let at = now_ns();
            let (code, signal) = match status {
                Ok(status) => (status.code(), status.signal()),
                Err(_) => (None, None),
            };
            writer.note_at(at, Event::Reaped { pid, code, signal });
            tell.send_replace(true);
            forget_false_clock(pid);
        })?;
        Ok(Self { pid, handle, ended })
    }

    /// Sends a signal to this process, and never to another process with its number.
    pub fn signal(&self, signal: Signal) {
        // It may have ended by itself already.
        let _ = pidfd_send_signal(&*self.handle, signal);
    }

    /// Waits for its end; false: it goes on.
    pub async fn ended(&self, limit: Duration) -> bool {
        let mut ended = self.ended.clone();
        tokio::time::timeout(limit, ended.wait_for(|ended| *ended)).await.is_ok()
    }

    /// Freezes it; every thread stands still when this returns true.
    pub async fn freeze(&self, writer: &Writer) -> bool {
        self.signal(Signal::STOP);
        while !*self.ended.borrow() {
            if all_stopped(self.pid) {
                writer.note(Event::Stopped { pid: self.pid });
                return true;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        false
    }

    /// Lets it go on.
    pub fn thaw(&self, writer: &Writer) {
        writer.note(Event::Continued { pid: self.pid });
        self.signal(Signal::CONT);
    }
}

/// Removes the files that libfaketime leaves in memory when a process under it is killed.
fn forget_false_clock(pid: u32) {
    for left in ["faketime_shm_", "sem.faketime_sem_"] {
        let _ = std::fs::remove_file(format!("/dev/shm/{left}{pid}"));
    }
}

/// Whether every thread of a process is stopped.
fn all_stopped(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.flatten().all(|thread| is_stopped(&thread.path().join("stat")))
}

/// The state is the word after the name, which is in parentheses and may hold anything.
fn is_stopped(stat: &Path) -> bool {
    let text = std::fs::read_to_string(stat).unwrap_or_default();
    let state = text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state == Some('T')
}

/// A number of the fault, and its lines in the history.
#[derive(Debug, Clone)]
pub struct Faults {
    writer: Writer,
    counts: Arc<Mutex<(u64, std::collections::BTreeMap<String, u64>)>>,
}

/// A fault that goes on; it is over when this is dropped.
#[derive(Debug)]
pub struct Ongoing {
    writer: Writer,
    id: u64,
}

impl Faults {
    pub fn new(writer: Writer) -> Self {
        Self { writer, counts: Arc::default() }
    }

    /// Writes that a fault begins.
    pub fn begin(&self, kind: &str, pid: Option<u32>, detail: impl Into<String>) -> Ongoing {
        let id = {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            counts.0 += 1;
            *counts.1.entry(kind.to_owned()).or_default() += 1;
            counts.0
        };
        self.writer.note(Event::Fault { id, kind: kind.into(), pid, detail: detail.into() });
        Ongoing { writer: self.writer.clone(), id }
    }

    /// How many of a kind so far.
    pub fn count(&self, kind: &str) -> u64 {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.1.get(kind).copied().unwrap_or(0)
    }

    /// The history of the injector.
    pub fn writer(&self) -> &Writer {
        &self.writer
    }
}

impl Ongoing {
    /// Writes which tasks' rows it holds until it is over.
    pub fn holds(&self, tasks: Vec<i64>) {
        self.writer.note(Event::RowsHeld { id: self.id, tasks });
    }
}

impl Drop for Ongoing {
    fn drop(&mut self) {
        self.writer.note(Event::FaultEnd { id: self.id });
    }
}
