//! Lanes for which the server has no connection: what they were to send goes with another.

use super::*;

fn two_lanes() -> WorkerConfig {
    WorkerConfig { lanes: 2, ..config() }
}

#[tokio::test]
async fn results_of_a_lane_that_rests_go_with_the_next_order() {
    let (controller, _requests) = controller(two_lanes());
    claim(&controller, 7, 0, &[1, 2]).await;
    let (one, two) = (work(&controller).await, work(&controller).await);
    succeed(&controller, &one);
    let mut refused = controller.next_order().await.expect("results");
    controller.unclaim(&mut refused);
    assert!(controller.rest_lane(&mut refused));
    assert!(refused.request.is_empty(), "another lane sends it");
    succeed(&controller, &two);
    let next = controller.next_order().await.expect("both results");
    assert_eq!(next.request.tasks, [1, 2]);
    assert_eq!(next.request.done_leases, [7], "it goes with its last result");
    done(&controller, &next);
    let state = controller.lock();
    assert_eq!((state.unacknowledged, state.bulk, state.leases.len()), (0, 0, 0));
}

#[tokio::test]
async fn the_last_lane_never_rests() {
    let (controller, _requests) = controller(two_lanes());
    assert!(controller.rest_lane(&mut Order::default()));
    claim(&controller, 7, 0, &[1]).await;
    let one = work(&controller).await;
    succeed(&controller, &one);
    let mut order = controller.next_order().await.expect("a result");
    controller.unclaim(&mut order);
    assert!(!controller.rest_lane(&mut order));
    assert_eq!(order.request.tasks, [1], "it keeps what it has to send");
    controller.lane_returns();
    assert!(controller.rest_lane(&mut order));
}

#[tokio::test]
async fn a_lease_that_was_over_before_is_dropped_by_another_lane() {
    let (controller, _requests) = controller(two_lanes());
    claim(&controller, 7, 0, &[1]).await;
    controller.lock().settled_leases.push(5);
    let one = work(&controller).await;
    succeed(&controller, &one);
    let mut refused = controller.next_order().await.expect("a result");
    assert!(refused.request.done_leases.contains(&5));
    controller.unclaim(&mut refused);
    assert!(controller.rest_lane(&mut refused));
    let next = controller.next_order().await.expect("the same");
    assert_eq!((next.request.tasks.as_slice(), next.request.done_leases.len()), (&[1][..], 2));
}
