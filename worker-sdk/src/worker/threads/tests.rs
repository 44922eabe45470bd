use std::sync::mpsc;

use super::*;
use crate::worker::context::Context;
use crate::worker::outcome::Outcome;

const PATIENCE: Duration = Duration::from_secs(10);

fn until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "in time");
        std::thread::yield_now();
    }
}

/// Threads for two lambdas, none of them started.
fn threads() -> Arc<Threads> {
    let lambda = |name| Lambda::named(name, |(): (), _: Context| async { Outcome::Success(None) });
    Arc::new(Threads::new(&[lambda("work"), lambda("other")], 4, 2))
}

/// Ends them on a thread of its own. The answer is told when they have ended.
fn end(threads: &Arc<Threads>) -> mpsc::Receiver<()> {
    let (ending, ended) = mpsc::channel();
    let threads = Arc::clone(threads);
    std::thread::spawn(move || {
        threads.end();
        let _ = ending.send(());
    });
    ended
}

/// Runs a body of the first lambda to its end.
fn run(threads: &Threads, body: impl Fn() + Clone + Send + 'static) {
    let (ending, ended) = mpsc::channel();
    let executor = || {
        let (body, ending) = (body.clone(), ending.clone());
        async move {
            body();
            let _ = ending.send(());
        }
    };
    threads.start(0, 1, executor).expect("threads");
    ended.recv_timeout(PATIENCE).expect("it runs");
    until(|| Arc::strong_count(&threads.executors) == 1);
}

/// Starts an executor that tells when it has begun, and then waits on its thread.
fn block(threads: &Threads, lambda: usize) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (go_on, wait) = mpsc::channel::<()>();
    let (begun, began) = mpsc::channel();
    let wait = Arc::new(Mutex::new(wait));
    let executor = || {
        let (wait, begun) = (Arc::clone(&wait), begun.clone());
        async move {
            let _ = begun.send(());
            let _ = wait.lock().expect("one user").recv();
        }
    };
    threads.start(lambda, 1, executor).expect("threads");
    (began, go_on)
}

fn runtimes(threads: &Threads) -> usize {
    threads.alive.lock().len()
}

/// How many runtimes two looks take out that are a minute apart.
fn quiet(threads: &Threads) -> usize {
    let now = Instant::now();
    assert!(threads.take_quiet(now).is_empty(), "at the first look");
    threads.take_quiet(now + QUIET).len()
}

#[test]
fn a_lambda_has_no_threads_before_its_first_executor() {
    let threads = threads();
    assert_eq!(runtimes(&threads), 0);
    run(&threads, || ());
    assert_eq!(runtimes(&threads), 1, "those of the other lambda");
}

#[test]
fn threads_that_were_quiet_for_a_minute_end_and_start_again_with_the_next_executor() {
    let threads = threads();
    run(&threads, || ());
    let now = Instant::now();
    until(|| !threads.have_leftovers());
    assert!(threads.take_quiet(now).is_empty());
    assert!(threads.take_quiet(now + QUIET - LOOK).is_empty());
    run(&threads, || ());
    until(|| !threads.have_leftovers());
    assert!(threads.take_quiet(now + QUIET).is_empty(), "an executor ran meanwhile");
    threads.end_these(threads.take_quiet(now + QUIET * 2));
    until(|| runtimes(&threads) == 0);
    run(&threads, || ());
    assert_eq!(runtimes(&threads), 1);
}

#[tokio::test(start_paused = true)]
async fn the_looks_end_quiet_threads() {
    let threads = threads();
    run(&threads, || ());
    until(|| !threads.have_leftovers());
    let looks = threads.end_quiet();
    tokio::pin!(looks);
    // The threads judge by the machine's clock, which a test does not turn.
    let long_ago = Instant::now().checked_sub(QUIET * 2).expect("a clock that started");
    assert!(threads.take_quiet(long_ago).is_empty());
    let _ = tokio::time::timeout(LOOK * 2, looks).await;
    until(|| runtimes(&threads) == 0);
}

/// No thread can have such a name.
#[test]
fn threads_that_the_system_refuses_are_an_error() {
    let lambda = Lambda::named("no\0name", |(): (), _: Context| async { Outcome::Success(None) });
    let threads = Threads::new(&[lambda], 4, 2);
    let error = threads.start(0, 1, || async {}).expect_err("no thread");
    assert_eq!(error.to_string(), "the system gives no thread");
    assert_eq!(runtimes(&threads), 0);
}

#[test]
fn a_future_that_a_body_started_keeps_its_threads() {
    let threads = threads();
    let (held, gone) = mpsc::channel::<()>();
    run(&threads, move || {
        let held = held.clone();
        tokio::spawn(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
    });
    assert!(threads.have_leftovers());
    assert_eq!(quiet(&threads), 0);
    assert_eq!(gone.try_recv(), Err(mpsc::TryRecvError::Empty), "it was dropped");
    end(&threads).recv_timeout(PATIENCE).expect("it ends");
    assert_eq!(gone.try_recv(), Err(mpsc::TryRecvError::Disconnected));
}

#[test]
fn a_thread_that_blocks_keeps_the_threads_of_its_lambda() {
    let threads = threads();
    let (go_on, wait) = mpsc::channel::<()>();
    let (begun, began) = mpsc::channel();
    let wait = Arc::new(Mutex::new(wait));
    run(&threads, move || {
        let (wait, begun) = (Arc::clone(&wait), begun.clone());
        drop(tokio::task::spawn_blocking(move || {
            let _ = begun.send(());
            let _ = wait.lock().expect("one user").recv();
        }));
    });
    began.recv_timeout(PATIENCE).expect("it runs");
    // Its task ends with the handle: only the thread is left.
    assert_eq!(threads.alive.count().map(|(_, blocking)| blocking), Some(1));
    assert_eq!(quiet(&threads), 0);
    let ended = end(&threads);
    until(|| threads.alive.count().is_some_and(|(tasks, _)| tasks == 0));
    assert!(threads.have_leftovers());
    assert_eq!(ended.try_recv(), Err(mpsc::TryRecvError::Empty));
    drop(go_on);
    ended.recv_timeout(PATIENCE).expect("it ends");
    assert!(!threads.have_leftovers());
}

/// The first body begins while the other threads of its lambda start: any of them may take what blocks.
#[test]
fn a_thread_that_blocks_is_counted_whichever_thread_it_is() {
    for round in 0..30 {
        let threads = threads();
        let (go_on, wait) = mpsc::channel::<()>();
        let (begun, began) = mpsc::channel();
        let wait = Arc::new(Mutex::new(wait));
        run(&threads, move || {
            let (wait, begun) = (Arc::clone(&wait), begun.clone());
            drop(tokio::task::spawn_blocking(move || {
                let _ = begun.send(());
                let _ = wait.lock().expect("one user").recv();
            }));
        });
        began.recv_timeout(PATIENCE).expect("it runs");
        let lambda = threads.lambdas[0].lock().take().expect("started");
        let runtime = lambda.counted.clone();
        let ended = std::thread::spawn(|| lambda.end());
        // The threads that ran tasks have ended.
        until(|| runtime.handle.metrics().num_alive_tasks() == 0);
        for _ in 0..2_000 {
            assert_eq!(runtime.count(), (0, 1), "round {round}");
            std::thread::yield_now();
        }
        drop(go_on);
        ended.join().expect("no panic");
        assert_eq!(runtime.count(), (0, 0), "round {round}");
    }
}

#[test]
fn a_body_that_blocks_its_thread_delays_no_lambda_whose_threads_start_later() {
    let threads = threads();
    let blocked = [block(&threads, 0), block(&threads, 0)];
    for (began, _) in &blocked {
        began.recv_timeout(PATIENCE).expect("it runs");
    }
    let (late, go_on) = block(&threads, 1);
    late.recv_timeout(PATIENCE).expect("it waits for no other lambda");
    drop((blocked, go_on));
    end(&threads).recv_timeout(PATIENCE).expect("it ends");
}

#[test]
fn an_executor_that_never_yields_is_waited_for_and_is_no_leftover() {
    let threads = threads();
    let (began, go_on) = block(&threads, 0);
    began.recv_timeout(PATIENCE).expect("it runs");
    let ended = end(&threads);
    until(|| threads.over.load(Ordering::Acquire));
    assert!(!threads.have_leftovers(), "an executor counts as a body");
    assert_eq!(ended.try_recv(), Err(mpsc::TryRecvError::Empty));
    drop(go_on);
    ended.recv_timeout(PATIENCE).expect("it ends");
    assert_eq!(runtimes(&threads), 0);
}

#[test]
fn a_registration_that_is_dropped_drops_its_executors() {
    let threads = threads();
    let guard = threads.stop_on_drop();
    let (held, gone) = mpsc::channel::<()>();
    let executor = || {
        let held = held.clone();
        async move {
            let _held = held;
            std::future::pending::<()>().await;
        }
    };
    threads.start(0, 1, executor).expect("threads");
    drop(held);
    assert_eq!(gone.try_recv(), Err(mpsc::TryRecvError::Empty));
    drop(guard);
    assert_eq!(gone.recv_timeout(PATIENCE), Err(mpsc::RecvTimeoutError::Disconnected));
}

#[test]
fn the_end_waits_for_threads_that_end_because_they_were_quiet() {
    let threads = threads();
    run(&threads, || ());
    until(|| !threads.have_leftovers());
    let now = Instant::now();
    assert!(threads.take_quiet(now).is_empty());
    let quiet = threads.take_quiet(now + QUIET);
    // Something begins on them at this moment, by a handle that a body gave away.
    let (go_on, wait) = mpsc::channel::<()>();
    let (begun, began) = mpsc::channel();
    drop(quiet[0].counted.handle.spawn_blocking(move || {
        let _ = begun.send(());
        let _ = wait.recv();
    }));
    began.recv_timeout(PATIENCE).expect("it runs");
    threads.end_these(quiet);
    assert!(threads.have_leftovers(), "what runs on is not counted");
    let ended = end(&threads);
    until(|| threads.over.load(Ordering::Acquire));
    assert_eq!(ended.try_recv(), Err(mpsc::TryRecvError::Empty));
    drop(go_on);
    ended.recv_timeout(PATIENCE).expect("it ends");
    assert_eq!(runtimes(&threads), 0);
}

#[test]
fn the_end_drops_the_executors_and_nothing_starts_after_it() {
    let threads = threads();
    let (held, gone) = mpsc::channel::<()>();
    let waits = || {
        let held = held.clone();
        async move {
            let _held = held;
            std::future::pending::<()>().await;
        }
    };
    threads.start(0, 4, waits).expect("threads");
    assert!(!threads.have_leftovers());
    end(&threads).recv_timeout(PATIENCE).expect("it ends");
    threads.start(0, 1, waits).expect("no error");
    threads.start(1, 1, waits).expect("no error");
    assert_eq!(runtimes(&threads), 0);
    drop(held);
    assert_eq!(gone.try_recv(), Err(mpsc::TryRecvError::Disconnected), "one is alive");
}
