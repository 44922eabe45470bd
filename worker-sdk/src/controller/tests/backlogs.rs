//! A lambda with a backlog keeps all lanes but one busy; that one serves the others.

use super::*;

/// Two lambdas, of which the first has a backlog.
async fn flooded(lanes: usize) -> (Controller, UnboundedReceiver<WatchRequest>) {
    let config = WorkerConfig { lanes, ..config() };
    let (controller, requests) = serving(config, &["flooded", "quiet"]);
    claim(&controller, 7, 0, &[1, 2, 3, 4, 5, 6, 7, 8]).await;
    (controller, requests)
}

/// Has a body run and its result wait for a lane.
async fn work_off(controller: &Controller) {
    let first = work(controller).await;
    controller.finish(0, Finished::said(&first, Outcome::Success(None), None), SHORT);
    let running = controller.lock().running.len();
    assert_eq!(running, 1, "the next one runs");
}

const SHORT: Duration = Duration::from_nanos(1);

async fn order(controller: &Controller) -> Box<Order> {
    let order = tokio::time::timeout(Duration::from_secs(10), controller.next_order()).await;
    order.expect("in time").expect("an order")
}

fn lambdas(order: &Order) -> Vec<usize> {
    order.groups.iter().map(|(lambda, _)| *lambda).collect()
}

#[tokio::test]
async fn a_backlog_and_the_others_are_not_claimed_together() {
    let (controller, _requests) = flooded(3).await;
    work_off(&controller).await;
    let first = order(&controller).await;
    assert_eq!((lambdas(&first), first.bulk, first.results.len()), (vec![0], true, 1));
    controller.woken(Some(4));
    let second = order(&controller).await;
    assert_eq!((lambdas(&second), second.bulk), (vec![0], true));
    let third = order(&controller).await;
    assert_eq!((lambdas(&third), third.bulk), (vec![1], false));
}

#[tokio::test]
async fn the_last_lane_takes_neither_a_backlog_nor_results() {
    let (controller, _requests) = flooded(2).await;
    work_off(&controller).await;
    let bulk = order(&controller).await;
    assert!(bulk.bulk);
    let next = work(&controller).await;
    controller.finish(0, Finished::said(&next, Outcome::Success(None), None), SHORT);
    controller.woken(Some(4));
    let last = order(&controller).await;
    assert_eq!((lambdas(&last), last.results.len()), (vec![1], 0));
    controller.claimed(&last, brought(&last, 0, 0, &[]));
    let nothing = controller.next_order();
    tokio::pin!(nothing);
    assert!(
        futures_util::poll!(&mut nothing).is_pending(),
        "the result waits for the backlog's lane"
    );
    controller.acknowledged(&bulk);
    controller.claimed(&bulk, brought(&bulk, 8, 0, &[11]));
    let after = nothing.await.expect("an order");
    assert_eq!(after.results.len(), 1);
}

#[tokio::test]
async fn a_claim_that_failed_frees_its_lane_for_the_backlog() {
    let (controller, _requests) = flooded(2).await;
    work_off(&controller).await;
    let mut bulk = order(&controller).await;
    controller.unclaim(&mut bulk);
    controller.unclaim(&mut bulk);
    assert_eq!(controller.lock().bulk, 0);
    assert!(order(&controller).await.bulk);
}

#[tokio::test]
async fn a_single_lane_serves_everybody_at_once() {
    let (controller, _requests) = flooded(1).await;
    work_off(&controller).await;
    controller.woken(Some(4));
    assert_eq!(lambdas(&*order(&controller).await), [0, 1]);
}
