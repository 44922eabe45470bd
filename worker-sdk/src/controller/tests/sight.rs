//! Who keeps watch of a queue, and who stands by.

use super::*;

/// Everything found empty, every lock asked for and answered alike.
async fn fall_asleep(
    controller: &Controller,
    requests: &mut UnboundedReceiver<WakeRequest>,
    said: &str,
) {
    claim(controller, 0, 0, &[]).await;
    while let Ok(WakeRequest::Doze(queue)) = requests.try_recv() {
        controller.dozed(queue, said);
    }
}

fn is_askable(controller: &Controller) -> bool {
    controller.lock().queues.iter().any(|queue| queue.is_askable(Instant::now()))
}

/// The nap before the next look at the first queue, without its jitter.
fn doublings(controller: &Controller) -> u32 {
    controller.lock().queues[0].doublings
}

/// Its nap is over.
fn wake_up(controller: &Controller) {
    let mut state = controller.lock();
    let queue = &mut state.queues[0];
    assert!(matches!(queue.sight, Sight::Poll(_)), "{:?}", queue.sight);
    queue.sight = Sight::Poll(Instant::now());
}

fn pause(controller: &Controller) {
    controller.lock().calls = CallRate::new(Instant::now());
}

#[tokio::test]
async fn a_watch_looks_once_for_a_call_and_stays_one() {
    let (controller, mut requests) = controller(config());
    fall_asleep(&controller, &mut requests, "held").await;
    claim(&controller, 0, 0, &[]).await;
    assert!(!is_askable(&controller), "the last look is done");
    for lease in 7..10 {
        pause(&controller);
        assert!(controller.called(2), "it keeps the lock");
        let order = controller.next_order().await.expect("a look");
        assert_eq!(order.queues, [2]);
        let reply = brought(&order, lease, 0, &[lease]);
        controller.claimed(&order, reply);
        assert!(!is_askable(&controller) && requests.try_recv().is_err(), "asleep, its lock kept");
    }
}

#[tokio::test]
async fn a_watch_gives_up_the_lock_when_it_is_busy_or_called_too_often() {
    let (controller, mut requests) = controller(WorkerConfig { slots: 1, ..config() });
    fall_asleep(&controller, &mut requests, "held").await;
    claim(&controller, 0, 0, &[]).await;
    pause(&controller);
    assert!(controller.called(0) && controller.called(1));
    assert!(controller.called(1), "two calls at once");
    let calls = (0..10_000).take_while(|_| controller.called(1)).count();
    assert!((2..10_000).contains(&calls), "{calls} more at once: a stream");
    claim(&controller, 7, 0, &[1]).await;
    assert!(matches!(requests.try_recv(), Ok(WakeRequest::Rouse(0))), "as much as it asked for");
    let _running = work(&controller).await;
    pause(&controller);
    assert!(!controller.called(3), "its only slot is taken");
}

#[tokio::test]
async fn a_watch_that_gets_busy_before_it_looks_gives_up_the_lock() {
    let (controller, mut requests) = controller(WorkerConfig { slots: 1, ..config() });
    fall_asleep(&controller, &mut requests, "held").await;
    claim(&controller, 0, 0, &[]).await;
    pause(&controller);
    assert!(controller.called(2));
    controller.lock().loads[0].running = 1;
    let look = controller.next_order();
    tokio::pin!(look);
    assert!(futures_util::poll!(&mut look).is_pending());
    assert!(matches!(requests.try_recv(), Ok(WakeRequest::Rouse(2))));
    controller.lock().queues[3].sight = Sight::Dozing;
    controller.dozed(3, "held");
    assert!(matches!(requests.try_recv(), Ok(WakeRequest::Rouse(3))), "and takes no other");
}

#[tokio::test]
async fn who_stands_by_sleeps_without_a_look_until_the_lock_is_free() {
    let (controller, mut requests) = controller(config());
    fall_asleep(&controller, &mut requests, "taken").await;
    assert!(!is_askable(&controller));
    controller.dozed(1, "taken");
    assert!(!is_askable(&controller));
    controller.dozed(1, "held");
    let order = controller.next_order().await.expect("a look");
    assert_eq!(order.queues, [1]);
}

#[tokio::test]
async fn a_watch_that_left_a_task_lying_is_not_trusted_for_a_while() {
    let (controller, mut requests) = controller(config());
    fall_asleep(&controller, &mut requests, "taken").await;
    assert!(!controller.distrusts(0));
    controller.lock().queues[0].safety_at = Instant::now();
    claim(&controller, 6, 0, &[1]).await;
    assert!(!controller.distrusts(0), "the watch was about to come");
    assert!(matches!(requests.try_recv(), Ok(WakeRequest::Doze(0))), "or has given up the lock");
    controller.dozed(0, "taken");
    assert!(!is_askable(&controller), "it sleeps on");
    controller.lock().queues[0].safety_at = Instant::now();
    let order = controller.next_order().await.expect("a safety poll");
    let mut reply = brought(&order, 7, 0, &[2]);
    reply.tasks[0].waited = Duration::from_millis(100);
    assert_eq!(controller.claimed(&order, reply), None);
    assert!(controller.distrusts(0) && !controller.distrusts(1));
    claim(&controller, 0, 0, &[]).await;
    assert!(matches!(requests.try_recv(), Ok(WakeRequest::Doze(0))));
    controller.dozed(0, "taken");
    let order = controller.next_order().await.expect("a last look");
    assert_eq!(order.queues, [0]);
}

#[tokio::test]
async fn a_queue_that_a_look_found_empty_is_not_claimed_from_until_the_next() {
    let (controller, mut requests) = controller(config());
    assert_eq!(controller.to_look_at(Instant::now()), [], "nothing sleeps");
    fall_asleep(&controller, &mut requests, "taken").await;
    let sent = Instant::now() + Duration::from_millis(950);
    let looks = controller.to_look_at(sent);
    assert_eq!(looks.iter().map(|look| look.queue_id).collect::<Vec<_>>(), [1, 2, 3, 4]);
    controller.looked(&looks, &[false, false, true, false], sent);
    let askable = |at: Instant| {
        let queues = &controller.lock().queues;
        (0..4).filter(|index| queues[*index].is_askable(at)).collect::<Vec<_>>()
    };
    assert_eq!(askable(sent), [2], "at once");
    assert_eq!(askable(sent + Duration::from_millis(999)), [2]);
    assert_eq!(askable(sent + Duration::from_secs(1)), [0, 1, 2, 3], "the line is silent");
}

#[tokio::test]
async fn a_look_is_no_sweep_and_not_for_who_has_no_room() {
    let (controller, mut requests) = controller(config());
    fall_asleep(&controller, &mut requests, "taken").await;
    let soon = Instant::now() + Duration::from_millis(1);
    assert_eq!(controller.to_look_at(soon + Duration::from_secs(61)), [], "a sweep is due");
    controller.lock().loads[0].running = 8;
    assert_eq!(controller.to_look_at(soon), [], "no slot is free");
}

#[tokio::test]
async fn a_look_says_nothing_of_a_queue_that_woke_since() {
    let (controller, mut requests) = controller(config());
    fall_asleep(&controller, &mut requests, "taken").await;
    let looks = controller.to_look_at(Instant::now());
    controller.woken(Some(1));
    controller.looked(&looks, &[true; 4], Instant::now());
    let order = controller.next_order().await.expect("a claim");
    assert_eq!(order.queues, [0, 1, 2, 3]);
    controller.looked(&looks, &[false; 4], Instant::now());
    assert_eq!(controller.to_look_at(Instant::now()), [], "a claim is in flight");
}

#[tokio::test]
async fn a_look_that_finds_nothing_doubles_the_nap_and_one_that_finds_several_halves_it() {
    let (controller, mut requests) = controller(config());
    fall_asleep(&controller, &mut requests, "busy").await;
    assert_eq!(doublings(&controller), 0, "a commit's time");
    for expected in [1, 2, 3, 4, 5, 6, 6] {
        wake_up(&controller);
        fall_asleep(&controller, &mut requests, "busy").await;
        assert_eq!(doublings(&controller), expected, "no longer than busy_poll");
    }
    wake_up(&controller);
    claim(&controller, 7, 0, &[1]).await;
    assert!(matches!(requests.try_recv(), Ok(WakeRequest::Doze(0))), "one may be the last");
    controller.dozed(0, "busy");
    assert_eq!(doublings(&controller), 6, "one at a time is in time");
    wake_up(&controller);
    claim(&controller, 8, 0, &[2, 3]).await;
    assert_eq!(doublings(&controller), 5);
    wake_up(&controller);
    claim(&controller, 9, 0, &[4, 5]).await;
    assert_eq!(doublings(&controller), 4);
    controller.lock().queues[0].sight = Sight::Dozing;
    controller.dozed(0, "held");
    assert_eq!(doublings(&controller), 0, "nobody was in the way");
}

#[tokio::test]
async fn of_a_stream_nobody_asks_for_the_lock() {
    let (controller, mut requests) = controller(config());
    claim(&controller, 7, 0, &[1, 2]).await;
    let asked: Vec<_> = std::iter::from_fn(|| requests.try_recv().ok()).collect();
    assert!(
        matches!(asked[..], [WakeRequest::Doze(1), WakeRequest::Doze(2), WakeRequest::Doze(3)]),
        "{asked:?}"
    );
    wake_up(&controller);
    let look = controller.next_order().await.expect("a look without a call");
    assert_eq!(look.queues, [0]);
}

/// What decides is the sum over all queues: each by itself is called less often than a stream is.
#[tokio::test]
async fn a_worker_that_is_called_often_in_all_watches_no_queue_that_has_tasks() {
    let (controller, mut requests) = serving(config(), &["one", "two", "three"]);
    fall_asleep(&controller, &mut requests, "held").await;
    claim(&controller, 0, 0, &[]).await;
    let calls = (0..10_000).take_while(|call| controller.called(call % 3 * 4)).count();
    assert!((3..300).contains(&calls), "{calls} calls at once, a third for each lambda");
    assert!(!controller.called(0) && !controller.called(4) && !controller.called(8));
    let order = controller.next_order().await.expect("a claim");
    assert_eq!(order.queues, [0, 4, 8], "the others sleep on");
    let reply = brought(&order, 7, 1, &[1]);
    controller.claimed(&order, reply);
    let state = controller.lock();
    let polls: Vec<_> = [0, 4, 8].map(|queue| state.queues[queue].sight).into();
    assert!(matches!(polls[0], Sight::Poll(_)), "{polls:?}");
    assert!(polls.iter().all(|sight| *sight == polls[0]), "one claim for all: {polls:?}");
    assert!(requests.try_recv().is_err(), "nobody asks for a lock");
}

#[tokio::test]
async fn a_nap_is_not_stretched_to_the_linger_of_results() {
    let (controller, mut requests) =
        controller(WorkerConfig { linger: Duration::from_secs(3600), ..config() });
    fall_asleep(&controller, &mut requests, "busy").await;
    let look = tokio::time::timeout(Duration::from_secs(60), controller.next_order()).await;
    assert!(look.is_ok(), "some ms");
}
