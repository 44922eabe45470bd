//! A lambda with a backlog keeps all exchange connections but one busy; that one serves the rest.

use super::*;

/// Two lambdas, of which the first has a backlog.
async fn flooded(exchange_connections: usize) -> (Controller, UnboundedReceiver<WatchRequest>) {
    let config = WorkerConfig { exchange_connections, ..config() };
    let (controller, requests) = serving(config, &["flooded", "quiet"]);
    claim(&controller, 7, 0, &[1, 2, 3, 4, 5, 6, 7, 8]).await;
    (controller, requests)
}

/// Has a body run and its result wait for an exchange.
async fn work_off(controller: &Controller) {
    let first = work(controller);
    controller.finish(0, AttemptResult::of(&first, Outcome::Success(None), None), SHORT);
    assert!(controller.running().is_some(), "the next one runs");
}

const SHORT: Duration = Duration::from_nanos(1);

fn asked(plan: &ExchangePlan) -> Vec<usize> {
    lambdas(plan).into_iter().map(|(lambda, _)| lambda).collect()
}

#[tokio::test]
async fn a_backlog_and_quick_tasks_are_not_claimed_together() {
    let (controller, _requests) = flooded(3).await;
    work_off(&controller).await;
    let first = plan(&controller).await;
    assert_eq!((asked(&first), first.bulk, sent(&first).len()), (vec![0], true, 1));
    wake(&controller, 4);
    let second = plan(&controller).await;
    assert_eq!((asked(&second), second.bulk), (vec![0], true));
    let third = plan(&controller).await;
    assert_eq!((asked(&third), third.bulk), (vec![1], false));
}

#[tokio::test]
async fn the_last_connection_takes_neither_a_backlog_nor_results() {
    let (controller, _requests) = flooded(2).await;
    work_off(&controller).await;
    let mut bulk = plan(&controller).await;
    assert!(bulk.bulk);
    let next = work(&controller);
    controller.finish(0, AttemptResult::of(&next, Outcome::Success(None), None), SHORT);
    wake(&controller, 4);
    let mut last = plan(&controller).await;
    assert_eq!((asked(&last), sent(&last).len()), (vec![1], 0));
    let found = brought(&last, 0, 0, &[]);
    controller.claimed(&mut last, found);
    let nothing = controller.next_exchange();
    tokio::pin!(nothing);
    assert!(
        futures_util::poll!(&mut nothing).is_pending(),
        "the result waits for the backlog's connection"
    );
    let found = brought(&bulk, 8, 0, &[11]);
    answer(&controller, &mut bulk, found);
    let after = nothing.await.expect("a plan");
    assert_eq!(sent(&after).len(), 1);
}

#[tokio::test]
async fn a_batch_of_results_is_long_and_a_few_are_not() {
    let (controller, _requests) = controller(WorkerConfig { max_batch: 2, ..config() });
    for results in 1..=2_usize {
        let ids: Vec<i64> = (1..).take(results).collect();
        claim(&controller, 7, 0, &ids).await;
        let tasks: Vec<_> = ids.iter().map(|_| work(&controller)).collect();
        tasks.iter().for_each(|task| succeed(&controller, task));
        controller.lock().watch.queues.iter_mut().for_each(|queue| queue.has_backlog = false);
        let plan = plan(&controller).await;
        assert_eq!((plan.is_long(), sent(&plan).len()), (results == 2, results));
        done(&controller, plan);
    }
}

#[tokio::test]
async fn a_claim_that_failed_frees_its_connection_for_the_backlog() {
    let (controller, _requests) = flooded(2).await;
    work_off(&controller).await;
    let mut bulk = plan(&controller).await;
    controller.unclaim(&mut bulk);
    controller.unclaim(&mut bulk);
    assert_eq!(controller.lock().bulk, 0);
    assert!(plan(&controller).await.bulk);
}

#[tokio::test]
async fn a_single_connection_serves_all_lambdas_at_once() {
    let (controller, _requests) = flooded(1).await;
    work_off(&controller).await;
    wake(&controller, 4);
    assert_eq!(asked(&*plan(&controller).await), [0, 1]);
}
