//! When a process that has ended is started again.

use std::iter::successors;
use std::time::{Duration, Instant};

use super::{FIRST_PAUSE, LONGEST_PAUSE, pause_after};

#[test]
fn pauses_grow_while_a_process_ends_without_work_up_to_a_bound() {
    let began = Instant::now();
    let before = began.checked_sub(Duration::from_millis(1)).unwrap();
    for worked_at in [None, Some(before)] {
        let next = |pause: &Duration| Some(pause_after(*pause, began, worked_at));
        let pauses: Vec<_> = successors(Some(FIRST_PAUSE), next).take(9).collect();
        assert!(pauses.is_sorted() && pauses[1] == 2 * FIRST_PAUSE, "{pauses:?}");
        assert_eq!(pauses[8], LONGEST_PAUSE, "{pauses:?}");
    }
}

#[test]
fn a_process_whose_executor_worked_is_started_again_without_a_longer_pause() {
    let began = Instant::now();
    for worked_at in [began, began + Duration::from_millis(300)] {
        assert_eq!(pause_after(LONGEST_PAUSE, began, Some(worked_at)), FIRST_PAUSE);
    }
}
