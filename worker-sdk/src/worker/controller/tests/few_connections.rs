//! Exchange connections for which the server has no room: what they were to send goes with another.

use super::*;

fn two_connections() -> WorkerConfig {
    WorkerConfig { exchange_connections: 2, ..config() }
}

#[tokio::test]
async fn results_of_a_connection_that_rests_go_with_the_next_exchange() {
    let (controller, _requests) = controller(two_connections());
    claim(&controller, 7, 0, &[1, 2]).await;
    let (one, two) = (work(&controller), work(&controller));
    succeed(&controller, &one);
    let mut refused = plan(&controller).await;
    controller.unclaim(&mut refused);
    assert!(controller.rest_connection(&mut refused));
    assert!(refused.request().is_empty(), "another connection sends it");
    succeed(&controller, &two);
    let next = plan(&controller).await;
    assert_eq!(
        (sent(&next), dropped(&next)),
        (vec![1, 2], vec![7]),
        "the lease goes with the last"
    );
    done(&controller, next);
    let state = controller.lock();
    assert_eq!((state.unacknowledged, state.bulk), (0, 0));
}

#[tokio::test]
async fn the_last_connection_never_rests() {
    let (controller, _requests) = controller(two_connections());
    assert!(controller.rest_connection(&mut ExchangePlan::default()));
    claim(&controller, 7, 0, &[1]).await;
    succeed(&controller, &work(&controller));
    let mut results = plan(&controller).await;
    controller.unclaim(&mut results);
    assert!(!controller.rest_connection(&mut results));
    assert_eq!(sent(&results), [1], "it keeps what it has to send");
    controller.connection_returns();
    assert!(controller.rest_connection(&mut results));
}
