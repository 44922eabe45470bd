//! Queues that share a bell: a call names one of them.

use super::queue_watch::{
    fall_asleep, falling_asleep, is_askable, is_polled, pause, peeked, wake_up,
};
use super::*;
use crate::worker::controller::queue_watch::{Role, WatchState};

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
        while !MATES.iter().all(|mate| controller.lock().watch.queues[*mate].state.is_watching()) {
            fall_asleep(&controller, &mut requests, Watched::Held).await;
        }
    }
    while controller.lock().watch.queues.iter().any(|queue| !queue.state.is_asleep()) {
        claim(&controller, 0, 0, &[]).await;
        while let Ok(WatchRequest::Watch(bell)) = requests.try_recv() {
            answered(&controller, bell, Watched::Held);
        }
    }
    (controller, requests)
}

/// The first sleeps, the second looks once more; both keep watch.
fn is_last_look_of_the_second(states: [WatchState; 2]) -> bool {
    use WatchState::{Asleep, LastLook};
    matches!(states, [Asleep { role: Role::Watching, .. }, LastLook { role: Role::Watching, .. }])
}

#[tokio::test]
async fn a_call_wakes_the_queue_that_it_names_and_no_other_of_its_bell() {
    let (controller, _requests) = fall_asleep_together().await;
    assert!(called(&controller, 1, 257));
    let states = MATES.map(|mate| controller.lock().watch.queues[mate].state);
    assert!(is_last_look_of_the_second(states), "{states:?}");
}

#[tokio::test]
async fn a_queue_that_falls_asleep_under_a_bell_of_ours_looks_once_more() {
    let (controller, _requests) = fall_asleep_together().await;
    wake(&controller, 256);
    controller.lock().watch.queues[256].state = falling_asleep();
    assert!(answered(&controller, 1, Watched::Held));
    let states = MATES.map(|mate| controller.lock().watch.queues[mate].state);
    assert!(is_last_look_of_the_second(states), "{states:?}");
}

#[tokio::test]
async fn a_bell_that_a_busy_queue_gives_up_rests_after_its_other_queues_have_looked() {
    let (controller, mut requests) = fall_asleep_together().await;
    controller.lock().slots.usage(64).running = 8;
    assert!(!called(&controller, 1, 257), "no slot is free for it");
    controller.watch_event(WatchEvent::BellGivenUp(1));
    assert!(controller.lock().watch.queues[0].state.claims_since().is_some());
    let mut look = plan(&controller).await;
    assert_eq!(queues(&look), [0]);
    let found = brought(&look, 0, 0, &[]);
    controller.claimed(&mut look, found);
    assert!(is_polled(controller.lock().watch.queues[0].state));
    assert!(requests.try_recv().is_err(), "the bell may belong to another worker");
}

#[tokio::test]
async fn a_queue_that_was_called_while_awake_and_gets_busy_gives_up_the_bell() {
    let (controller, mut requests) = fall_asleep_together().await;
    wake(&controller, 256);
    assert!(called(&controller, 1, 257), "awake, and with free slots");
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
    let calls = (0..10_000).take_while(|_| called(&controller, 1, 513)).count();
    assert!((3..1_000).contains(&calls), "{calls} calls at once");
    assert!(controller.lock().watch.queues[0].state.is_asleep(), "not for these calls");
    controller.watch_event(WatchEvent::BellGivenUp(1));
    claim(&controller, 0, 0, &[]).await;
    assert!(is_polled(controller.lock().watch.queues[0].state));
    pause(&controller);
    wake_up(&controller);
    claim(&controller, 0, 0, &[]).await;
    assert!(is_polled(controller.lock().watch.queues[0].state), "its bell rests");
    assert!(requests.try_recv().is_err());
}

#[tokio::test]
async fn under_a_bell_of_a_stranger_a_queue_is_peeked_at_or_wakes() {
    let (controller, mut requests) = controller(config());
    fall_asleep(&controller, &mut requests, Watched::Shared).await;
    assert!(!is_askable(&controller), "asleep");
    let now = Instant::now();
    let peeks = controller.peeks(Some(&[2, 3]), now);
    assert_eq!(peeks.iter().map(|peek| peek.queue_id).collect::<Vec<_>>(), [2, 3]);
    peeked(&controller, &peeks, &[true, false], now);
    let look = plan(&controller).await;
    assert_eq!(queues(&look), [1]);
    controller.lock().slots.usage(0).running = 8;
    assert_eq!(controller.peeks(Some(&[4]), now), [], "no slot is free");
    assert!(
        controller.lock().watch.queues[3].state.claims_since().is_some(),
        "a claim waits for one"
    );
}
