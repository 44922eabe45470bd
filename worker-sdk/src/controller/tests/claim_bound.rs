//! A claim over many lambdas: bounded as a whole, and every lambda gets its turn.

use std::collections::HashSet;

use super::*;

const LAMBDAS: usize = 1_000;

/// A thousand lambdas, in each of which something may wait. One lane asks backlogs and the others alike.
fn many() -> (Controller, UnboundedReceiver<WatchRequest>) {
    let names: Vec<_> = (0..LAMBDAS).map(|n| format!("lambda_{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    serving(WorkerConfig { slots: 40, lanes: 1, ..config() }, &names)
}

fn asked(order: &Order) -> usize {
    order.groups.iter().map(|(_, budget)| budget).sum()
}

/// The answer to a claim that found as much as it asked for, in the first queue of each lambda.
fn full(order: &Order, lease: i64) -> Reply {
    let mut reply = brought(order, lease, 0, &[]);
    let mut group = 0;
    for (at, number) in order.request.groups.iter().enumerate() {
        reply.popped[at] = (*number != group).then(|| order.request.budgets[group_at(*number)]);
        group = *number;
    }
    reply
}

fn group_at(number: i16) -> usize {
    usize::try_from(number - 1).expect("from 1")
}

#[tokio::test]
async fn a_claim_of_a_thousand_lambdas_asks_for_one_batch_and_few_queues() {
    let (controller, _requests) = many();
    let order = controller.next_order().await.expect("a claim");
    assert_eq!((asked(&order), order.groups.len(), order.queues.len()), (500, 20, 80));
}

#[tokio::test]
async fn a_claim_for_few_slots_visits_a_bounded_number_of_queues() {
    let names: Vec<_> = (0..LAMBDAS).map(|n| format!("lambda_{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let (controller, _requests) = serving(WorkerConfig { slots: 1, ..config() }, &names);
    let order = controller.next_order().await.expect("a claim");
    assert_eq!((asked(&order), order.queues.len()), (50, 200));
}

#[tokio::test]
async fn every_lambda_is_asked_before_any_is_asked_again() {
    let (controller, _requests) = many();
    let mut seen = HashSet::new();
    for lease in 1..=50 {
        let order = controller.next_order().await.expect("a claim");
        assert!(order.groups.iter().all(|(lambda, _)| seen.insert(*lambda)), "asked again");
        controller.claimed(&order, full(&order, lease));
    }
    assert_eq!(seen.len(), LAMBDAS);
    for _ in 0..50 {
        let order = controller.next_order().await.expect("a claim from backlogs");
        assert!(asked(&order) <= 500);
        assert!(order.groups.iter().all(|(lambda, _)| seen.remove(lambda)), "asked again");
        controller.claimed(&order, full(&order, 99));
    }
    assert!(seen.is_empty());
}

#[tokio::test]
async fn few_lambdas_share_the_whole_batch() {
    let config = WorkerConfig { slots: 400, ..config() };
    let (controller, _requests) = serving(config, &["one", "two"]);
    let order = controller.next_order().await.expect("a claim");
    assert_eq!(order.groups, [(0, 250), (1, 250)]);
}

#[tokio::test]
async fn a_claim_that_was_late_is_halved_and_grows_again() {
    let (controller, _requests) = many();
    for most in [500, 250, 125] {
        let mut order = controller.next_order().await.expect("a claim");
        assert_eq!(asked(&order), most);
        controller.was_late(&order);
        controller.unclaim(&mut order);
    }
    let mut before = 62;
    while before < 500 {
        let order = controller.next_order().await.expect("a claim");
        assert_eq!(asked(&order), before);
        controller.claimed(&order, full(&order, 1));
        before = (before + 31).min(500);
    }
}

#[tokio::test]
async fn results_that_are_late_leave_claims_as_they_are() {
    let (controller, _requests) = many();
    let mut order = controller.next_order().await.expect("a claim");
    controller.unclaim(&mut order);
    controller.was_late(&order);
    assert_eq!(asked(&controller.next_order().await.expect("a claim")), 500);
}

#[tokio::test]
async fn a_late_claim_of_one_task_is_made_again() {
    let config = WorkerConfig { max_batch: 1, ..config() };
    let (controller, _requests) = serving(config, &["one", "two"]);
    let mut order = controller.next_order().await.expect("a claim");
    controller.was_late(&order);
    controller.unclaim(&mut order);
    assert_eq!(asked(&controller.next_order().await.expect("a claim")), 1);
}

/// A claim of these lambdas that the bound in bytes ended with the queue at that place.
fn cut(order: &Order, lease: i64, at: usize) -> Reply {
    let mut reply = brought(order, lease, at, &[lease]);
    reply.popped[at + 1..].fill(None);
    reply.cut_at = Some(at);
    reply
}

#[tokio::test]
async fn lambdas_behind_a_cut_come_first_in_the_next_claim_and_each_in_its_turn() {
    let names = ["a", "b", "c", "d"];
    let config = WorkerConfig { slots: 40, lanes: 1, ..config() };
    let (controller, _requests) = serving(config, &names);
    let mut first = Vec::new();
    for lease in 1..=8 {
        let order = controller.next_order().await.expect("a claim");
        first.push(order.groups[0].0);
        controller.claimed(&order, cut(&order, lease, 0));
    }
    assert_eq!(first, [0, 1, 2, 3, 0, 1, 2, 3]);
}

#[tokio::test]
async fn a_queue_that_the_cut_left_something_in_is_asked_again_at_once() {
    let (controller, _requests) = controller(WorkerConfig { lanes: 1, ..config() });
    let order = controller.next_order().await.expect("a claim");
    controller.claimed(&order, cut(&order, 1, 0));
    assert!(controller.lock().queues[0].deep);
}

#[tokio::test]
async fn a_full_buffer_leaves_one_task_for_a_lambda_that_has_nothing_else() {
    let config = WorkerConfig { slots: 1, max_buffer_bytes: 100, lanes: 1, ..config() };
    let (controller, _requests) = serving(config, &["large", "quiet"]);
    let order = controller.next_order().await.expect("a claim");
    assert_eq!(order.request.max_bytes, 100);
    let mut reply = brought(&order, 1, 0, &[1]);
    reply.tasks[0].payload = Some(crate::json::JsonOwned("x".repeat(100)));
    controller.claimed(&order, reply);
    controller.woken(None);
    let order = controller.next_order().await.expect("a claim");
    let asked: Vec<_> = order.groups.iter().map(|(lambda, _)| *lambda).collect();
    assert_eq!((asked, order.request.max_bytes), (vec![1], 1));
    controller.claimed(&order, brought(&order, 2, 0, &[]));
    let _begun = work(&controller).await;
    assert_eq!(controller.lock().buffered_bytes, 0);
    assert_eq!(controller.lock().asked_bytes, 0);
}
