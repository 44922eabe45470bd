//! A bound on the slots of one priority: what is claimed, what begins, and the slots that it leaves free.

use super::*;

/// Four slots, of which tasks of low priority may hold one.
fn bounded() -> (Controller, UnboundedReceiver<WatchRequest>) {
    let config = WorkerConfig { slots: 4, ..config() };
    serving_these(config, vec![lambda("work").slots_for(Priority::Low, 1)])
}

const LOW: usize = 3;

fn bounds(plan: &ExchangePlan) -> Vec<Option<usize>> {
    plan.claim.iter().flat_map(|plan| plan.claim.queues()).map(|queue| queue.bound).collect()
}

#[tokio::test]
async fn a_bounded_queue_is_asked_for_no_more_than_its_own_slots() {
    let (controller, _requests) = bounded();
    let mut plan = plan(&controller).await;
    assert_eq!(lambdas(&plan), [(0, 4)]);
    assert_eq!(bounds(&plan), [None, None, None, Some(1)]);
    let found = brought(&plan, 7, LOW, &[1]);
    controller.claimed(&mut plan, found);
    assert!(controller.lock().watch.queues[LOW].has_backlog, "as many as were asked for");
    controller.watch_event(WatchEvent::AllMayHaveTasks);
    let next = super::plan(&controller).await;
    assert_eq!(queues(&next), [0, 1, 2], "its own slot is taken");
}

#[tokio::test]
async fn what_is_bounded_waits_while_the_other_slots_are_free() {
    let (controller, _requests) = bounded();
    let mut plan = plan(&controller).await;
    let found = brought(&plan, 7, LOW, &[1, 2]);
    controller.claimed(&mut plan, found);
    let one = work(&controller);
    assert!(controller.lock().slots.take(0, Instant::now()).is_none(), "three slots are free");
    claim(&controller, 8, 0, &[3]).await;
    assert_eq!(work(&controller).task, 3);
    let finished = AttemptResult::of(&one, Outcome::Success(None), None);
    let next = controller.finish(0, finished, Duration::from_secs(1)).expect("the second");
    assert_eq!(next.task, 2);
    let back = controller.drain();
    assert!(back.is_empty());
    assert_eq!(controller.lock().slots.queue_room(LOW), Some(0), "it runs");
}

#[tokio::test]
async fn a_claim_that_failed_gives_the_bound_back() {
    let (controller, _requests) = bounded();
    let mut plan = plan(&controller).await;
    assert_eq!(controller.lock().slots.queue_room(LOW), Some(0));
    controller.unclaim(&mut plan);
    assert_eq!(controller.lock().slots.queue_room(LOW), Some(1));
}
