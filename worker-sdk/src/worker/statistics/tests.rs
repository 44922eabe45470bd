//! The counters of a report.

use super::*;
use crate::db::hsc::{Attempt, ResultStatus};

fn result(index: CountsIndex, status: ResultStatus) -> AttemptResult {
    AttemptResult {
        attempt: Attempt { task: 1, fence: 1 },
        note: None,
        failed: None,
        counts: index,
        status,
        took: Duration::ZERO,
    }
}

/// (queue, counter, amount) of a report, in its order.
fn counts_of(report: Option<Report>) -> Vec<(i32, i16, i64)> {
    let report = report.unwrap_or_default();
    let counts = report.counters.into_iter().zip(report.amounts);
    report.queue_ids.into_iter().zip(counts).map(|(q, (c, a))| (q, c, a)).collect()
}

#[test]
fn a_report_has_what_was_counted_since_the_last_one() {
    let counts = Statistics::new(vec!["work".into()]);
    let index = Statistics::index_of(0, Priority::High);
    counts.started(index, Duration::from_millis(7));
    counts.ran(index, Duration::from_secs(4_000));
    counts.answered(&result(index, ResultStatus::Cancelled), Verdict::Done);
    counts.answered(&result(index, ResultStatus::Success), Verdict::Refused);
    counts.answered(&result(index, ResultStatus::Success), Verdict::Locked);
    let queues = [(0, 1), (index, 2)];
    let expected =
        [(2, 5, 1), (2, 6, 1), (2, 100, 7), (2, 102, 1), (2, 200, 4_000_000), (2, 216, 1)];
    assert_eq!(counts_of(counts.report(&queues)), expected);
    assert!(counts.report(&queues).is_none(), "nothing is reported twice");
    counts.answered(&result(index, ResultStatus::Success), Verdict::Done);
    assert_eq!(counts_of(counts.report(&queues)), [(2, 1, 1)]);
}

#[test]
fn a_report_has_the_longest_durations_where_the_database_takes_them() {
    let counts = Statistics::new(vec!["work".into()]);
    let longest = || {
        let all = counts_of(counts.report(&[(0, 1)])).into_iter();
        all.filter(|one| one.1 % 100 == 17).map(|one| (one.1, one.2)).collect::<Vec<_>>()
    };
    counts.ran(0, Duration::from_micros(10));
    assert_eq!(longest(), [], "an older set of functions");
    counts.registered(LONGEST_SINCE);
    counts.ran(0, Duration::from_micros(10));
    counts.ran(0, Duration::from_micros(30));
    counts.started(0, Duration::MAX);
    assert_eq!(longest(), [(117, 1_000_000_000_000), (217, 31)]);
    counts.ran(0, Duration::from_micros(20));
    assert_eq!(longest(), [(217, 31)], "the last one may have been counted late");
    counts.ran(0, Duration::from_micros(20));
    assert_eq!(longest(), [(217, 21)]);
}

#[test]
fn a_duration_lies_in_the_bucket_whose_bound_holds_it() {
    let counts = Statistics::new(vec!["work".into()]);
    for (micros, bucket) in [(0, 1), (5_000, 1), (5_001, 2), (5_000_000, 10), (5_000_001, 11)] {
        counts.started(0, Duration::from_micros(micros));
        let all = counts_of(counts.report(&[(0, 1)]));
        let buckets: Vec<_> = all.iter().map(|one| one.1).filter(|one| *one > 100).collect();
        assert_eq!(buckets, [100 + bucket], "{micros} µs");
    }
}

#[test]
fn a_report_that_is_too_large_goes_on_with_the_next_one() {
    let counts = Statistics::new(vec!["work".into(); 1_000]);
    let queues: Vec<_> = (0..4_000).map(|index| (index, 1)).collect();
    for (index, _) in &queues {
        counts.started(*index, Duration::from_millis(1));
    }
    let mut amounts = 0;
    while let Some(report) = counts.report(&queues) {
        assert!(report.amounts.len() <= REPORT_MAX);
        amounts += report.amounts.iter().sum::<i64>();
    }
    assert_eq!(amounts, 4_000 * 2, "a count and a millisecond for each queue");
}

#[test]
fn queues_that_are_always_busy_are_all_reported() {
    let counts = Statistics::new(vec!["work".into(); 1_000]);
    let queues: Vec<_> = (0..4_000).map(|index| (index, index as i32)).collect();
    let mut counted = vec![0; queues.len()];
    for _ in 0..10 {
        for (index, _) in &queues {
            counts.answered(&result(*index, ResultStatus::Success), Verdict::Done);
            counts.ran(*index, Duration::from_millis(1));
        }
        let report = counts.report(&queues).unwrap_or_default();
        assert!(report.amounts.len() <= REPORT_MAX);
        for (queue, counter) in report.queue_ids.iter().zip(&report.counters) {
            counted[*queue as usize] += i32::from(*counter == 1);
        }
    }
    let least = counted.iter().min().copied().unwrap_or_default();
    assert!(least >= 3, "each queue of 4,000 in one of three reports, got {least} of 10");
}
