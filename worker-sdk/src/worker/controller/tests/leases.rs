//! Leases: what the controller tells the heartbeat, and when one goes with which exchange.

use super::*;

#[tokio::test]
async fn a_lease_goes_only_when_every_result_under_it_is_recorded() {
    let (controller, _requests) = controller(config());
    claim(&controller, 7, 0, &[1, 2]).await;
    let (one, two) = (work(&controller), work(&controller));
    succeed(&controller, &one);
    let first = plan(&controller).await;
    succeed(&controller, &two);
    let second = plan(&controller).await;
    assert_eq!((sent(&first), sent(&second)), (vec![1], vec![2]));
    // The first may still fail, and then only the lease leads to its task.
    assert!(dropped(&first).is_empty() && dropped(&second).is_empty());
    done(&controller, second);
    done(&controller, first);
    assert_eq!(dropped(&*plan(&controller).await), [7]);
}

#[tokio::test]
async fn a_refused_result_makes_the_heartbeat_ask_for_our_leases() {
    let (controller, _requests) = controller(config());
    assert!(controller.lost_claims(&[], Instant::now()).is_empty());
    assert!(!controller.wants_leases(Instant::now()));
    claim(&controller, 7, 0, &[1, 2]).await;
    let (one, _two) = (work(&controller), work(&controller));
    succeed(&controller, &one);
    let mut refused = plan(&controller).await;
    controller.acknowledged(&mut refused, but(1, Verdict::Refused));
    assert!(controller.wants_leases(Instant::now()));
}

#[tokio::test]
async fn a_lease_outlives_work_that_could_not_be_given_back() {
    let (controller, _requests) = controller(WorkerConfig { slots: 1, ..config() });
    claim(&controller, 7, 0, &[1, 2]).await;
    let one = work(&controller);
    let back = controller.give_back(controller.drain());
    assert!(back.last_leases().is_empty());
    controller.not_given_back(back);
    succeed(&controller, &one);
    let mut results = plan(&controller).await;
    assert!(dropped(&results).is_empty());
    answer(&controller, &mut results, None);
    let back = controller.give_back(controller.take_unwanted(&[], Instant::now()));
    assert_eq!(back.last_leases(), [LeaseId(7)]);
    controller.given_back(back, |_| Verdict::Done);
    assert!(controller.next_exchange().await.is_none());
}

#[tokio::test]
async fn a_broken_exchange_makes_the_heartbeat_ask_for_our_leases() {
    let (controller, _requests) = controller(config());
    let now = Instant::now();
    assert!(controller.lost_claims(&[], now).is_empty());
    assert!(!controller.wants_leases(now));
    controller.unclaim(&mut ExchangePlan::default());
    assert!(controller.wants_leases(Instant::now()));
    assert!(controller.lost_claims(&[LeaseId(9)], now).is_empty());
    assert_eq!(controller.lost_claims(&[LeaseId(9)], now), [LeaseId(9)]);
}
