//! The controller without a database: what an exchange connection is told after which answer.

mod backlogs;
mod bounds;
mod claim_bound;
mod executors;
mod few_connections;
mod leases;
mod queue_watch;
mod shared_bells;
mod transitions;

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;

use super::exchange_plan::ClaimPlan;
use super::*;
use crate::db::hsc::{
    Attempt, Claim, Claimed, ClaimedTask, LambdaClaim, LeaseId, QueueFound, Verdict, Watched,
    bell_of,
};
use crate::db::low_water_mark::Around;
use crate::task::Priority;
use crate::worker::context::Context;
use crate::worker::outcome::Outcome;
use crate::worker::work::StopReason;

fn config() -> WorkerConfig {
    WorkerConfig { linger: Duration::ZERO, slots: 8, ..WorkerConfig::default() }
}

fn controller(config: WorkerConfig) -> (Controller, UnboundedReceiver<WatchRequest>) {
    serving(config, &["work"])
}

/// Four queues for each lambda, in this order.
fn serving(config: WorkerConfig, names: &[&str]) -> (Controller, UnboundedReceiver<WatchRequest>) {
    serving_these(config, names.iter().map(|name| lambda(name)).collect())
}

fn lambda(name: &str) -> Lambda {
    Lambda::named(name, |_: serde_json::Value, _: Context| async { Outcome::Success(None) })
}

fn serving_these(
    config: WorkerConfig,
    lambdas: Vec<Lambda>,
) -> (Controller, UnboundedReceiver<WatchRequest>) {
    let (wake, requests) = mpsc::unbounded_channel();
    let all = lambdas.iter().flat_map(|one| Priority::ALL.iter().map(|at| (one.name.clone(), at)));
    let served = |(at, (lambda, priority)): (usize, (Arc<str>, &Priority))| Served {
        lambda: lambda.to_string(),
        priority: *priority,
        queue_id: i32::try_from(at).expect("few") + 1,
        attempt_timeout: Duration::from_secs(60),
    };
    let served: Vec<_> = all.enumerate().map(served).collect();
    let statistics =
        Arc::new(Statistics::new(lambdas.iter().map(|one| one.name.clone()).collect()));
    (Controller::new(config, lambdas, &served, wake, false, statistics), requests)
}

/// The answer to a claim that brought these tasks from one queue.
fn brought(plan: &ExchangePlan, lease: i64, queue: usize, ids: &[i64]) -> Option<Claimed> {
    let task = |id: &i64| ClaimedTask {
        id: *id,
        queue,
        attempt: 1,
        crashes: 0,
        claimed_before: false,
        waited: Duration::ZERO,
        collection: None,
        traceparent: None,
        payload: None,
    };
    let nothing = QueueFound { popped: Some(0), ..QueueFound::default() };
    let mut queues = vec![nothing; queues(plan).len()];
    if let Some(found) = queues.get_mut(queue) {
        found.popped = Some(ids.len());
    }
    Some(Claimed {
        lease: (!ids.is_empty()).then_some(LeaseId(lease)),
        tasks: ids.iter().map(task).collect(),
        queues,
        cut_at: None,
        around: Around { oldest_writer_xid: 1, xid: Some(1) },
    })
}

/// The queues that a plan claims from.
fn queues(plan: &ExchangePlan) -> Vec<usize> {
    plan.claim.iter().flat_map(|plan| plan.claim.queues()).map(|queue| queue.queue).collect()
}

/// The lambdas that a plan claims from, and how many tasks of each.
fn lambdas(plan: &ExchangePlan) -> Vec<(usize, usize)> {
    let lambdas = plan.claim.iter().flat_map(|plan| &plan.claim.lambdas);
    lambdas.map(|lambda| (lambda.lambda, lambda.budget)).collect()
}

/// The tasks whose results a plan sends.
fn sent(plan: &ExchangePlan) -> Vec<i64> {
    plan.request().results.iter().map(|one| one.attempt.task).collect()
}

/// The leases that a plan drops.
fn dropped(plan: &ExchangePlan) -> Vec<i64> {
    plan.request().ended_leases.iter().map(|lease| lease.0).collect()
}

async fn plan(controller: &Controller) -> Box<ExchangePlan> {
    let plan = tokio::time::timeout(Duration::from_secs(10), controller.next_exchange()).await;
    plan.expect("in time").expect("a plan")
}

/// Its results are recorded, and its claim brought these tasks.
fn answer(controller: &Controller, plan: &mut ExchangePlan, claimed: Option<Claimed>) {
    controller.acknowledged(plan, |_| Verdict::Done);
    assert!(matches!(controller.claimed(plan, claimed), Brought::Tasks(_)));
}

async fn claim(controller: &Controller, lease: i64, queue: usize, ids: &[i64]) {
    let mut plan = plan(controller).await;
    let claimed = brought(&plan, lease, queue, ids);
    answer(controller, &mut plan, claimed);
}

/// Its results are recorded, and it found nothing.
fn done(controller: &Controller, mut plan: Box<ExchangePlan>) {
    let nothing = brought(&plan, 0, 0, &[]);
    answer(controller, &mut plan, nothing);
}

/// This verdict on one task, and all else is recorded.
fn but(task: i64, verdict: Verdict) -> impl Fn(&AttemptResult) -> Verdict {
    move |one| if one.attempt.task == task { verdict } else { Verdict::Done }
}

/// The answer of the server for a bell. True: one of our queues needs it.
fn answered(controller: &Controller, bell: i32, said: Watched) -> bool {
    controller.watch_event(WatchEvent::BellAnswered { bell, said })
}

/// A notification for a queue on a bell that this worker holds. True: it keeps the bell.
fn called(controller: &Controller, bell: i32, queue_id: i32) -> bool {
    controller.watch_event(WatchEvent::Called { bell, queue_id, holder: Holder::We })
}

/// A notification for this queue on a bell of which we know no holder.
fn wake(controller: &Controller, queue: usize) {
    let queue_id = controller.queues[queue].id;
    let (bell, holder) = (bell_of(queue_id), Holder::Unknown);
    controller.watch_event(WatchEvent::Called { bell, queue_id, holder });
}

fn tasks_left(controller: &Controller, lease: i64) -> usize {
    controller.lock().ledger.tasks_left(LeaseId(lease))
}

fn work(controller: &Controller) -> Work {
    controller.next_work(0).expect("work")
}

fn succeed(controller: &Controller, work: &Work) {
    let result = AttemptResult::of(work, Outcome::Success(None), None);
    assert!(controller.finish(0, result, Duration::from_secs(1)).is_none());
}

#[tokio::test]
async fn exchanges_end_when_the_last_task_is_abandoned_during_a_drain() {
    let (controller, _requests) = controller(config());
    claim(&controller, 7, 0, &[1]).await;
    let one = work(&controller);
    controller.drain();
    let next = controller.next_exchange();
    tokio::pin!(next);
    assert!(futures_util::poll!(&mut next).is_pending());
    controller.stop_all(StopReason::ShuttingDown);
    controller.abandon(0, one);
    let ended = tokio::time::timeout(Duration::from_secs(10), next).await;
    assert!(ended.expect("it ends").is_none());
}

#[tokio::test]
async fn a_claim_sent_before_the_lock_was_ours_is_no_last_look() {
    let (controller, mut requests) = controller(config());
    let mut early = plan(&controller).await;
    // A second claim of the same queues, sent at the same time.
    let same = early.claim.iter().flat_map(|plan| plan.claim.queues()).copied().collect();
    let part = LambdaClaim { lambda: 0, budget: 1, queues: same };
    let mut state = controller.lock();
    state.watch.queues.iter_mut().for_each(|queue| queue.claims += 1);
    state.slots.ask(&part);
    drop(state);
    let claim = Claim { lambdas: vec![part], max_bytes: 0 };
    let late = ClaimPlan { claim, asked_before: vec![0], planned_at: Instant::now() };
    let mut late = ExchangePlan { claim: Some(late), ..ExchangePlan::default() };
    let nothing = brought(&early, 7, 0, &[]);
    controller.claimed(&mut early, nothing);
    while let Ok(WatchRequest::Watch(bell)) = requests.try_recv() {
        answered(&controller, bell, Watched::Held);
    }
    let nothing = brought(&late, 7, 0, &[]);
    controller.claimed(&mut late, nothing);
    let state = controller.lock();
    assert!(state.watch.queues.iter().all(|queue| queue.is_askable(Instant::now())));
}

#[tokio::test]
async fn a_lower_priority_in_the_buffer_is_served_while_higher_ones_keep_coming() {
    let (controller, _requests) = controller(WorkerConfig { slots: 1, ..config() });
    claim(&controller, 6, 0, &[1]).await;
    let one = work(&controller);
    controller.finish(0, AttemptResult::cancelled(&one), Duration::from_nanos(1));
    claim(&controller, 7, 3, &[99]).await;
    claim(&controller, 8, 0, &[2, 3, 4, 5, 6]).await;
    let long_ago = Instant::now().checked_sub(controller.config.buffer_target * 2);
    controller.lock().slots.buffer(3)[0].claimed_at = long_ago.expect("a clock that started");
    for _ in 0..4 {
        let work = work(&controller);
        if work.task == 99 {
            return;
        }
        let result = AttemptResult::cancelled(&work);
        let mut state = controller.lock();
        state.slots.finish(0, work.id(), Duration::from_nanos(1));
        state.results.push(result);
    }
    panic!("the low one was overtaken every time");
}

#[tokio::test]
async fn a_failed_claim_leaves_the_queues_to_another_connection() {
    let (controller, _requests) = controller(config());
    let mut failed = plan(&controller).await;
    let other = controller.next_exchange();
    tokio::pin!(other);
    assert!(futures_util::poll!(&mut other).is_pending());
    controller.unclaim(&mut failed);
    let second = tokio::time::timeout(Duration::from_secs(10), other).await;
    assert_eq!(queues(&second.expect("it claims").expect("a plan")).len(), 4);
}

#[tokio::test]
async fn tasks_behind_a_long_one_are_taken_out_of_the_buffer() {
    let config = WorkerConfig { slots: 1, buffer_target: Duration::from_millis(1), ..config() };
    let (controller, _requests) = controller(config);
    claim(&controller, 7, 0, &[1]).await;
    let one = work(&controller);
    controller.finish(0, AttemptResult::cancelled(&one), Duration::from_micros(1));
    controller.watch_event(WatchEvent::AllMayHaveTasks);
    claim(&controller, 8, 0, &[2, 3, 4]).await;
    let _long = work(&controller);
    let now = Instant::now();
    assert!(controller.take_unwanted(&[], now).is_empty());
    let hoarded = controller.take_unwanted(&[], now + Duration::from_secs(1));
    assert_eq!(hoarded.iter().map(|work| work.task).collect::<Vec<_>>(), [3, 4]);
    assert_eq!(controller.lock().slots.room(0), 0);
}

#[tokio::test]
async fn an_exchange_is_bounded_in_bytes_but_takes_one_result_at_least() {
    let config = WorkerConfig { max_batch_bytes: 1_000, ..config() };
    let (controller, _requests) = controller(config);
    claim(&controller, 7, 0, &[1, 2, 3]).await;
    let works = [work(&controller), work(&controller), work(&controller)];
    for (work, bytes) in works.into_iter().zip([100, 5_000, 100]) {
        let outcome = Outcome::Success(Some("x".repeat(bytes).into()));
        controller.finish(0, AttemptResult::of(&work, outcome, None), Duration::from_secs(1));
    }
    for _ in 0..3 {
        let plan = plan(&controller).await;
        assert_eq!(sent(&plan).len(), 1);
        done(&controller, plan);
    }
    assert_eq!(tasks_left(&controller, 7), 0);
}

#[tokio::test]
async fn a_result_whose_row_is_locked_is_sent_again_before_the_worker_is_quiet() {
    let (controller, _requests) = controller(config());
    claim(&controller, 7, 0, &[1, 2]).await;
    let works = [work(&controller), work(&controller)];
    works.iter().for_each(|work| succeed(&controller, work));
    let mut first = plan(&controller).await;
    assert_eq!(dropped(&first), [7]);
    controller.acknowledged(&mut first, but(2, Verdict::Locked));
    let quiet = controller.until_quiet();
    tokio::pin!(quiet);
    assert!(futures_util::poll!(&mut quiet).is_pending());
    assert_eq!(tasks_left(&controller, 7), 1);
    let mut again = plan(&controller).await;
    while sent(&again).is_empty() {
        answer(&controller, &mut again, None);
        again = plan(&controller).await;
    }
    assert_eq!((sent(&again), dropped(&again)), (vec![2], vec![7]));
    answer(&controller, &mut again, None);
    assert!(futures_util::poll!(&mut quiet).is_ready());
}

#[tokio::test]
async fn a_drain_does_not_wait_for_a_row_that_stays_locked() {
    let (controller, _requests) = controller(config());
    claim(&controller, 7, 0, &[1]).await;
    succeed(&controller, &work(&controller));
    let mut first = plan(&controller).await;
    controller.acknowledged(&mut first, but(1, Verdict::Locked));
    let _ = controller.drain();
    controller.give_up_deferred();
    assert!(controller.next_exchange().await.is_none(), "the exchanges end without it");
    assert_eq!(tasks_left(&controller, 7), 1, "for the rescuer");
}
