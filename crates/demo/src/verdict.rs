//! Judges a run by what the executors wrote down: lost, overlapping, how late the first start was.

use std::collections::{HashMap, HashSet};

use super::record::{Line, What};
use super::report::Percentiles;

/// One execution of a body.
#[derive(Debug, Clone, Copy)]
struct Span {
    begin_ns: u64,
    end_ns: u64,
}

/// Counts from the records.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// Tasks with at least one body that ended in a success.
    pub succeeded: HashSet<i64>,
    /// Tasks with at least one body that ended at all.
    pub ended: HashSet<i64>,
    pub overlaps: u64,
    /// Wall clock of each task's first start.
    pub first_start_us: HashMap<i64, i64>,
}

/// One worker's lines, and when it was seen to have ended.
#[derive(Debug)]
pub(super) struct Testimony {
    pub lines: Vec<Line>,
    pub gone_ns: u64,
}

/// Puts the workers' lines together. A body without an end line ran until its process was gone.
pub(super) fn judge(workers: &[Testimony]) -> Verdict {
    let mut verdict = Verdict::default();
    let mut spans: HashMap<i64, Vec<Span>> = HashMap::new();
    for worker in workers {
        let mut open: HashMap<(i64, i64), Vec<u64>> = HashMap::new();
        for line in &worker.lines {
            let key = (line.task, line.fence);
            if line.what == What::Begin {
                open.entry(key).or_default().push(line.at_ns);
                let first = verdict.first_start_us.entry(line.task).or_insert(line.wall_us);
                *first = line.wall_us.min(*first);
                continue;
            }
            // The begin is written first: an end without one is no testimony.
            let Some(begin_ns) = open.get_mut(&key).and_then(Vec::pop) else { continue };
            verdict.ended.insert(line.task);
            if line.what == What::Success {
                verdict.succeeded.insert(line.task);
            }
            spans.entry(line.task).or_default().push(Span { begin_ns, end_ns: line.at_ns });
        }
        for ((task, _), begins) in open {
            let span = |begin_ns| Span { begin_ns, end_ns: worker.gone_ns };
            spans.entry(task).or_default().extend(begins.into_iter().map(span));
        }
    }
    verdict.overlaps = spans.values_mut().map(|spans| overlaps(spans)).sum();
    verdict
}

fn overlaps(spans: &mut [Span]) -> u64 {
    spans.sort_by_key(|span| span.begin_ns);
    let mut latest_end_ns = 0;
    let mut count = 0;
    for span in spans {
        count += u64::from(span.begin_ns < latest_end_ns);
        latest_end_ns = latest_end_ns.max(span.end_ns);
    }
    count
}

/// The first start of a task, and when it was due.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Start {
    pub at_us: i64,
    pub due_us: i64,
    /// It was scheduled for later.
    pub is_later: bool,
    /// Its worker died with it.
    pub is_rescued: bool,
}

/// How fast it went. When the tasks that were due at once have all started, the queue is empty, but for the
/// moment in which those of the killed worker come back.
#[derive(Debug)]
pub(super) struct Pace {
    /// Starts per second until it was empty.
    pub tasks_per_s: f64,
    /// First start minus due time, of tasks that were due when it was empty.
    pub start_latency_ms: Option<Percentiles>,
    /// The same, of tasks that were due before.
    pub queue_wait_ms: Option<Percentiles>,
}

/// Leaves out the tasks whose worker was killed.
#[allow(clippy::cast_precision_loss)]
pub(super) fn pace(starts: &[Start]) -> Pace {
    let (back, usual): (Vec<Start>, Vec<Start>) = starts.iter().partition(|s| s.is_rescued);
    let at_once = || usual.iter().filter(|start| !start.is_later).map(|start| start.at_us);
    let (first_us, emptied_us) = (at_once().min().unwrap_or(0), at_once().max().unwrap_or(0));
    let busy_s = (emptied_us - first_us).max(1000) as f64 / 1e6;
    let back = || back.iter().map(|start| start.at_us).filter(|at_us| *at_us > emptied_us);
    let refilled_us = back().min().unwrap_or(i64::MAX)..=back().max().unwrap_or(i64::MIN);
    let waits = |these: &dyn Fn(i64) -> bool| {
        let these = usual.iter().filter(|start| these(start.due_us));
        percentiles(these.map(|start| (start.at_us - start.due_us) as f64 / 1000.0).collect())
    };
    Pace {
        tasks_per_s: at_once().count() as f64 / busy_s,
        start_latency_ms: waits(&|due_us| due_us > emptied_us && !refilled_us.contains(&due_us)),
        queue_wait_ms: waits(&|due_us| due_us <= emptied_us),
    }
}

/// Median and 99th percentile of latencies in milliseconds.
fn percentiles(mut values_ms: Vec<f64>) -> Option<Percentiles> {
    values_ms.sort_by(f64::total_cmp);
    let at = |share: f64| {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss
        )]
        let index = (share * values_ms.len().saturating_sub(1) as f64).round() as usize;
        values_ms.get(index).copied()
    };
    Some(Percentiles { p50: at(0.5)?, p99: at(0.99)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(task: i64, fence: i64, what: What, at_ns: u64) -> Line {
        Line { task, fence, what, at_ns, wall_us: 0 }
    }

    #[test]
    fn two_bodies_of_one_task_at_once_are_an_overlap() {
        let one = vec![line(1, 1, What::Begin, 10), line(1, 1, What::Success, 30)];
        let two = vec![line(1, 2, What::Begin, 20), line(1, 2, What::Success, 40)];
        let workers =
            [Testimony { lines: one, gone_ns: 100 }, Testimony { lines: two, gone_ns: 100 }];
        assert_eq!(judge(&workers).overlaps, 1);
    }

    #[test]
    fn a_killed_body_runs_until_its_process_is_gone() {
        let killed = vec![line(1, 1, What::Begin, 10)];
        let after = vec![line(1, 2, What::Begin, 60), line(1, 2, What::Success, 70)];
        let judged = |gone_ns| {
            judge(&[
                Testimony { lines: killed.clone(), gone_ns },
                Testimony { lines: after.clone(), gone_ns: 100 },
            ])
        };
        assert_eq!(judged(50).overlaps, 0);
        assert_eq!(judged(65).overlaps, 1);
        assert!(judged(50).succeeded.contains(&1));
    }

    fn of_one(lines: Vec<Line>) -> Verdict {
        judge(&[Testimony { lines, gone_ns: 100 }])
    }

    #[test]
    fn two_attempts_one_after_the_other_do_not_overlap() {
        let verdict = of_one(vec![
            line(1, 1, What::Begin, 10),
            line(1, 1, What::Failure, 20),
            line(1, 2, What::Begin, 20),
            line(1, 2, What::Success, 30),
        ]);
        assert_eq!(verdict.overlaps, 0);
        assert!(verdict.ended.contains(&1) && verdict.succeeded.contains(&1));
    }

    #[test]
    fn two_bodies_at_once_in_one_worker_are_an_overlap() {
        let verdict = of_one(vec![
            line(1, 1, What::Begin, 10),
            line(1, 2, What::Begin, 15),
            line(1, 1, What::Success, 20),
            line(1, 2, What::Success, 25),
        ]);
        assert_eq!(verdict.overlaps, 1);
    }

    #[test]
    fn one_attempt_executed_twice_at_once_is_an_overlap() {
        let verdict = of_one(vec![
            line(1, 1, What::Begin, 10),
            line(1, 1, What::Begin, 15),
            line(1, 1, What::Success, 20),
            line(1, 1, What::Success, 25),
        ]);
        assert_eq!(verdict.overlaps, 1);
    }

    #[test]
    fn a_body_inside_a_longer_one_is_an_overlap_and_so_is_the_next() {
        let verdict = of_one(vec![
            line(1, 1, What::Begin, 10),
            line(1, 2, What::Begin, 20),
            line(1, 2, What::Success, 30),
            line(1, 3, What::Begin, 40),
            line(1, 3, What::Success, 50),
            line(1, 1, What::Success, 60),
        ]);
        assert_eq!(verdict.overlaps, 2);
    }

    #[test]
    fn different_tasks_may_run_at_the_same_time() {
        let verdict = of_one(vec![
            line(1, 1, What::Begin, 10),
            line(2, 1, What::Begin, 11),
            line(1, 1, What::Success, 20),
            line(2, 1, What::Success, 21),
        ]);
        assert_eq!(verdict.overlaps, 0);
    }

    #[test]
    fn a_body_that_began_and_never_ended_is_no_end() {
        let verdict = of_one(vec![line(1, 1, What::Begin, 10)]);
        assert!(verdict.ended.is_empty() && verdict.succeeded.is_empty());
    }

    #[test]
    fn an_end_without_a_begin_is_no_testimony() {
        let verdict = of_one(vec![line(1, 1, What::Success, 10)]);
        assert!(verdict.ended.is_empty() && verdict.succeeded.is_empty());
        let of_another_fence =
            of_one(vec![line(1, 1, What::Begin, 10), line(1, 2, What::Success, 20)]);
        assert!(of_another_fence.succeeded.is_empty());
    }

    #[test]
    fn percentiles_are_of_the_sorted_values() {
        let p = percentiles((1..=100).rev().map(f64::from).collect()).unwrap();
        assert!((p.p50 - 51.0).abs() < 1.1 && (p.p99 - 99.0).abs() < 1.1);
    }

    #[test]
    fn a_task_that_was_due_when_the_queue_was_empty_did_not_wait() {
        let is_rescued = false;
        let start = |at_us, due_us, is_later| Start { at_us, due_us, is_later, is_rescued };
        let mut starts = vec![start(0, 0, false), start(2_000_000, 0, false)];
        starts.push(start(1_900_000, 1_500_000, true));
        let busy = pace(&starts);
        assert!((busy.tasks_per_s - 1.0).abs() < 0.01, "{busy:?}");
        assert!(busy.start_latency_ms.is_none(), "each waited in the queue: {busy:?}");
        starts.push(start(3_002_000, 3_000_000, true));
        // The tasks of a killed worker come back, and one that is due then waits for them.
        for at_us in [5_000_000, 6_000_000] {
            starts.push(Start { is_rescued: true, ..start(at_us, 0, false) });
        }
        starts.push(start(6_100_000, 5_500_000, true));
        let calm = pace(&starts);
        assert!((calm.start_latency_ms.unwrap().p99 - 2.0).abs() < 0.01);
        assert!((calm.queue_wait_ms.unwrap().p50 - 400.0).abs() < 0.01);
    }
}
