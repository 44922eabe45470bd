//! A worker in a process of a host controller (`tuskline controller`): it joins the controller's socket, and runs the
//! attempts that it is handed. The controller has the lease and the results; this process needs no database.
//!
//! Promises: all that is handed out begins at once. Lane 0 always waits for tasks and cancels; lane 1 brings results
//! and progress. Must never: end itself for a body: the controller ends processes, and then knows why.

mod door;
mod wire;

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use self::door::{Door, Refused};
use crate::client::Client;
use crate::db::hsc::Attempt;
use crate::db::json::clean;
use crate::error::{Code, Error};
use crate::worker::Worker;
use crate::worker::bodies::BodyGuard;
use crate::worker::body::{self, BodyEnd, Ended, conclude, context_of};
use crate::worker::context::Inner;
use crate::worker::data::DataMap;
use crate::worker::lambda::Lambda;
use crate::worker::outcome::Outcome;
use crate::worker::threads::Threads;
use crate::worker::work::{Stop, Work};

/// Where a host controller says that executors find it.
const SOCKET: &str = "TUSKLINE_SOCKET";
/// Longest wait of lane 0 for an answer.
const WAIT: Duration = Duration::from_secs(25);
/// Between two tries to join while the controller has no database.
const REST: Duration = Duration::from_secs(1);
/// Bytes of a message that are no results.
const ENVELOPE: usize = 64 * 1024;
/// Longest text of a progress, in bytes.
const PROGRESS_MAX_BYTES: usize = 8192;

/// See the module.
pub(crate) struct Process {
    socket: PathBuf,
    executor: String,
    lambdas: Vec<Lambda>,
    threads: Threads,
    client: Client,
    data: Arc<DataMap>,
    /// How long an async body may go on after it was told to stop. A part of the controller's grace: its end shall
    /// be reported before the process is ended.
    grace: Duration,
    max_message_bytes: usize,
    state: Mutex<State>,
    /// For lane 1: something is to be sent, or nothing is in hand any more.
    changed: Notify,
}

#[derive(Default)]
struct State {
    in_hand: HashMap<Attempt, Arc<Stop>>,
    results: VecDeque<Box<RawValue>>,
    progress: HashMap<Attempt, wire::Progress>,
    draining: bool,
}

/// An attempt's way to its controller.
pub(crate) struct Handed {
    process: Arc<Process>,
    attempt: Attempt,
    checkpoint: Mutex<Option<String>>,
}

/// The socket of the controller that has started this process.
pub(crate) fn socket() -> Option<PathBuf> {
    std::env::var_os(SOCKET).filter(|socket| !socket.is_empty()).map(PathBuf::from)
}

/// Joins, and works until the controller drains, or the worker is told to stop.
///
/// # Errors
/// [`Invalid`](crate::ErrorKind::Invalid): the controller refuses a message, as where it knows no such lambda.
/// [`Unavailable`](crate::ErrorKind::Unavailable): it is gone.
pub(crate) async fn run(worker: &Worker, client: &Client, socket: PathBuf) -> Result<(), Error> {
    let mut door = Door::new(socket.clone());
    let joined = join(&mut door, worker).await?;
    tracing::info!(executor = joined.executor, "joined a controller");
    let config = &worker.config;
    let process = Arc::new(Process {
        socket,
        executor: joined.executor,
        threads: Threads::new(&worker.lambdas, config.slots, config.threads),
        lambdas: worker.lambdas.clone(),
        client: client.clone(),
        data: Arc::clone(&worker.data),
        grace: Duration::from_millis(joined.cancel_grace_ms) * 4 / 5,
        max_message_bytes: joined.max_message_bytes,
        state: Mutex::default(),
        changed: Notify::new(),
    });
    let _stop = process.threads.stop_on_drop();
    tokio::select! {
        ended = process.deliver() => ended,
        Err(error) = process.wait_for_work(door) => Err(error),
        Err(error) = process.leave(&worker.shutdown) => Err(error),
        () = process.threads.end_quiet() => Ok(()),
    }
}

async fn join(door: &mut Door, worker: &Worker) -> Result<wire::Joined, Error> {
    let join = wire::Join::of(&worker.lambdas, worker.config.slots);
    loop {
        match door.call("Join", &join).await? {
            Ok(answer) => return serde_json::from_slice(&answer).map_err(Error::unavailable),
            Err(Refused { status: 503, refusal }) => {
                tracing::warn!(refusal.message, "the controller cannot let it join yet");
                let rest = refusal.retry_after_ms.map_or(REST, Duration::from_millis);
                tokio::time::sleep(rest).await;
            }
            Err(Refused { status, refusal }) => return Err(refusal.into_error(status)),
        }
    }
}

impl Process {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lane 0. After a drain it asks on only while something is in hand.
    async fn wait_for_work(self: &Arc<Self>, mut door: Door) -> Result<(), Error> {
        for no in 1.. {
            let asked = self.next_work(0, no, WAIT);
            self.take(accepted(door.call("NextWork", &asked).await?)?)?;
            let is_over = {
                let state = self.lock();
                state.draining && state.in_hand.is_empty()
            };
            if is_over {
                std::future::pending::<()>().await;
            }
        }
        Ok(())
    }

    /// Lane 1, until nothing is in hand after a drain.
    async fn deliver(self: &Arc<Self>) -> Result<(), Error> {
        let mut door = Door::new(self.socket.clone());
        let mut no = 0;
        loop {
            let mut asked = self.next_work(1, no + 1, Duration::ZERO);
            let is_over = {
                let mut state = self.lock();
                asked.progress = state.progress.drain().map(|(_, progress)| progress).collect();
                asked.results = self.batch(&mut state.results);
                state.draining && state.in_hand.is_empty()
            };
            if asked.results.is_empty() && asked.progress.is_empty() {
                if is_over {
                    return Ok(());
                }
                self.changed.notified().await;
                continue;
            }
            no += 1;
            self.take(accepted(door.call("NextWork", &asked).await?)?)?;
        }
    }

    fn next_work(&self, lane: u32, no: u64, wait: Duration) -> wire::NextWork<'_> {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let (results, progress) = (Vec::new(), Vec::new());
        wire::NextWork { executor: &self.executor, lane, no, wait_ms, results, progress }
    }

    /// As many results as one message may hold.
    fn batch(&self, results: &mut VecDeque<Box<RawValue>>) -> Vec<Box<RawValue>> {
        let mut bytes = ENVELOPE;
        let fitting = results.iter().take_while(|result| {
            bytes += result.get().len() + 1;
            bytes <= self.max_message_bytes
        });
        let fitting = fitting.count();
        results.drain(..fitting).collect()
    }

    /// When the worker is told to stop: this process takes no more, and then hears a drain.
    async fn leave(&self, shutdown: &CancellationToken) -> Result<(), Error> {
        shutdown.cancelled().await;
        let mut door = Door::new(self.socket.clone());
        accepted(door.call("Leave", &wire::Leave { executor: &self.executor }).await?)?;
        std::future::pending().await
    }

    fn take(self: &Arc<Self>, answer: Bytes) -> Result<(), Error> {
        let work: wire::Work = serde_json::from_slice(&answer)
            .map_err(|error| Error::unavailable(format!("the controller's answer: {error}")))?;
        let mut begun = Vec::new();
        {
            let mut state = self.lock();
            state.draining |= work.draining;
            for cancel in work.cancel {
                let stop = cancel.id.parse().and_then(|attempt| state.in_hand.get(&attempt));
                if let Some(stop) = stop {
                    stop.stop(cancel.reason());
                }
            }
            for task in work.tasks {
                let Some(attempt) = task.id.parse() else { continue };
                let stop = Arc::<Stop>::default();
                state.in_hand.insert(attempt, Arc::clone(&stop));
                begun.push((attempt, stop, task));
            }
        }
        for (attempt, stop, task) in begun {
            self.begin(attempt, stop, task);
        }
        if work.draining {
            self.changed.notify_one();
        }
        Ok(())
    }

    /// Starts a body on the threads of its lambda.
    fn begin(self: &Arc<Self>, attempt: Attempt, stop: Arc<Stop>, task: wire::Task) {
        let limit = Duration::from_millis(task.timeout_ms);
        let mut work = Work {
            task: attempt.task,
            fence: attempt.fence,
            attempt: task.attempt,
            crashes: 0,
            counts: 0,
            first_start: task.checkpoint.is_none(),
            waited: Duration::from_millis(task.waited_ms),
            claimed_at: Instant::now(),
            collection: task.collection,
            traceparent: task.traceparent,
            payload: task.payload.unwrap_or_else(|| "null".to_owned()),
            stop,
            crash: None,
        };
        let Some(lambda) = self.lambdas.iter().position(|one| *one.name == *task.lambda) else {
            let stop = Arc::clone(&work.stop);
            return self.finish(attempt, &Ended::Unfinished(work), &stop);
        };
        let checkpoint = Mutex::new(task.checkpoint);
        let handed = Arc::new(Handed { process: Arc::clone(self), attempt, checkpoint });
        let running = BodyGuard::alone();
        let mut context =
            context_of(&self.lambdas[lambda], &mut work, limit, &self.client, &self.data, running);
        context.process = Some(handed);
        let begun = Mutex::new(Some((work, context)));
        let take = || begun.lock().unwrap_or_else(PoisonError::into_inner).take();
        let started = self.threads.start(lambda, 1, || Arc::clone(self).run(lambda, take(), limit));
        if let (Err(error), Some((work, _))) = (started, take()) {
            let outcome = Outcome::retriable(format!("no threads are to be had: {error}"));
            let (stop, end) = (Arc::clone(&work.stop), BodyEnd::Returned(outcome));
            self.finish(attempt, &conclude(work, end, limit), &stop);
        }
    }

    async fn run(self: Arc<Self>, lambda: usize, begun: Option<(Work, Inner)>, limit: Duration) {
        let Some((mut work, context)) = begun else { return };
        let (attempt, stop, lambda) = (work.id(), Arc::clone(&work.stop), &self.lambdas[lambda]);
        // Only the end of the process stops a body that blocks.
        let grace = (!lambda.blocking).then_some(self.grace);
        let end = match body::begin(lambda, context, &mut work) {
            Ok(body) => body::watch(lambda, &work, body, limit, grace).await,
            Err(panicked) => panicked,
        };
        self.finish(attempt, &conclude(work, end, limit), &stop);
    }

    fn finish(&self, attempt: Attempt, ended: &Ended, stop: &Stop) {
        let result = wire::result_of(ended, stop);
        let mut state = self.lock();
        state.in_hand.remove(&attempt);
        state.progress.remove(&attempt);
        state.results.push_back(result);
        drop(state);
        self.changed.notify_one();
    }
}

impl Handed {
    /// Shown from the next message on.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid): not 0 to 100 percent.
    pub(crate) fn progress(&self, percent: f32, text: &str) -> Result<(), Error> {
        if !(0.0..=100.0).contains(&percent) {
            let text = format!("0 to 100 percent, got {percent}");
            return Err(Error::refused(Code::InvalidProgress, text));
        }
        let text = clean(text, PROGRESS_MAX_BYTES);
        let progress = wire::Progress { attempt: self.attempt.into(), percent, text };
        let mut state = self.process.lock();
        if state.in_hand.contains_key(&self.attempt) {
            state.progress.insert(self.attempt, progress);
        }
        drop(state);
        self.process.changed.notify_one();
        Ok(())
    }

    /// # Errors
    /// As [`Context::save`](crate::Context::save).
    pub(crate) async fn save(&self, checkpoint: &str) -> Result<(), Error> {
        let executor = &*self.process.executor;
        let save = wire::Save { executor, attempt: self.attempt.into(), checkpoint };
        accepted(Door::new(self.process.socket.clone()).call("Save", &save).await?)?;
        *self.checkpoint.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(checkpoint.to_owned());
        Ok(())
    }

    pub(crate) fn checkpoint(&self) -> Option<String> {
        self.checkpoint.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn accepted(answer: Result<Bytes, Refused>) -> Result<Bytes, Error> {
    answer.map_err(|Refused { status, refusal }| refusal.into_error(status))
}

impl std::fmt::Debug for Handed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handed").field("attempt", &self.attempt).finish_non_exhaustive()
    }
}
