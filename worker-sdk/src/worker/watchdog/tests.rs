use super::*;

const HOUR: Duration = Duration::from_secs(3600);
const PATIENCE: Duration = Duration::from_secs(10);

/// A watchdog whose stopper does that, and what it would have ended the process for.
fn stopping(
    silence: Duration,
    stop: impl FnOnce() + Send + 'static,
) -> (Watchdog, mpsc::Receiver<String>) {
    leaving(silence, stop, false)
}

/// The same, and whether bodies have left something behind on their threads.
fn leaving(
    silence: Duration,
    stop: impl FnOnce() + Send + 'static,
    left_behind: bool,
) -> (Watchdog, mpsc::Receiver<String>) {
    let (send, receive) = mpsc::channel();
    let send = std::sync::Mutex::new(send);
    let act: OnLost = Arc::new(move |why| {
        let _ = send.lock().expect("one user").send(why.to_owned());
    });
    let limits = Limits { silence, stop: Duration::from_millis(200) };
    let ending = Ending { stop: Box::new(stop), left_behind: Box::new(move || left_behind) };
    let dog = Watchdog::start(limits, clock_ns(), ending, Some(act));
    (dog.expect("a thread"), receive)
}

fn watchdog(silence: Duration) -> (Watchdog, mpsc::Receiver<String>) {
    stopping(silence, || ())
}

async fn lost(dog: &Watchdog) {
    tokio::time::timeout(PATIENCE, dog.lost()).await.expect("the registration is over");
}

#[tokio::test]
async fn without_a_body_the_registration_is_over_and_the_process_stays() {
    let (dog, ended) = watchdog(Duration::from_millis(20));
    lost(&dog).await;
    assert!(ended.try_recv().is_err(), "the process would have ended");
    assert!(dog.begin().is_none());
}

#[tokio::test]
async fn a_body_that_stops_in_time_costs_the_registration_only() {
    let body = Arc::new(std::sync::Mutex::new(None));
    let held = Arc::clone(&body);
    let (dog, ended) = stopping(Duration::from_millis(50), move || {
        std::thread::sleep(Duration::from_millis(20));
        drop(held.lock().expect("one user").take());
    });
    *body.lock().expect("one user") = dog.begin();
    lost(&dog).await;
    assert!(body.lock().expect("one user").is_none(), "over while a body ran");
    assert!(ended.try_recv().is_err());
}

#[test]
fn a_body_that_does_not_stop_ends_the_process_within_its_part_of_the_margin() {
    let (dog, ended) = watchdog(Duration::from_millis(20));
    let began = clock_ns();
    let _body = dog.begin().expect("T is not over");
    let why = ended.recv_timeout(PATIENCE).expect("it acts");
    assert!(why.contains("no heartbeat"), "{why}");
    assert!(clock_ns() - began >= 150_000_000, "the body had no time to stop");
    assert!(!dog.shared.lost.is_cancelled(), "registered again beside a body that runs on");
}

#[test]
fn what_a_body_left_behind_on_its_threads_ends_the_process_too() {
    let (_dog, ended) = leaving(Duration::from_millis(20), std::thread::park, true);
    ended.recv_timeout(PATIENCE).expect("it acts");
}

/// A machine that is busy, whose idle threads wait for a processor.
#[tokio::test]
async fn idle_threads_that_end_late_cost_the_registration_only() {
    for silence in [HOUR, Duration::from_millis(20)] {
        let late = AT_ONCE + Duration::from_millis(400);
        let (dog, ended) = stopping(silence, move || std::thread::sleep(late));
        if silence == HOUR {
            dog.condemn(Loss::Ended);
        }
        lost(&dog).await;
        assert!(ended.try_recv().is_err(), "the process would have ended");
    }
}

/// A process that stood still beyond T and the time to stop: other workers may run its tasks by now.
#[test]
fn a_body_that_runs_when_the_watchdog_is_late_has_no_time_left() {
    let shared = Shared {
        limit_ns: 1,
        stop_ns: 0,
        last_sent_ns: AtomicU64::new(1),
        disarmed: AtomicBool::new(false),
        condemned: AtomicU8::new(0),
        bodies: Arc::default(),
        stopped: AtomicBool::new(true),
        lost: CancellationToken::new(),
    };
    let body = shared.bodies.begin();
    let began = clock_ns();
    assert!(!shared.until_stopped(began - 1, &|| true));
    assert!(clock_ns() - began < 50_000_000, "it waited");
    drop(body);
    assert!(shared.until_stopped(began - 1, &|| true));
}

/// What the process does from here on counts as done by one whose T is over; an answer that comes
/// while it says its last words must not look as if it had been in time.
#[tokio::test]
async fn an_answer_after_the_end_does_not_count() {
    let (dog, _ended) = watchdog(Duration::from_secs(1));
    assert!(dog.acknowledge(clock_ns()), "in time");
    lost(&dog).await;
    assert!(!dog.acknowledge(clock_ns()), "too late");
    assert!(dog.is_over());
}

/// It looked at the last heartbeat, waited for a processor, and then looked at the clock.
#[test]
fn an_answer_between_two_looks_counts() {
    let (dog, _ended) = watchdog(HOUR);
    let looked = dog.shared.last_sent_ns.load(Ordering::Relaxed);
    assert!(dog.acknowledge(looked + 1));
    assert!(!dog.shared.ends(looked), "ended although a heartbeat was answered");
    assert!(dog.shared.ends(looked + 1));
}

#[tokio::test]
async fn a_condemned_worker_stops_without_waiting_for_t() {
    let (dog, _ended) = watchdog(HOUR);
    dog.condemn(Loss::Past);
    assert!(dog.begin().is_none());
    lost(&dog).await;
}

#[test]
fn a_condemned_worker_whose_body_runs_on_ends_the_process() {
    let (dog, ended) = watchdog(HOUR);
    let _body = dog.begin().expect("alive");
    dog.condemn(Loss::Past);
    dog.condemn(Loss::Ended);
    let why = ended.recv_timeout(PATIENCE).expect("it acts");
    assert!(why.contains("a copy of an earlier state"), "the first verdict stays: {why}");
}

#[test]
fn a_disarmed_watchdog_never_acts_and_lets_its_stopper_go() {
    let (held, gone) = mpsc::channel::<()>();
    let (dog, ended) = stopping(Duration::from_millis(50), move || drop(held));
    dog.disarm();
    assert_eq!(gone.recv_timeout(PATIENCE), Err(mpsc::RecvTimeoutError::Disconnected));
    assert!(ended.recv_timeout(Duration::from_millis(200)).is_err());
    assert!(!dog.shared.lost.is_cancelled());
}
