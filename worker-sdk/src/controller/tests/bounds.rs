//! A bound on the slots of one priority: what it is asked for, what begins, and what it leaves to others.

use super::*;

/// Four slots, of which tasks of low priority may hold one.
fn bounded() -> (Controller, UnboundedReceiver<WatchRequest>) {
    let config = WorkerConfig { slots: 4, ..config() };
    serving_these(config, vec![lambda("work").slots_for(Priority::Low, 1)])
}

const LOW: usize = 3;

#[tokio::test]
async fn a_bounded_queue_is_asked_for_no_more_than_its_own_slots() {
    let (controller, _requests) = bounded();
    let order = controller.next_order().await.expect("a claim");
    assert_eq!(order.request.budgets, [4]);
    assert_eq!(order.request.bounds, [None, None, None, Some(1)]);
    controller.claimed(&order, brought(&order, 7, LOW, &[1]));
    assert!(controller.lock().queues[LOW].deep, "as many as were asked for");
    controller.woken(None);
    let next = controller.next_order().await.expect("the other queues");
    assert_eq!(next.queues, [0, 1, 2], "its own slot is taken");
}

#[tokio::test]
async fn what_is_bounded_waits_while_the_other_slots_are_free() {
    let (controller, _requests) = bounded();
    let order = controller.next_order().await.expect("a claim");
    controller.claimed(&order, brought(&order, 7, LOW, &[1, 2]));
    let one = work(&controller).await;
    assert!(controller.lock().take_work(&controller, 0).is_none(), "three slots are free");
    let order = controller.next_order().await.expect("a claim");
    controller.claimed(&order, brought(&order, 8, 0, &[3]));
    assert_eq!(work(&controller).await.task, 3);
    let finished = Finished::said(&one, Outcome::Success(None), None);
    let next = controller.finish(0, finished, Duration::from_secs(1)).expect("the second");
    assert_eq!(next.task, 2);
    let back = controller.drain();
    assert!(
        back.is_empty()
            && controller.lock().queues[LOW].bound.as_ref().is_some_and(|b| b.running == 1)
    );
}

#[tokio::test]
async fn a_claim_that_failed_gives_the_bound_back() {
    let (controller, _requests) = bounded();
    let mut order = controller.next_order().await.expect("a claim");
    assert_eq!(controller.lock().queues[LOW].room(&controller.config), Some(0));
    controller.unclaim(&mut order);
    assert_eq!(controller.lock().queues[LOW].room(&controller.config), Some(1));
}
