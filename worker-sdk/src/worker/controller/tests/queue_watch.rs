//! One worker keeps watch of a queue; the other workers stand by.

use super::*;
use crate::worker::controller::queue_watch::{Role, WatchState};

/// Everything found empty, every lock asked for and answered alike.
pub(super) async fn fall_asleep(
    controller: &Controller,
    requests: &mut UnboundedReceiver<WatchRequest>,
    said: Watched,
) {
    claim(controller, 0, 0, &[]).await;
    while let Ok(WatchRequest::Watch(bell)) = requests.try_recv() {
        answered(controller, bell, said);
    }
}

pub(super) fn is_askable(controller: &Controller) -> bool {
    controller.lock().watch.queues.iter().any(|queue| queue.is_askable(Instant::now()))
}

/// The doublings of the pause before the next look at the first queue.
fn doublings(controller: &Controller) -> u32 {
    controller.lock().watch.queues[0].doublings
}

/// The pause before its next poll is over.
pub(super) fn wake_up(controller: &Controller) {
    let mut state = controller.lock();
    let queue = &mut state.watch.queues[0];
    assert!(is_polled(queue.state), "{:?}", queue.state);
    queue.state = WatchState::Poll { at: Instant::now() };
}

pub(super) fn is_polled(state: WatchState) -> bool {
    matches!(state, WatchState::Poll { .. })
}

/// Found empty, and the bell is asked for.
pub(super) fn falling_asleep() -> WatchState {
    WatchState::FallingAsleep { poll_at: Instant::now() + Duration::from_secs(1) }
}

/// The safety poll of the first queue is due.
fn safety_poll(controller: &Controller) {
    let asleep = WatchState::Asleep { role: Role::StandingBy, poll_at: Instant::now() };
    controller.lock().watch.queues[0].state = asleep;
}

/// Each call for this queue is a reason to claim, although another worker keeps watch.
fn follows_calls(controller: &Controller, queue: usize) -> bool {
    Instant::now() < controller.lock().watch.queues[queue].follow_calls_until
}

pub(super) fn peeked(controller: &Controller, peeks: &[Peek], found: &[bool], sent_at: Instant) {
    controller.watch_event(WatchEvent::Peeked { peeks, found, sent_at });
}

pub(super) fn pause(controller: &Controller) {
    controller.lock().watch.forget_calls(Instant::now());
}

#[tokio::test]
async fn a_watch_looks_once_for_a_call_and_stays_one() {
    let (controller, mut requests) = controller(config());
    fall_asleep(&controller, &mut requests, Watched::Held).await;
    claim(&controller, 0, 0, &[]).await;
    assert!(!is_askable(&controller), "the last look is done");
    for lease in 7..10 {
        pause(&controller);
        assert!(called(&controller, 3, 3), "it keeps the lock");
        let mut look = plan(&controller).await;
        assert_eq!(queues(&look), [2]);
        let found = brought(&look, lease, 0, &[lease]);
        controller.claimed(&mut look, found);
        assert!(!is_askable(&controller) && requests.try_recv().is_err(), "asleep, its lock kept");
    }
}

#[tokio::test]
async fn a_watch_gives_up_the_lock_when_it_is_busy_or_called_too_often() {
    let (controller, mut requests) = controller(WorkerConfig { slots: 1, ..config() });
    fall_asleep(&controller, &mut requests, Watched::Held).await;
    claim(&controller, 0, 0, &[]).await;
    pause(&controller);
    assert!(called(&controller, 1, 1) && called(&controller, 2, 2));
    assert!(called(&controller, 2, 2), "two calls at once");
    let calls = (0..10_000).take_while(|_| called(&controller, 2, 2)).count();
    assert!((2..10_000).contains(&calls), "{calls} more at once: a stream");
    claim(&controller, 7, 0, &[1]).await;
    assert!(matches!(requests.try_recv(), Ok(WatchRequest::Unwatch(1))), "as much as it asked for");
    let _running = work(&controller);
    pause(&controller);
    assert!(!called(&controller, 4, 4), "its only slot is taken");
}

#[tokio::test]
async fn a_watch_that_gets_busy_before_it_looks_gives_up_the_lock() {
    let (controller, mut requests) = controller(WorkerConfig { slots: 1, ..config() });
    fall_asleep(&controller, &mut requests, Watched::Held).await;
    claim(&controller, 0, 0, &[]).await;
    pause(&controller);
    assert!(called(&controller, 3, 3));
    controller.lock().slots.usage(0).running = 1;
    let look = controller.next_exchange();
    tokio::pin!(look);
    assert!(futures_util::poll!(&mut look).is_pending());
    assert!(matches!(requests.try_recv(), Ok(WatchRequest::Unwatch(3))));
    controller.lock().watch.queues[3].state = falling_asleep();
    assert!(!answered(&controller, 4, Watched::Held), "and takes no other");
}

#[tokio::test]
async fn who_stands_by_sleeps_without_a_look_until_the_lock_is_free() {
    let (controller, mut requests) = controller(config());
    fall_asleep(&controller, &mut requests, Watched::Taken).await;
    assert!(!is_askable(&controller));
    answered(&controller, 2, Watched::Taken);
    assert!(!is_askable(&controller));
    answered(&controller, 2, Watched::Held);
    let look = plan(&controller).await;
    assert_eq!(queues(&look), [1]);
}

#[tokio::test]
async fn calls_are_followed_for_a_while_after_a_watch_left_a_task_waiting() {
    let (controller, mut requests) = controller(config());
    fall_asleep(&controller, &mut requests, Watched::Taken).await;
    assert!(!follows_calls(&controller, 0));
    safety_poll(&controller);
    claim(&controller, 6, 0, &[1]).await;
    assert!(!follows_calls(&controller, 0), "the watch was about to come");
    assert!(matches!(requests.try_recv(), Ok(WatchRequest::Watch(1))), "or has given up the lock");
    answered(&controller, 1, Watched::Taken);
    assert!(!is_askable(&controller), "it sleeps on");
    safety_poll(&controller);
    let mut look = plan(&controller).await;
    let mut found = brought(&look, 7, 0, &[2]).expect("a task");
    found.tasks[0].waited = Duration::from_millis(100);
    controller.claimed(&mut look, Some(found));
    assert!(follows_calls(&controller, 0) && !follows_calls(&controller, 1));
    claim(&controller, 0, 0, &[]).await;
    assert!(matches!(requests.try_recv(), Ok(WatchRequest::Watch(1))));
    answered(&controller, 1, Watched::Taken);
    let look = plan(&controller).await;
    assert_eq!(queues(&look), [0]);
}

#[tokio::test]
async fn a_claim_waits_for_a_peek_for_a_safety_poll() {
    let (controller, mut requests) = controller(config());
    assert_eq!(controller.peeks(None, Instant::now()), [], "nothing sleeps");
    fall_asleep(&controller, &mut requests, Watched::Taken).await;
    let sent = Instant::now() + Duration::from_millis(950);
    let peeks = controller.peeks(None, sent);
    assert_eq!(peeks.iter().map(|peek| peek.queue_id).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let askable = |at: Instant| {
        let queues = &controller.lock().watch.queues;
        (0..4).filter(|index| queues[*index].is_askable(at)).collect::<Vec<_>>()
    };
    assert!(askable(sent + Duration::from_millis(999)).is_empty(), "no answer yet");
    peeked(&controller, &peeks, &[false, false, true, false], sent);
    assert_eq!(askable(sent), [2], "at once");
    assert_eq!(askable(sent + Duration::from_millis(999)), [2]);
    assert_eq!(askable(sent + Duration::from_secs(1)), [0, 1, 2, 3], "the line is silent");
}

#[tokio::test]
async fn a_peek_is_no_sweep_and_not_for_who_has_no_room() {
    let (controller, mut requests) = controller(config());
    fall_asleep(&controller, &mut requests, Watched::Taken).await;
    let soon = Instant::now() + Duration::from_millis(1);
    assert_eq!(controller.peeks(None, soon + Duration::from_secs(61)), [], "a sweep is due");
    controller.lock().slots.usage(0).running = 8;
    assert_eq!(controller.peeks(None, soon), [], "no slot is free");
}

#[tokio::test]
async fn a_peek_says_nothing_of_a_queue_that_woke_since() {
    let (controller, mut requests) = controller(config());
    fall_asleep(&controller, &mut requests, Watched::Taken).await;
    let peeks = controller.peeks(None, Instant::now());
    wake(&controller, 1);
    peeked(&controller, &peeks, &[true; 4], Instant::now());
    let look = plan(&controller).await;
    assert_eq!(queues(&look), [0, 1, 2, 3]);
    peeked(&controller, &peeks, &[false; 4], Instant::now());
    assert_eq!(controller.peeks(None, Instant::now()), [], "a claim is in flight");
}

#[tokio::test]
async fn a_look_that_finds_nothing_doubles_the_pause_and_one_that_finds_several_halves_it() {
    let (controller, mut requests) = controller(config());
    fall_asleep(&controller, &mut requests, Watched::Busy).await;
    assert_eq!(doublings(&controller), 0, "a commit's time");
    for expected in [1, 2, 3, 4, 5, 6, 6] {
        wake_up(&controller);
        fall_asleep(&controller, &mut requests, Watched::Busy).await;
        assert_eq!(doublings(&controller), expected, "no longer than busy_poll");
    }
    wake_up(&controller);
    claim(&controller, 7, 0, &[1]).await;
    assert!(matches!(requests.try_recv(), Ok(WatchRequest::Watch(1))), "one may be the last");
    answered(&controller, 1, Watched::Busy);
    assert_eq!(doublings(&controller), 6, "one at a time is in time");
    wake_up(&controller);
    claim(&controller, 8, 0, &[2, 3]).await;
    assert_eq!(doublings(&controller), 5);
    wake_up(&controller);
    claim(&controller, 9, 0, &[4, 5]).await;
    assert_eq!(doublings(&controller), 4);
    controller.lock().watch.queues[0].state = falling_asleep();
    answered(&controller, 1, Watched::Held);
    assert_eq!(doublings(&controller), 0, "no producer was in the way");
}

#[tokio::test]
async fn no_queue_of_a_stream_asks_for_the_lock() {
    let (controller, mut requests) = controller(config());
    claim(&controller, 7, 0, &[1, 2]).await;
    let asked: Vec<_> = std::iter::from_fn(|| requests.try_recv().ok()).collect();
    assert!(
        matches!(
            asked[..],
            [WatchRequest::Watch(2), WatchRequest::Watch(3), WatchRequest::Watch(4)]
        ),
        "{asked:?}"
    );
    wake_up(&controller);
    let look = plan(&controller).await;
    assert_eq!(queues(&look), [0], "without a call");
}

/// What decides is the sum over all queues: each by itself is called less often than a stream is.
#[tokio::test]
async fn a_worker_that_is_called_often_in_all_watches_no_queue_that_has_tasks() {
    let (controller, mut requests) = serving(config(), &["one", "two", "three"]);
    fall_asleep(&controller, &mut requests, Watched::Held).await;
    claim(&controller, 0, 0, &[]).await;
    let calls = (0..10_000)
        .take_while(|call| called(&controller, call % 3 * 4 + 1, call % 3 * 4 + 1))
        .count();
    assert!((3..300).contains(&calls), "{calls} calls at once, a third for each lambda");
    assert!(!called(&controller, 1, 1) && !called(&controller, 5, 5) && !called(&controller, 9, 9));
    let mut look = plan(&controller).await;
    assert_eq!(queues(&look), [0, 4, 8], "the others sleep on");
    let found = brought(&look, 7, 1, &[1]);
    controller.claimed(&mut look, found);
    let state = controller.lock();
    let polls: Vec<_> = [0, 4, 8].map(|queue| state.watch.queues[queue].state).into();
    assert!(is_polled(polls[0]), "{polls:?}");
    assert!(polls.iter().all(|state| *state == polls[0]), "one claim for all: {polls:?}");
    assert!(requests.try_recv().is_err(), "no queue asks for a lock");
}

#[tokio::test]
async fn a_pause_is_not_stretched_to_the_linger_of_results() {
    let (controller, mut requests) =
        controller(WorkerConfig { linger: Duration::from_secs(3600), ..config() });
    fall_asleep(&controller, &mut requests, Watched::Busy).await;
    let look = tokio::time::timeout(Duration::from_secs(60), controller.next_exchange()).await;
    assert!(look.is_ok(), "some ms");
}
