//! The processes below the guardian: as many executors as were asked for, and a zygote if there is one.
//!
//! It promises: an executor that ends is replaced, after a pause that doubles while it ends at once. A command
//! that ends with 2 is wrong (bad arguments, a failed import, a message that was refused): it is not started
//! again, and the controller ends.

mod forks;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use super::environment::{GUARDIAN, OUTPUT, SOCKET};
use super::hand_out::HandOut;
use super::link::{Child, Ended, Link};
use super::process::{self, ProcessEnd};
use super::wire::Served;

/// How long a process may take to join.
const START: Duration = Duration::from_secs(60);
/// How long a fork may take to join, before another one is asked for.
const FORK: Duration = Duration::from_secs(10);
/// A process that lived longer has not ended at once.
const SHORT: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Statuses of ended processes that are kept until they are asked for.
const STATUSES: usize = 1024;
/// The exit code of a command that is wrong.
const WRONG: i32 = 2;

/// The command to run, and how often.
#[derive(Debug, Clone)]
pub struct Program {
    pub command: Vec<String>,
    pub processes: usize,
    /// The command is a zygote's: executors are its forks.
    pub is_zygote: bool,
    pub environment: Vec<(String, String)>,
}

/// See the module.
#[derive(Debug)]
pub struct Processes {
    pub(super) program: Program,
    guardian: u32,
    link: Arc<Link>,
    hand_out: Arc<HandOut>,
    state: Mutex<State>,
    /// A status has come.
    reaped: Notify,
    draining: CancellationToken,
    /// The command is wrong: why.
    pub(super) wrong: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    /// Processes that were started for us, by the guardian.
    started: HashSet<u32>,
    /// Requests to the guardian that are not answered: when they were sent, since the machine's start.
    spawning: Vec<Duration>,
    /// When an executor that had worked has ended last.
    worked_at: Option<Instant>,
    statuses: VecDeque<(u32, Ended)>,
    /// Forks that were asked for and have not joined, by their lambdas: when, since the machine's start.
    forking: HashMap<Vec<String>, VecDeque<Duration>>,
    /// No fork before then: the last one ended at once.
    fork_at: Option<Instant>,
    fork_pause: Duration,
    oom_kills: Option<u64>,
}

impl State {
    fn status_of(&self, pid: u32) -> Option<Ended> {
        self.statuses.iter().find(|(ended, _)| *ended == pid).map(|(_, how)| *how)
    }

    /// The first request for a process that is open.
    fn first_asked(&self) -> Option<Duration> {
        let oldest = process::since_boot().saturating_sub(FORK);
        let forking = self.forking.values().flatten().filter(|at| **at > oldest);
        self.spawning.iter().chain(forking).min().copied()
    }
}

impl Processes {
    pub fn new(
        program: Program,
        link: Arc<Link>,
        hand_out: Arc<HandOut>,
        draining: CancellationToken,
    ) -> Self {
        let guardian = std::env::var(GUARDIAN).ok().and_then(|pid| pid.parse().ok()).unwrap_or(0);
        let state = State { oom_kills: process::oom_kills(), ..State::default() };
        let (reaped, wrong) = (Notify::new(), CancellationToken::new());
        Self {
            program,
            guardian,
            link,
            hand_out,
            state: Mutex::new(state),
            reaped,
            draining,
            wrong,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the statuses that the guardian takes.
    pub async fn reap(&self, mut children: mpsc::UnboundedReceiver<Child>) {
        while let Some((pid, how)) = children.recv().await {
            let mut state = self.lock();
            // An earlier process of this number is none of the two any more.
            state.statuses.retain(|(ended, _)| *ended != pid);
            state.statuses.extend(how.map(|how| (pid, how)));
            if state.statuses.len() > STATUSES {
                state.statuses.pop_front();
            }
            drop(state);
            self.reaped.notify_waiters();
        }
    }

    async fn status_of(&self, pid: u32) -> Ended {
        loop {
            let reaped = self.reaped.notified();
            tokio::pin!(reaped);
            reaped.as_mut().enable();
            if let Some(how) = self.lock().status_of(pid) {
                return how;
            }
            reaped.await;
        }
    }

    /// Keeps one process running: an executor's, or the zygote's.
    pub async fn keep(self: Arc<Self>) {
        let mut pause = FIRST_PAUSE;
        while !self.draining.is_cancelled() {
            let began = Instant::now();
            match self.spawn().await {
                Ok(pid) => {
                    let how = self.until_ended(pid).await;
                    self.lock().started.remove(&pid);
                    let lived = began.elapsed();
                    self.hand_out.abandon(pid);
                    self.root_ended(pid, how, lived);
                    if lived > SHORT {
                        pause = FIRST_PAUSE;
                    }
                }
                Err(error) => tracing::error!(%error, "a process cannot be started"),
            }
            if self.draining.is_cancelled() || self.wrong.is_cancelled() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.draining.cancelled() => return,
            }
            pause = pause_after(pause, began, self.lock().worked_at);
        }
    }

    async fn spawn(&self) -> std::io::Result<u32> {
        let asked = process::since_boot();
        self.lock().spawning.push(asked);
        let Program { command, environment, .. } = self.program.clone();
        let spawned = self.link.spawn(command, environment).await;
        let mut state = self.lock();
        if let Some(at) = state.spawning.iter().position(|open| *open == asked) {
            state.spawning.swap_remove(at);
        }
        state.started.extend(spawned.as_ref().ok());
        spawned
    }

    /// Waits for the end of a process that the guardian has started; one that does not join is ended.
    async fn until_ended(&self, pid: u32) -> Ended {
        let status = self.status_of(pid);
        tokio::pin!(status);
        loop {
            let waited = tokio::time::timeout(START, &mut status).await;
            match waited {
                Ok(how) => return how,
                Err(_) if self.program.is_zygote || self.has_joined(pid) => {}
                Err(_) => {
                    tracing::error!(pid, "a process did not join within {START:?}, and is ended");
                    if let Ok(end) = ProcessEnd::of(pid) {
                        end.kill();
                    }
                }
            }
        }
    }

    /// An executor is this process, or descends from it.
    fn has_joined(&self, root: u32) -> bool {
        self.below(root).next().is_some()
    }

    fn below(&self, root: u32) -> impl Iterator<Item = u32> {
        let lineage = move |pid: &u32| {
            *pid == root || process::lineage(*pid, root).is_some_and(|line| !line.is_empty())
        };
        self.hand_out.pids().into_iter().filter(lineage)
    }

    fn root_ended(&self, pid: u32, how: Ended, lived: Duration) {
        let kind = if self.program.is_zygote { "the zygote" } else { "an executor's process" };
        if how.code == Some(WRONG) && !self.draining.is_cancelled() {
            tracing::error!(pid, "{kind} ended with 2: its command is wrong, see its output");
            self.wrong.cancel();
        } else if !self.draining.is_cancelled() {
            let Ended { signal, code } = how;
            tracing::info!(pid, ?signal, ?code, ?lived, "{kind} has ended; it is started again");
        }
    }

    /// A process that wants to join is one of ours. Returns its end.
    ///
    /// # Errors
    /// It is not below the guardian, it has ended, or this system has no pidfd.
    pub fn admit(&self, pid: u32) -> Result<ProcessEnd, String> {
        let end = ProcessEnd::of(pid).map_err(|error| format!("process {pid}: {error}"))?;
        // After its pidfd is open, so that no other process of this number is meant.
        if process::lineage(pid, self.guardian).is_none() {
            return Err(format!("process {pid} was not started by this controller"));
        }
        Ok(end)
    }

    /// A fork has joined, or was refused. Only then is it not waited for any more: it counts as an executor by now,
    /// or another one would be forked beside it. Nothing says which request it answers: the oldest stay.
    pub fn has_come(&self, lambdas: &[Served]) {
        let mut names: Vec<String> = lambdas.iter().map(|served| served.name.clone()).collect();
        names.sort();
        if let Some(asked) = self.lock().forking.get_mut(&names) {
            asked.pop_back();
        }
    }

    /// Waits for the end of an executor and of all that it has started, and gives its attempts their outcomes.
    pub async fn watch(self: Arc<Self>, pid: u32, end: Arc<ProcessEnd>) {
        let began = Instant::now();
        end.wait().await;
        let Some(ended) = self.hand_out.take_ended(pid) else { return };
        // Where the guardian stands still, or is not its parent, there is no status.
        let how = tokio::time::timeout(Duration::from_millis(500), self.status_of(pid)).await.ok();
        self.end_leftovers(pid).await;
        let by_kernel = self.kernel_ended_one();
        let at_once = began.elapsed() < SHORT && !ended.has_worked;
        {
            let mut state = self.lock();
            if ended.has_worked {
                state.worked_at = Some(Instant::now());
            }
            state.fork_pause = match at_once {
                true => LONGEST_PAUSE.min((state.fork_pause * 2).max(FIRST_PAUSE)),
                false => Duration::ZERO,
            };
            state.fork_at = Some(Instant::now() + state.fork_pause);
        }
        if self.program.is_zygote && how.is_some_and(|how| how.code == Some(WRONG)) {
            tracing::error!(pid, "an executor ended with 2: it is wrong, see its output");
            self.wrong.cancel();
        }
        self.hand_out.ended(ended, how, by_kernel);
    }

    /// Ends what an executor has left behind, until nothing of it is seen.
    async fn end_leftovers(&self, pid: u32) {
        let mut warned = Instant::now();
        let mut pause = Duration::from_micros(200);
        loop {
            // Before the look at what is known: one that was asked for by now is known then, or asked for still.
            let all = process::all();
            let (mut known, asked) = {
                let state = self.lock();
                (state.started.clone(), state.first_asked())
            };
            known.extend(self.hand_out.pids());
            known.insert(std::process::id());
            known.remove(&pid);
            if !process::end_leftovers(&all, pid, self.guardian, &known, asked) {
                return;
            }
            if warned.elapsed() > Duration::from_secs(5) {
                warned = Instant::now();
                tracing::warn!(pid, "processes that an executor has left behind do not end");
            }
            tokio::time::sleep(pause).await;
            pause = Duration::from_millis(20).min(pause * 2);
        }
    }

    /// The kernel has ended a process for its memory since the last look.
    fn kernel_ended_one(&self) -> bool {
        let now = process::oom_kills();
        let before = std::mem::replace(&mut self.lock().oom_kills, now);
        now > before
    }

    /// Waits until each executor has ended.
    pub async fn until_gone(&self) {
        loop {
            let gone = self.hand_out.gone.notified();
            tokio::pin!(gone);
            gone.as_mut().enable();
            if self.hand_out.pids().is_empty() {
                return;
            }
            gone.await;
        }
    }
}

/// The pause before the next start but one. Where its executor had work, the end of a process has another reason
/// than its command.
fn pause_after(pause: Duration, began: Instant, worked_at: Option<Instant>) -> Duration {
    match worked_at {
        Some(at) if at >= began => FIRST_PAUSE,
        _ => LONGEST_PAUSE.min(pause * 2),
    }
}

/// The environment of a process that the guardian starts.
pub fn environment(socket: &str, log: &str) -> Vec<(String, String)> {
    [(SOCKET, socket), (OUTPUT, log)].map(|(name, value)| (name.into(), value.into())).into()
}
