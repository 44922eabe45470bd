//! The controller's bookkeeping, without a database: what a lane is told after which answer.

mod backlogs;
mod bounds;
mod claim_bound;
mod few_lanes;
mod leases;
mod queue_watch;

use tokio::sync::mpsc::UnboundedReceiver;

use super::*;
use crate::hsc::{ClaimedTask, Reply, Watched};
use crate::low_water_mark::Around;
use crate::work::Why;
use crate::{Context, Outcome, Priority};

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
    Lambda::new(name, |_: serde_json::Value, _: Context| async { Outcome::Success(None) })
}

fn serving_these(
    config: WorkerConfig,
    lambdas: Vec<Lambda>,
) -> (Controller, UnboundedReceiver<WatchRequest>) {
    let (wake, requests) = mpsc::unbounded_channel();
    let all = lambdas.iter().flat_map(|one| Priority::ALL.iter().map(|at| (one.name.clone(), at)));
    let served = |(at, (lambda, priority)): (usize, (String, &Priority))| Served {
        lambda,
        priority: *priority,
        queue_id: i32::try_from(at).expect("few") + 1,
        attempt_timeout: Duration::from_secs(60),
    };
    let served: Vec<_> = all.enumerate().map(served).collect();
    (Controller::new(config, lambdas, &served, wake, false), requests)
}

/// The answer to a claim that brought these tasks from one queue.
fn brought(order: &Order, lease: i64, queue: usize, ids: &[i64]) -> Reply {
    let task = |id: &i64| ClaimedTask {
        id: *id,
        queue,
        attempt: 1,
        crashes: 0,
        waited: Duration::ZERO,
        collection: None,
        payload: None,
    };
    let mut popped = vec![Some(0); order.request.queues.len()];
    if let Some(popped) = popped.get_mut(queue) {
        *popped = Some(i32::try_from(ids.len()).expect("few"));
    }
    let none = vec![None; popped.len()];
    Reply {
        alive: true,
        refused: Vec::new(),
        lease: (!ids.is_empty()).then_some(lease),
        popped,
        first_seq: none.clone(),
        last_seq: none,
        cut_at: None,
        around: Some(Around { oldest_writer_xid: 1, xid: Some(1) }),
        tasks: ids.iter().map(task).collect(),
        held: Vec::new(),
        doubtful: false,
    }
}

async fn claim(controller: &Controller, lease: i64, queue: usize, ids: &[i64]) {
    let order = tokio::time::timeout(Duration::from_secs(10), controller.next_order()).await;
    let order = order.expect("in time").expect("an order");
    let reply = brought(&order, lease, queue, ids);
    controller.acknowledged(&order);
    assert_eq!(controller.claimed(&order, reply), None);
}

/// Its results are recorded, and it found nothing.
fn done(controller: &Controller, order: &Order) {
    controller.acknowledged(order);
    assert_eq!(controller.claimed(order, brought(order, 0, 0, &[])), None);
}

async fn work(controller: &Controller) -> Work {
    controller.next_work(0).await.expect("work")
}

fn succeed(controller: &Controller, work: &Work) {
    let finished = Finished::said(work, Outcome::Success(None), None);
    assert!(controller.finish(0, finished, Duration::from_secs(1)).is_none());
}

#[tokio::test]
async fn lanes_end_when_the_last_task_is_abandoned_during_a_drain() {
    let (controller, _requests) = controller(config());
    claim(&controller, 7, 0, &[1]).await;
    let one = work(&controller).await;
    controller.drain();
    let lane = controller.next_order();
    tokio::pin!(lane);
    assert!(futures_util::poll!(&mut lane).is_pending());
    controller.stop_all(Why::ShuttingDown);
    controller.abandon(0, one);
    let ended = tokio::time::timeout(Duration::from_secs(10), lane).await;
    assert!(ended.expect("it ends").is_none());
}

#[tokio::test]
async fn a_claim_sent_before_the_lock_was_ours_is_no_last_look() {
    let (controller, mut requests) = controller(config());
    let early = controller.next_order().await.expect("a claim");
    // Another lane's claim of the same queues, sent at the same time.
    let (queues, asked) = (early.queues.clone(), early.asked.clone());
    let mut late = Order { queues, asked, ..Order::default() };
    late.request.groups.clone_from(&early.request.groups);
    late.request.queues.clone_from(&early.request.queues);
    late.groups = vec![(0, 1)];
    let mut state = controller.lock();
    state.queues.iter_mut().for_each(|queue| queue.claiming += 1);
    state.loads[0].asked += 1;
    drop(state);
    let reply = brought(&early, 7, 0, &[]);
    controller.claimed(&early, reply);
    while let Ok(WatchRequest::Watch(bell)) = requests.try_recv() {
        controller.watch_answered(bell, Watched::Held);
    }
    let reply = brought(&late, 7, 0, &[]);
    controller.claimed(&late, reply);
    let state = controller.lock();
    assert!(state.queues.iter().all(|queue| queue.is_askable(Instant::now())));
}

#[tokio::test]
async fn a_lower_priority_in_the_buffer_is_served_while_higher_ones_keep_coming() {
    let (controller, _requests) = controller(WorkerConfig { slots: 1, ..config() });
    claim(&controller, 6, 0, &[1]).await;
    let one = work(&controller).await;
    controller.finish(0, Finished::cancelled(&one), Duration::from_nanos(1));
    claim(&controller, 7, 3, &[99]).await;
    claim(&controller, 8, 0, &[2, 3, 4, 5, 6]).await;
    let long_ago = Instant::now().checked_sub(controller.config.buffer_target * 2);
    controller.lock().queues[3].buffer[0].claimed_at = long_ago.expect("a clock that started");
    for _ in 0..4 {
        let work = work(&controller).await;
        if work.task == 99 {
            return;
        }
        let finished = Finished::cancelled(&work);
        let mut state = controller.lock();
        state.running.clear();
        state.loads[0].finished(Duration::from_nanos(1));
        state.results.push(finished);
    }
    panic!("the low one was overtaken every time");
}

#[tokio::test]
async fn a_failed_claim_leaves_the_queues_to_another_lane() {
    let (controller, _requests) = controller(config());
    let mut failed = controller.next_order().await.expect("a claim");
    let other = controller.next_order();
    tokio::pin!(other);
    assert!(futures_util::poll!(&mut other).is_pending());
    controller.unclaim(&mut failed);
    let order = tokio::time::timeout(Duration::from_secs(10), other).await;
    assert_eq!(order.expect("it claims").expect("an order").queues.len(), 4);
}

#[tokio::test]
async fn tasks_behind_a_long_one_are_taken_out_of_the_buffer() {
    let config = WorkerConfig { slots: 1, buffer_target: Duration::from_millis(1), ..config() };
    let (controller, _requests) = controller(config);
    claim(&controller, 7, 0, &[1]).await;
    let one = work(&controller).await;
    controller.finish(0, Finished::cancelled(&one), Duration::from_micros(1));
    controller.woken(None);
    claim(&controller, 8, 0, &[2, 3, 4]).await;
    let _long = work(&controller).await;
    let now = Instant::now();
    assert!(controller.take_hoarded(now).is_empty());
    let hoarded = controller.take_hoarded(now + Duration::from_secs(1));
    assert_eq!(hoarded.iter().map(|work| work.task).collect::<Vec<_>>(), [3, 4]);
    assert_eq!(controller.lock().loads[0].room(&controller.config), 0);
}

#[tokio::test]
async fn an_exchange_is_bounded_in_bytes_but_takes_one_result_at_least() {
    let config = WorkerConfig { max_batch_bytes: 1_000, ..config() };
    let (controller, _requests) = controller(config);
    claim(&controller, 7, 0, &[1, 2, 3]).await;
    let works = [work(&controller).await, work(&controller).await, work(&controller).await];
    for (work, bytes) in works.into_iter().zip([100, 5_000, 100]) {
        let outcome = Outcome::Success(Some("x".repeat(bytes).into()));
        controller.finish(0, Finished::said(&work, outcome, None), Duration::from_secs(1));
    }
    for _ in 0..3 {
        let order = controller.next_order().await.expect("results");
        assert_eq!(order.results.len(), 1);
        done(&controller, &order);
    }
    assert!(controller.lock().leases.is_empty());
}

#[tokio::test]
async fn a_result_that_was_held_back_keeps_its_lease_and_is_sent_again_after_a_pause() {
    let (controller, _requests) = controller(config());
    claim(&controller, 7, 0, &[1, 2]).await;
    let works = [work(&controller).await, work(&controller).await];
    works.iter().for_each(|work| succeed(&controller, work));
    let mut order = controller.next_order().await.expect("results");
    assert_eq!(order.request.done_leases, [7]);
    controller.held_back(&mut order, &[2]);
    controller.acknowledged(&order);
    let quiet = controller.until_quiet();
    tokio::pin!(quiet);
    assert!(futures_util::poll!(&mut quiet).is_pending());
    {
        let mut state = controller.lock();
        assert_eq!(state.leases.get(&7), Some(&1));
        let now = Instant::now();
        state.take_held(now);
        assert!(state.results.is_empty(), "not at once, or it would spin");
        state.take_held(now + Duration::from_secs(2));
    }
    let again = controller.next_order().await.expect("the rest");
    assert_eq!(
        (again.request.tasks.clone(), again.request.done_leases.clone()),
        (vec![2], vec![7])
    );
    controller.acknowledged(&again);
    assert!(futures_util::poll!(&mut quiet).is_ready());
}

#[tokio::test]
async fn a_result_held_back_beside_others_of_its_lease_leaves_the_lease_to_the_last() {
    let (controller, _requests) = controller(config());
    claim(&controller, 7, 0, &[1, 2]).await;
    let (one, two) = (work(&controller).await, work(&controller).await);
    succeed(&controller, &one);
    let mut first = controller.next_order().await.expect("results");
    controller.held_back(&mut first, &[1]);
    controller.acknowledged(&first);
    assert_eq!(controller.lock().leases.get(&7), Some(&2));
    succeed(&controller, &two);
    let second = controller.next_order().await.expect("results");
    assert!(second.request.done_leases.is_empty());
    controller.acknowledged(&second);
    let _ = controller.drain();
    controller.give_up_held();
    assert!(controller.next_order().await.is_none(), "the lanes end without it");
    assert_eq!(controller.lock().leases.get(&7), Some(&1), "for whoever rescues it");
}
