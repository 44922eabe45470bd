//! Queues that share a bell: a call names one of them.

use super::queue_watch::{fall_asleep, is_askable, pause, wake_up};
use super::*;
use crate::worker::controller::queue_watch::WatchState;

/// So many lambdas that the first queue shares its bell with the first of the last lambda.
fn sharing() -> (Controller, UnboundedReceiver<WatchRequest>) {
    let names: Vec<_> = (0..65).map(|n| format!("work_{n}")).collect();
    serving(config(), &names.iter().map(String::as_str).collect::<Vec<_>>())
}

const MATES: [usize; 2] = [0, 256];

/// Both sleep under the lock of their bell.
async fn fall_asleep_together() -> (Controller, UnboundedReceiver<WatchRequest>) {
    let (controller, mut requests) = sharing();
    for _ in 0..2 {
        while !MATES.iter().all(|mate| controller.lock().watch.queues[*mate].watching) {
            fall_asleep(&controller, &mut requests, Watched::Held).await;
        }
    }
    while controller.lock().watch.queues.iter().any(|queue| queue.watch != WatchState::Asleep) {
        claim(&controller, 0, 0, &[]).await;
        while let Ok(WatchRequest::Watch(bell)) = requests.try_recv() {
            controller.watch_answered(bell, Watched::Held);
        }
    }
    (controller, requests)
}

#[tokio::test]
async fn a_call_wakes_the_queue_that_it_names_and_no_other_of_its_bell() {
    let (controller, _requests) = fall_asleep_together().await;
    assert!(controller.called(1, 257));
    let state = controller.lock();
    assert_eq!(
        MATES.map(|mate| state.watch.queues[mate].watch),
        [WatchState::Asleep, WatchState::Last]
    );
}

#[tokio::test]
async fn a_queue_that_falls_asleep_under_a_bell_of_ours_looks_once_more() {
    let (controller, _requests) = fall_asleep_together().await;
    controller.woken(Some(256));
    controller.lock().watch.queues[256].watch = WatchState::FallingAsleep;
    assert!(controller.watch_answered(1, Watched::Held));
    let state = controller.lock();
    assert_eq!(
        MATES.map(|mate| state.watch.queues[mate].watch),
        [WatchState::Asleep, WatchState::Last]
    );
    assert!(state.watch.queues[256].watching);
}

#[tokio::test]
async fn a_bell_that_a_busy_queue_gives_up_rests_after_its_other_queues_have_looked() {
    let (controller, mut requests) = fall_asleep_together().await;
    controller.lock().slots.usage(64).running = 8;
    assert!(!controller.called(1, 257), "no slot is free for it");
    controller.give_up(1);
    assert_eq!(controller.lock().watch.queues[0].watch, WatchState::Hot);
    let mut look = plan(&controller).await;
    assert_eq!(queues(&look), [0]);
    let found = brought(&look, 0, 0, &[]);
    controller.claimed(&mut look, found);
    assert!(matches!(controller.lock().watch.queues[0].watch, WatchState::Poll(_)));
    assert!(requests.try_recv().is_err(), "the bell may belong to another worker");
}

#[tokio::test]
async fn a_queue_that_was_called_while_awake_and_gets_busy_gives_up_the_bell() {
    let (controller, mut requests) = fall_asleep_together().await;
    controller.woken(Some(256));
    assert!(controller.called(1, 257), "awake, and with free slots");
    controller.lock().slots.usage(64).running = 8;
    let look = controller.next_exchange();
    tokio::pin!(look);
    assert!(futures_util::poll!(&mut look).is_pending());
    assert_eq!(requests.try_recv(), Ok(WatchRequest::Unwatch(1)));
}

#[tokio::test]
async fn a_stream_of_calls_for_a_strangers_queue_gives_up_the_bell() {
    let (controller, mut requests) = controller(config());
    fall_asleep(&controller, &mut requests, Watched::Held).await;
    claim(&controller, 0, 0, &[]).await;
    let calls = (0..10_000).take_while(|_| controller.called(1, 513)).count();
    assert!((3..1_000).contains(&calls), "{calls} calls at once");
    assert_eq!(controller.lock().watch.queues[0].watch, WatchState::Asleep, "not for these calls");
    controller.give_up(1);
    claim(&controller, 0, 0, &[]).await;
    assert!(matches!(controller.lock().watch.queues[0].watch, WatchState::Poll(_)));
    pause(&controller);
    wake_up(&controller);
    claim(&controller, 0, 0, &[]).await;
    assert!(
        matches!(controller.lock().watch.queues[0].watch, WatchState::Poll(_)),
        "its bell rests"
    );
    assert!(requests.try_recv().is_err());
}

#[tokio::test]
async fn under_a_bell_of_a_stranger_a_queue_is_peeked_at_or_wakes() {
    let (controller, mut requests) = controller(config());
    fall_asleep(&controller, &mut requests, Watched::Shared).await;
    assert!(!is_askable(&controller), "asleep");
    let now = Instant::now();
    let peeks = controller.peeks_under(&[2, 3], now);
    assert_eq!(peeks.iter().map(|peek| peek.queue_id).collect::<Vec<_>>(), [2, 3]);
    controller.peeked(&peeks, &[true, false], now);
    let look = plan(&controller).await;
    assert_eq!(queues(&look), [1]);
    controller.lock().slots.usage(0).running = 8;
    assert_eq!(controller.peeks_under(&[4], now), [], "no slot is free");
    assert_eq!(controller.lock().watch.queues[3].watch, WatchState::Hot, "a claim waits for one");
}
