//! A claim over many lambdas: bounded as a whole, and every lambda gets its turn.

use std::collections::HashSet;

use super::*;

const LAMBDAS: usize = 1_000;

/// A thousand lambdas, in each of which something may wait. One connection asks all of them.
fn many() -> (Controller, UnboundedReceiver<WatchRequest>) {
    let names: Vec<_> = (0..LAMBDAS).map(|n| format!("lambda_{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    serving(WorkerConfig { slots: 40, exchange_connections: 1, ..config() }, &names)
}

fn asked(plan: &ExchangePlan) -> usize {
    lambdas(plan).iter().map(|(_, budget)| budget).sum()
}

/// The answer to a claim that found as much as it asked for, in the first queue of each lambda.
fn full(plan: &ExchangePlan, lease: i64) -> Option<Claimed> {
    let mut claimed = brought(plan, lease, 0, &[])?;
    let mut first = 0;
    for lambda in &plan.claim.as_ref()?.claim.lambdas {
        let of_it = &mut claimed.queues[first..first + lambda.queues.len()];
        of_it.fill(QueueFound::default());
        of_it[0].popped = Some(lambda.budget);
        first += lambda.queues.len();
    }
    Some(claimed)
}

/// The next claim, answered in full.
async fn claim_all(controller: &Controller, lease: i64) -> Vec<(usize, usize)> {
    let mut plan = plan(controller).await;
    let asked = lambdas(&plan);
    let found = full(&plan, lease);
    controller.claimed(&mut plan, found);
    asked
}

#[tokio::test]
async fn a_claim_of_a_thousand_lambdas_asks_for_one_batch_and_few_queues() {
    let (controller, _requests) = many();
    let plan = plan(&controller).await;
    assert_eq!((asked(&plan), lambdas(&plan).len(), queues(&plan).len()), (500, 20, 80));
}

#[tokio::test]
async fn a_claim_for_few_slots_visits_a_bounded_number_of_queues() {
    let names: Vec<_> = (0..LAMBDAS).map(|n| format!("lambda_{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let (controller, _requests) = serving(WorkerConfig { slots: 1, ..config() }, &names);
    let plan = plan(&controller).await;
    assert_eq!((asked(&plan), queues(&plan).len()), (50, 200));
}

#[tokio::test]
async fn every_lambda_is_asked_before_any_is_asked_again() {
    let (controller, _requests) = many();
    let mut seen = HashSet::new();
    for lease in 1..=50 {
        let asked = claim_all(&controller, lease).await;
        assert!(asked.iter().all(|(lambda, _)| seen.insert(*lambda)), "asked again");
    }
    assert_eq!(seen.len(), LAMBDAS);
    for _ in 0..50 {
        let asked = claim_all(&controller, 99).await;
        assert!(asked.iter().map(|(_, budget)| budget).sum::<usize>() <= 500);
        assert!(asked.iter().all(|(lambda, _)| seen.remove(lambda)), "asked again");
    }
    assert!(seen.is_empty());
}

#[tokio::test]
async fn few_lambdas_share_the_whole_batch() {
    let config = WorkerConfig { slots: 400, ..config() };
    let (controller, _requests) = serving(config, &["one", "two"]);
    assert_eq!(lambdas(&*plan(&controller).await), [(0, 250), (1, 250)]);
}

#[tokio::test]
async fn a_claim_that_was_late_is_halved_and_grows_again() {
    let (controller, _requests) = many();
    for most in [500, 250, 125] {
        let mut late = plan(&controller).await;
        assert_eq!(asked(&late), most);
        controller.was_late(&late);
        controller.unclaim(&mut late);
    }
    let mut before = 62;
    while before < 500 {
        let asked = claim_all(&controller, 1).await;
        assert_eq!(asked.iter().map(|(_, budget)| budget).sum::<usize>(), before);
        before = (before + 31).min(500);
    }
}

#[tokio::test]
async fn results_that_are_late_leave_claims_as_they_are() {
    let (controller, _requests) = many();
    let mut results = plan(&controller).await;
    controller.unclaim(&mut results);
    controller.was_late(&results);
    assert_eq!(asked(&*plan(&controller).await), 500);
}

#[tokio::test]
async fn a_late_claim_of_one_task_is_made_again() {
    let config = WorkerConfig { max_batch: 1, ..config() };
    let (controller, _requests) = serving(config, &["one", "two"]);
    let mut late = plan(&controller).await;
    controller.was_late(&late);
    controller.unclaim(&mut late);
    assert_eq!(asked(&*plan(&controller).await), 1);
}

/// A claim of these lambdas that the bound in bytes ended with the queue at that place.
fn cut(plan: &ExchangePlan, lease: i64, at: usize) -> Option<Claimed> {
    let mut claimed = brought(plan, lease, at, &[lease])?;
    claimed.queues[at + 1..].fill(QueueFound::default());
    claimed.cut_at = Some(at);
    Some(claimed)
}

#[tokio::test]
async fn lambdas_behind_a_cut_come_first_in_the_next_claim_and_each_in_its_turn() {
    let names = ["a", "b", "c", "d"];
    let config = WorkerConfig { slots: 40, exchange_connections: 1, ..config() };
    let (controller, _requests) = serving(config, &names);
    let mut first = Vec::new();
    for lease in 1..=8 {
        let mut plan = plan(&controller).await;
        first.push(lambdas(&plan)[0].0);
        let found = cut(&plan, lease, 0);
        controller.claimed(&mut plan, found);
    }
    assert_eq!(first, [0, 1, 2, 3, 0, 1, 2, 3]);
}

#[tokio::test]
async fn a_queue_that_the_cut_left_something_in_is_asked_again_at_once() {
    let (controller, _requests) = controller(WorkerConfig { exchange_connections: 1, ..config() });
    let mut plan = plan(&controller).await;
    let found = cut(&plan, 1, 0);
    controller.claimed(&mut plan, found);
    assert!(controller.lock().watch.queues[0].has_backlog);
}

#[tokio::test]
async fn a_full_buffer_leaves_one_task_for_a_lambda_that_has_nothing_else() {
    let config =
        WorkerConfig { slots: 1, max_buffer_bytes: 100, exchange_connections: 1, ..config() };
    let (controller, _requests) = serving(config, &["large", "quiet"]);
    let mut large = plan(&controller).await;
    assert_eq!(max_bytes(&large), 100);
    let mut found = brought(&large, 1, 0, &[1]).expect("a claim");
    found.tasks[0].payload = Some(crate::db::json::JsonOwned("x".repeat(100)));
    controller.claimed(&mut large, Some(found));
    controller.watch_event(WatchEvent::AllMayHaveTasks);
    let mut quick = plan(&controller).await;
    assert_eq!((lambdas(&quick), max_bytes(&quick)), (vec![(1, 1)], 1));
    let nothing = brought(&quick, 2, 0, &[]);
    controller.claimed(&mut quick, nothing);
    let _begun = work(&controller);
    let state = controller.lock();
    assert_eq!((state.slots.buffered_bytes(), state.asked_bytes), (0, 0));
}

fn max_bytes(plan: &ExchangePlan) -> usize {
    plan.claim.as_ref().expect("a claim").claim.max_bytes
}
