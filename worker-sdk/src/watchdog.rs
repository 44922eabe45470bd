//! Ends the process when its heartbeats fail: the paper's "executor terminates itself".
//!
//! T is counted from the moment the last acknowledged heartbeat was *sent*, on a clock that runs on
//! while the machine sleeps, by an OS thread that needs no runtime, no pool and no lock. Counted from
//! the answer instead, two executions of one task can overlap (an eleven-state trace of the model
//! checker shows how). It must never wait for anything but time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, mpsc};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

/// What the watchdog does at the end instead of ending the process; for tests that live in it.
pub(crate) type OnLost = Arc<dyn Fn(&str) + Send + Sync>;

/// Longest time that the last words of a process may take.
const LAST_WORDS: Duration = Duration::from_millis(20);

/// In place of the time of a heartbeat: T is over, and no answer counts any more.
const OVER: u64 = 0;

/// Why the process ends, and who is told once it is said.
type Words = (String, mpsc::Sender<()>);

/// Speaks for those who must not wait for a full pipe, a slow disk, or another thread's hold on standard
/// error. None: there was no thread to be had.
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

/// Handle of the watchdog thread.
#[derive(Debug)]
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    limit_ns: u64,
    thread: Thread,
    _join: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    last_sent_ns: AtomicU64,
    disarmed: AtomicBool,
    condemned: AtomicBool,
}

impl Watchdog {
    /// Starts the thread; `sent_ns` is when the registration was sent.
    pub(crate) fn start(
        limit: Duration,
        sent_ns: u64,
        on_lost: Option<OnLost>,
    ) -> std::io::Result<Self> {
        LazyLock::force(&SPEAKER);
        let shared = Arc::new(Shared {
            last_sent_ns: AtomicU64::new(sent_ns),
            disarmed: AtomicBool::new(false),
            condemned: AtomicBool::new(false),
        });
        let watched = Arc::clone(&shared);
        let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let join = std::thread::Builder::new()
            .name("tuskline-watchdog".into())
            .spawn(move || watch(&watched, limit, on_lost.as_ref()))?;
        Ok(Self { shared, limit_ns, thread: join.thread().clone(), _join: join })
    }

    /// A heartbeat sent at `sent_ns` was acknowledged. False: too late, the process is about to end.
    pub(crate) fn acknowledge(&self, sent_ns: u64) -> bool {
        let later = |last: u64| (last != OVER).then_some(last.max(sent_ns));
        self.shared.last_sent_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later).is_ok()
    }

    /// The database said that we are dead: end now.
    pub(crate) fn condemn(&self) {
        self.shared.condemned.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }

    /// Past the limit or condemned: nothing may begin any more.
    pub(crate) fn is_over(&self) -> bool {
        self.shared.condemned.load(Ordering::Relaxed)
            || clock_ns()
                >= self.shared.last_sent_ns.load(Ordering::Relaxed).saturating_add(self.limit_ns)
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
}

fn watch(shared: &Shared, limit: Duration, on_lost: Option<&OnLost>) {
    let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    ask_for_precedence();
    loop {
        if shared.disarmed.load(Ordering::Relaxed) {
            return;
        }
        let last = shared.last_sent_ns.load(Ordering::Relaxed);
        let (now, deadline) = (clock_ns(), last.saturating_add(limit_ns));
        let condemned = shared.condemned.load(Ordering::Relaxed);
        if condemned || (now >= deadline && shared.ends(last)) {
            let why = match condemned {
                true => "the database counts this worker as dead".to_owned(),
                false => format!("no heartbeat was acknowledged for {limit:?}"),
            };
            match on_lost {
                Some(act) => act(&why),
                None => end_process(&why),
            }
            return;
        }
        // Short naps, because park_timeout's clock stands still while the machine sleeps.
        let nap =
            Duration::from_nanos(deadline.saturating_sub(now)).min(Duration::from_millis(100));
        std::thread::park_timeout(nap);
    }
}

/// Asks for the first place among those who want a processor, because M is what this thread may have to
/// wait for one. Only the privileged get it; everybody else stays where they are.
fn ask_for_precedence() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), -20);
}

/// Ends the process at once, whatever its threads do: no destructors, no exit hooks that could hang, and
/// no waiting until its last words are heard.
pub(crate) fn end_process(why: &str) {
    let (said, heard) = mpsc::channel();
    if SPEAKER.as_ref().is_some_and(|speaker| speaker.send((why.to_owned(), said)).is_ok()) {
        let _ = heard.recv_timeout(LAST_WORDS);
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
mod tests {
    use super::*;

    fn watchdog(limit: Duration) -> (Watchdog, mpsc::Receiver<String>) {
        let (send, receive) = mpsc::channel();
        let send = std::sync::Mutex::new(send);
        let act: OnLost = Arc::new(move |why| {
            let _ = send.lock().expect("one user").send(why.to_owned());
        });
        let dog = Watchdog::start(limit, clock_ns(), Some(act));
        (dog.expect("a thread"), receive)
    }

    #[test]
    fn it_acts_when_no_heartbeat_is_acknowledged() {
        let (_dog, lost) = watchdog(Duration::from_millis(20));
        let why = lost.recv_timeout(Duration::from_secs(10)).expect("it acts");
        assert!(why.contains("no heartbeat"), "{why}");
    }

    /// What the process does from here on counts as done by one whose T is over; an answer that comes
    /// while it says its last words must not look as if it had been in time.
    #[test]
    fn an_answer_after_the_end_does_not_count() {
        let (dog, lost) = watchdog(Duration::from_secs(1));
        assert!(dog.acknowledge(clock_ns()), "in time");
        lost.recv_timeout(Duration::from_secs(10)).expect("it acts");
        assert!(!dog.acknowledge(clock_ns()), "too late");
        assert!(dog.is_over());
    }

    /// It looked at the last heartbeat, waited for a processor, and then looked at the clock.
    #[test]
    fn an_answer_between_two_looks_counts() {
        let (dog, _lost) = watchdog(Duration::from_secs(3600));
        let looked = dog.shared.last_sent_ns.load(Ordering::Relaxed);
        assert!(dog.acknowledge(looked + 1));
        assert!(!dog.shared.ends(looked), "ended although a heartbeat was answered");
        assert!(dog.shared.ends(looked + 1));
    }

    #[test]
    fn a_condemned_worker_ends_without_waiting_for_t() {
        let (dog, lost) = watchdog(Duration::from_secs(3600));
        dog.condemn();
        assert!(lost.recv_timeout(Duration::from_secs(10)).is_ok());
    }

    #[test]
    fn a_disarmed_watchdog_never_acts() {
        let (dog, lost) = watchdog(Duration::from_millis(50));
        dog.disarm();
        assert!(lost.recv_timeout(Duration::from_millis(200)).is_err());
    }
}
