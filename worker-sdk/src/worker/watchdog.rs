//! Stops the bodies when heartbeats fail: the paper's "executor terminates itself". Where a body does
//! not stop in time, the process ends.
//!
//! T is counted from the moment the last acknowledged heartbeat was *sent*, on a clock that runs on
//! while the machine sleeps, by an OS thread that needs no runtime, no pool and no lock. Counted from
//! the answer instead, two executions of one task can overlap (an eleven-state trace of the model
//! checker shows how). It must never wait for anything but time: what may wait, a second thread does,
//! the stopper.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, mpsc};
use std::thread::Thread;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::worker::bodies::{Bodies, BodyGuard};

/// Replaces the end of the process, for tests that run in this process.
pub(crate) type OnLost = Arc<dyn Fn(&str) + Send + Sync>;

/// How all that runs under a registration ends.
pub(crate) struct Ending {
    /// Stops every body, and returns when its threads have ended. The stopper does it.
    pub stop: Box<dyn FnOnce() + Send>,
    /// Bodies have left something behind on their threads. The watchdog asks: it must not wait.
    pub left_behind: Box<dyn Fn() -> bool + Send>,
}

/// Longest time that the last words of a worker may take that the database counts as dead.
const LAST_WORDS_LOST: Duration = Duration::from_millis(20);
/// The same for a worker that holds its leases: nothing runs elsewhere before it has ended. 20 ms are too short for
/// the thread that writes on a machine with ten times more runnable threads than processors.
const LAST_WORDS_HELD: Duration = Duration::from_secs(1);
/// Time for the bodies of a worker that the database counts as dead: other workers may already run its
/// tasks. Also for what bodies have left behind, where this thread itself is late.
const AT_ONCE: Duration = Duration::from_millis(100);
/// Between two looks at the count of bodies.
const LOOK: Duration = Duration::from_millis(1);

/// In place of the time of a heartbeat: T is over, and no answer counts any more.
const OVER: u64 = 0;

/// Why the process ends, and a channel that is told when the text is written.
type Words = (String, mpsc::Sender<()>);

/// A thread that writes the last words. The watchdog itself must not wait for a full pipe, a slow disk, or
/// a lock on standard error. None: the thread could not be started.
static SPEAKER: LazyLock<Option<mpsc::Sender<Words>>> = LazyLock::new(|| {
    let (speaker, words) = mpsc::channel::<Words>();
    let speak = move || {
        for (words, said) in words {
            eprintln!("tuskline: worker ends itself: {words}; its tasks will run elsewhere");
            tracing::error!(why = words, "worker ends itself");
            let _ = said.send(());
        }
    };
    std::thread::Builder::new().name("tuskline-speaker".into()).spawn(speak).ok().map(|_| speaker)
});

/// How the database calls a worker dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Loss {
    /// Its row says that it has ended.
    Ended = 1,
    /// There is no such row, or one that knows fewer heartbeats than were acknowledged: the database is
    /// a copy of an earlier state.
    Past = 2,
}

/// How long a worker goes on without an acknowledged heartbeat, and its bodies after that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// T.
    pub silence: Duration,
    /// Time for bodies to stop after T; a part of M.
    pub stop: Duration,
}

/// Handle of the watchdog thread, for one registration of the worker.
#[derive(Debug)]
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    thread: Thread,
}

#[derive(Debug)]
struct Shared {
    limit_ns: u64,
    stop_ns: u64,
    last_sent_ns: AtomicU64,
    disarmed: AtomicBool,
    /// A [`Loss`]; 0: none.
    condemned: AtomicU8,
    bodies: Arc<Bodies>,
    /// The stopper has stopped everything.
    stopped: AtomicBool,
    lost: CancellationToken,
}

impl Watchdog {
    /// Starts the threads; `sent_ns` is when the registration was sent.
    pub(crate) fn start(
        limits: Limits,
        sent_ns: u64,
        Ending { stop, left_behind }: Ending,
        on_lost: Option<OnLost>,
    ) -> std::io::Result<Self> {
        LazyLock::force(&SPEAKER);
        let shared = Arc::new(Shared {
            limit_ns: nanos(limits.silence),
            stop_ns: nanos(limits.stop),
            last_sent_ns: AtomicU64::new(sent_ns),
            disarmed: AtomicBool::new(false),
            condemned: AtomicU8::new(0),
            bodies: Arc::default(),
            stopped: AtomicBool::new(false),
            lost: CancellationToken::new(),
        });
        let theirs = Arc::clone(&shared);
        let stopper = std::thread::Builder::new()
            .name("tuskline-stopper".into())
            .spawn(move || stand_by(&theirs, stop))?;
        let (watched, stopper) = (Arc::clone(&shared), stopper.thread().clone());
        let idle = stopper.clone();
        let thread = std::thread::Builder::new()
            .name("tuskline-watchdog".into())
            .spawn(move || watch(&watched, &stopper, limits, left_behind, on_lost.as_ref()))
            .inspect_err(|_| {
                shared.disarmed.store(true, Ordering::Relaxed);
                idle.unpark();
            })?;
        Ok(Self { shared, thread: thread.thread().clone() })
    }

    /// The guard of a body that is about to begin. `None`: T is over, or the worker is condemned.
    pub(crate) fn begin(&self) -> Option<BodyGuard> {
        // The clock as well: a process that stood still may get here before the watchdog does.
        if self.is_over() { None } else { self.shared.bodies.begin() }
    }

    /// A heartbeat sent at `sent_ns` was acknowledged. False: too late, the bodies are being stopped.
    pub(crate) fn acknowledge(&self, sent_ns: u64) -> bool {
        let later = |last: u64| (last != OVER).then_some(last.max(sent_ns));
        self.shared.last_sent_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later).is_ok()
    }

    /// The database said that we are dead: stop now.
    pub(crate) fn condemn(&self, verdict: Loss) {
        let condemned = &self.shared.condemned;
        let _ = condemned.compare_exchange(0, verdict as u8, Ordering::Relaxed, Ordering::Relaxed);
        self.thread.unpark();
    }

    /// Past the limit or condemned: nothing may begin any more.
    pub(crate) fn is_over(&self) -> bool {
        self.shared.condemned.load(Ordering::Relaxed) != 0
            || clock_ns()
                >= self
                    .shared
                    .last_sent_ns
                    .load(Ordering::Relaxed)
                    .saturating_add(self.shared.limit_ns)
    }

    /// Waits until this registration is over and nothing of it runs any more.
    pub(crate) async fn lost(&self) {
        self.shared.lost.cancelled().await;
    }

    /// The worker ends in order: stand down.
    pub(crate) fn disarm(&self) {
        self.shared.disarmed.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

impl Shared {
    /// T is over since the heartbeat sent at `last`, unless a later one was acknowledged meanwhile: this
    /// thread may have waited for a processor since it looked.
    fn ends(&self, last: u64) -> bool {
        self.last_sent_ns.compare_exchange(last, OVER, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn is_disarmed(&self) -> bool {
        self.disarmed.load(Ordering::Relaxed)
    }

    /// Waits until nothing runs any more. False: a body has not stopped by `deadline`, or what one has left
    /// behind is seen without a break for a moment, and beyond it.
    ///
    /// Idle threads have all the time that they take to get a processor: they can do no harm.
    fn until_stopped(&self, deadline: u64, left_behind: &dyn Fn() -> bool) -> bool {
        let mut clear_at = clock_ns();
        loop {
            let (running, now) = (self.bodies.running(), clock_ns());
            let idle = self.stopped.load(Ordering::Acquire) || self.is_disarmed();
            if running == 0 && idle {
                return true;
            }
            if running == 0 && !left_behind() {
                clear_at = now;
            }
            let idle_deadline = deadline.max(clear_at.saturating_add(nanos(AT_ONCE)));
            if now >= if running == 0 { idle_deadline } else { deadline } {
                return false;
            }
            std::thread::park_timeout(LOOK);
        }
    }
}

/// The end of a registration.
struct Over {
    why: String,
    /// Until then bodies may take to stop.
    deadline: u64,
}

/// The stopper: waits until the registration is over, then stops all that runs under it.
fn stand_by(shared: &Shared, stop: Box<dyn FnOnce() + Send>) {
    while !shared.bodies.is_closed() {
        if shared.is_disarmed() {
            return;
        }
        std::thread::park();
    }
    stop();
    shared.stopped.store(true, Ordering::Release);
}

fn watch(
    shared: &Shared,
    stopper: &Thread,
    limits: Limits,
    left_behind: impl Fn() -> bool,
    on_lost: Option<&OnLost>,
) {
    ask_for_precedence();
    let over = until_over(shared, limits);
    if over.is_some() {
        shared.bodies.close();
    }
    stopper.unpark();
    let Some(Over { why, deadline }) = over else { return };
    if shared.until_stopped(deadline, &left_behind) {
        // Nothing is left that must be ended in time: from here on this thread may wait.
        tracing::warn!(why, "worker has stopped its bodies and registers again");
        shared.lost.cancel();
        return;
    }
    match on_lost {
        Some(act) => act(&why),
        None => end_process_within(&why, LAST_WORDS_LOST),
    }
}

/// None: disarmed.
fn until_over(shared: &Shared, limits: Limits) -> Option<Over> {
    loop {
        if shared.is_disarmed() {
            return None;
        }
        let last = shared.last_sent_ns.load(Ordering::Relaxed);
        let (now, limit) = (clock_ns(), last.saturating_add(shared.limit_ns));
        let condemned = shared.condemned.load(Ordering::Relaxed);
        if condemned != 0 || (now >= limit && shared.ends(last)) {
            let latest = limit.saturating_add(shared.stop_ns);
            let (why, deadline) = match condemned {
                0 => (format!("no heartbeat was acknowledged for {:?}", limits.silence), latest),
                _ => (said(condemned), latest.min(now.saturating_add(nanos(AT_ONCE)))),
            };
            return Some(Over { why, deadline });
        }
        // Short pauses, because park_timeout's clock stands still while the machine sleeps.
        let pause = Duration::from_nanos(limit.saturating_sub(now)).min(Duration::from_millis(100));
        std::thread::park_timeout(pause);
    }
}

fn said(condemned: u8) -> String {
    match condemned == Loss::Past as u8 {
        true => "the database is a copy of an earlier state: it does not know this worker".into(),
        false => "the database counts this worker as dead".into(),
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Asks the scheduler for the highest priority: M includes the time that this thread waits for a
/// processor. Only a privileged process gets it; for any other nothing changes.
fn ask_for_precedence() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), -20);
}

/// Ends the process at once, in any state of its threads: no destructors, no exit hooks that could hang, and
/// a bounded time for its last words. For a worker that holds its leases.
pub(crate) fn end_process(why: &str) {
    end_process_within(why, LAST_WORDS_HELD);
}

fn end_process_within(why: &str, last_words: Duration) {
    let (said, heard) = mpsc::channel();
    if SPEAKER.as_ref().is_some_and(|speaker| speaker.send((why.to_owned(), said)).is_ok()) {
        let _ = heard.recv_timeout(last_words);
    }
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort();
}

/// Nanoseconds of a clock that never steps and counts on while the machine sleeps.
pub(crate) fn clock_ns() -> u64 {
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = rustix::time::ClockId::Monotonic;
    let now = rustix::time::clock_gettime(clock);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests;
