//! Leases: when one goes, when it is left to others, and when the server is asked for those it has.

use super::*;

#[tokio::test]
async fn a_lease_goes_only_when_every_result_under_it_is_recorded() {
    let (controller, _requests) = controller(config());
    claim(&controller, 7, 0, &[1, 2]).await;
    let (one, two) = (work(&controller).await, work(&controller).await);
    succeed(&controller, &one);
    let first = controller.next_order().await.expect("results");
    succeed(&controller, &two);
    let second = controller.next_order().await.expect("results");
    assert_eq!((first.results.len(), second.results.len()), (1, 1));
    // The first may still fail, and then only the lease leads to its task.
    assert_eq!(first.request.done_leases, second.request.done_leases);
    assert!(second.request.done_leases.is_empty());
    done(&controller, &second);
    done(&controller, &first);
    let third = controller.next_order().await.expect("the lease");
    assert_eq!(third.request.done_leases, [7]);
}

#[tokio::test]
async fn a_lease_of_which_a_result_was_refused_is_left_to_the_heartbeat() {
    let (controller, _requests) = controller(config());
    assert!(controller.unknown_leases(&[], Instant::now()).is_empty());
    claim(&controller, 7, 0, &[1, 2, 3]).await;
    let works = [work(&controller).await, work(&controller).await, work(&controller).await];
    for (work, refused) in works.iter().zip([true, false, false]) {
        succeed(&controller, work);
        let order = controller.next_order().await.expect("results");
        assert!(order.request.done_leases.is_empty(), "it may not have been the database");
        let named: &[i64] = if refused { &[work.task] } else { &[] };
        controller.refused(order.leases_of(named));
        assert!(controller.wants_leases(Instant::now()));
        assert!(controller.unknown_leases(&[7], Instant::now()).is_empty(), "it is at work");
        done(&controller, &order);
    }
    assert_eq!(controller.take_settled_leases(), Vec::<i64>::new());
    assert!(controller.lock().refused_leases.is_empty());
    assert!(controller.unknown_leases(&[7], Instant::now()).is_empty());
    assert_eq!(controller.unknown_leases(&[7], Instant::now()), [7]);
    // Of the last there is nothing to decide: wherever it was refused, there the lease is gone.
    claim(&controller, 8, 0, &[4]).await;
    succeed(&controller, &work(&controller).await);
    let order = controller.next_order().await.expect("results");
    assert_eq!(order.request.done_leases, [8]);
    controller.refused(order.leases_of(&[4]));
    done(&controller, &order);
    let state = controller.lock();
    assert!(state.leases.is_empty() && state.refused_leases.is_empty());
}

#[tokio::test]
async fn a_lease_outlives_work_that_could_not_be_given_back() {
    let (controller, _requests) = controller(WorkerConfig { slots: 1, ..config() });
    claim(&controller, 7, 0, &[1, 2]).await;
    let one = work(&controller).await;
    let back = controller.drain();
    assert_eq!(controller.last_leases(&back), Vec::<i64>::new());
    controller.keep_abandoned(back);
    succeed(&controller, &one);
    let order = controller.next_order().await.expect("results");
    assert!(order.request.done_leases.is_empty());
    controller.acknowledged(&order);
    let back = controller.take_abandoned();
    assert_eq!(controller.last_leases(&back), [7]);
    controller.given_back(&back, &[7]);
    assert!(controller.next_order().await.is_none());
}

#[tokio::test]
async fn leases_are_asked_for_after_a_broken_exchange_and_now_and_then() {
    let (controller, _requests) = controller(config());
    let beat = controller.config.heartbeat_period;
    let now = Instant::now();
    assert!(controller.wants_leases(now), "what the former life of a session left");
    assert!(controller.wants_leases(now), "that heartbeat broke: it has named nothing");
    assert!(controller.unknown_leases(&[], now).is_empty());
    assert!(!controller.wants_leases(now + beat * 11));
    let now = now + beat * 12;
    assert!(controller.wants_leases(now));
    // One is unknown: its answer may be under way, or lost.
    assert!(controller.unknown_leases(&[7], now).is_empty());
    assert!(controller.wants_leases(now + beat));
    assert!(controller.unknown_leases(&[8], now + beat).is_empty());
    assert!(!controller.wants_leases(now + beat * 2), "not for ever, on a busy worker");
    controller.unclaim(&mut Order::default());
    assert!(controller.wants_leases(Instant::now()));
    assert!(controller.unknown_leases(&[9], now).is_empty());
    assert_eq!(controller.unknown_leases(&[9], now), [9]);
}
