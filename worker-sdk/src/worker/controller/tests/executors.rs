//! Which executors are to be started, and when one ends.

use super::*;

/// Its claim brought these tasks, and these executors are to be started for them.
async fn wanted(controller: &Controller, lease: i64, queue: usize, ids: &[i64]) -> Vec<Wanted> {
    controller.watch_event(WatchEvent::AllMayHaveTasks);
    let mut plan = plan(controller).await;
    let claimed = brought(&plan, lease, queue, ids);
    controller.acknowledged(&mut plan, |_| Verdict::Done);
    match controller.claimed(&mut plan, claimed) {
        Brought::Tasks(wanted) => wanted,
        Brought::TooLate(lease) => panic!("{lease:?} goes back"),
    }
}

fn of_first(executors: usize) -> Vec<Wanted> {
    vec![Wanted { lambda: 0, executors }]
}

#[tokio::test]
async fn an_executor_is_started_for_each_task_and_no_more_than_there_are_slots() {
    let (controller, _requests) = controller(WorkerConfig { slots: 3, ..config() });
    assert_eq!(wanted(&controller, 7, 0, &[1, 2]).await, of_first(2));
    let (one, two) = (work(&controller), work(&controller));
    assert_eq!(wanted(&controller, 8, 0, &[3, 4]).await, of_first(1), "two run");
    let three = work(&controller);
    let result = AttemptResult::cancelled(&one);
    let four = controller.finish(0, result, Duration::from_secs(1)).expect("it goes on");
    assert_eq!((three.task, four.task), (3, 4));
    succeed(&controller, &two);
    succeed(&controller, &four);
    assert_eq!(wanted(&controller, 9, 0, &[5, 6]).await, of_first(2), "two have ended");
}

#[tokio::test]
async fn an_executor_that_looks_for_a_task_counts_until_it_has_ended() {
    let (controller, _requests) = controller(WorkerConfig { slots: 1, ..config() });
    let only = Attempt { task: 1, fence: 7 };
    assert_eq!(wanted(&controller, 7, 0, &[1]).await, of_first(1));
    controller.take_unwanted(&[only], Instant::now());
    assert_eq!(wanted(&controller, 8, 0, &[2]).await, [], "the first has yet to look");
    succeed(&controller, &work(&controller));
    assert_eq!(wanted(&controller, 9, 0, &[3]).await, of_first(1));
    controller.drain();
    assert!(controller.next_work(0).is_none(), "the worker drains");
}

#[tokio::test]
async fn each_lambda_has_executors_of_its_own() {
    let slots = WorkerConfig { slots: 2, ..config() };
    let (controller, _requests) = serving(slots, &["one", "two", "three"]);
    let third = 8;
    let found = wanted(&controller, 7, third, &[1, 2]).await;
    assert_eq!(found, [Wanted { lambda: 2, executors: 2 }]);
    assert!(controller.lock().slots.take(0, Instant::now()).is_none());
    assert_eq!(wanted(&controller, 8, 0, &[3, 4]).await, of_first(2), "its slots are free");
    assert_eq!(controller.next_work(2).expect("work").task, 1);
}

#[tokio::test]
async fn an_executor_whose_task_goes_back_takes_the_next_one() {
    let (controller, _requests) = controller(WorkerConfig { slots: 1, ..config() });
    claim(&controller, 7, 0, &[1]).await;
    let first = work(&controller);
    controller.finish(0, AttemptResult::cancelled(&first), Duration::from_nanos(1));
    claim(&controller, 8, 0, &[2, 3]).await;
    let second = work(&controller);
    controller.abandon(0, second);
    assert_eq!(work(&controller).task, 3);
}

#[tokio::test]
async fn only_a_task_that_runs_in_this_process_is_overdue() {
    for hosted in [false, true] {
        let lambda = Lambda { hosted, ..lambda("work") };
        let (controller, _requests) = serving_these(config(), vec![lambda]);
        claim(&controller, 7, 0, &[1]).await;
        work(&controller);
        // Its deadline is a minute.
        let grace = 2 * controller.config.cancel_grace;
        let after = |seconds| Instant::now() + Duration::from_secs(seconds) + grace;
        assert_eq!(controller.overdue(after(50)), None);
        assert_eq!(controller.overdue(after(61)), (!hosted).then_some(1));
    }
}
