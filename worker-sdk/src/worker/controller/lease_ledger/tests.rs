use super::*;
use crate::db::hsc::{Attempt, ResultStatus};

impl LeaseLedger {
    /// Tasks without a recorded outcome; 0: the lease is not ours.
    pub(in crate::worker::controller) fn tasks_left(&self, lease: LeaseId) -> usize {
        self.open.get(&lease).map_or(0, |open| open.tasks_left)
    }
}

const SECOND: Duration = Duration::from_secs(1);
const TIMING: ReconcileTiming =
    ReconcileTiming { suspicion: Duration::from_secs(45), period: Duration::from_secs(60) };
const SEVEN: LeaseId = LeaseId(7);

/// A ledger whose first reconciliation is done, and the time then.
fn ledger() -> (LeaseLedger, Instant) {
    let now = Instant::now();
    let mut ledger = LeaseLedger::new(TIMING, now);
    assert!(ledger.reconcile(&[], now).is_empty());
    (ledger, now)
}

/// One result for each task, all under lease 7.
fn results(tasks: &[i64]) -> Vec<AttemptResult> {
    let result = |task: &i64| AttemptResult {
        attempt: attempt(*task),
        note: None,
        failed: None,
        status: ResultStatus::Success,
        counts: 0,
        took: Duration::ZERO,
    };
    tasks.iter().map(result).collect()
}

fn attempt(task: i64) -> Attempt {
    Attempt { task, fence: SEVEN.0 }
}

fn work(tasks: &[i64]) -> Vec<Work> {
    tasks.iter().map(|task| Work::of(attempt(*task), Instant::now())).collect()
}

fn done(_: &AttemptResult) -> Verdict {
    Verdict::Done
}

/// Every task is done but one.
fn but(task: i64, verdict: Verdict) -> impl Fn(&AttemptResult) -> Verdict {
    move |one| if one.attempt.task == task { verdict } else { Verdict::Done }
}

/// Leases that a call with these results would drop.
fn dropped_with(ledger: &mut LeaseLedger, tasks: &[i64]) -> Vec<LeaseId> {
    ledger.send(results(tasks)).last_leases().to_vec()
}

#[test]
fn a_lease_is_dropped_with_the_last_result_under_it() {
    let (mut ledger, now) = ledger();
    ledger.open(SEVEN, 3);
    let first = ledger.send(results(&[1]));
    assert!(first.last_leases().is_empty());
    assert!(ledger.record(first, done, now).is_empty());
    let last = ledger.send(results(&[2, 3]));
    assert_eq!(last.last_leases(), [SEVEN]);
    assert!(ledger.record(last, done, now).is_empty());
    assert!(!ledger.has_leases_to_drop() && ledger.tasks_left(SEVEN) == 0);
}

#[test]
fn a_lease_whose_last_results_travel_side_by_side_is_dropped_by_the_next_call() {
    let (mut ledger, now) = ledger();
    ledger.open(SEVEN, 2);
    let (one, two) = (ledger.send(results(&[1])), ledger.send(results(&[2])));
    assert!(one.last_leases().is_empty() && two.last_leases().is_empty());
    assert!(ledger.record(two, done, now).is_empty());
    assert!(!ledger.has_leases_to_drop(), "the other may still fail");
    assert!(ledger.record(one, done, now).is_empty());
    assert_eq!(dropped_with(&mut ledger, &[]), [SEVEN]);
    assert!(!ledger.has_leases_to_drop());
}

#[test]
fn a_call_that_was_never_answered_has_changed_nothing() {
    let (mut ledger, now) = ledger();
    ledger.open(SEVEN, 1);
    let unanswered = ledger.send(results(&[1]));
    let back = ledger.withdraw(unanswered);
    let again = ledger.send(back);
    assert_eq!(again.last_leases(), [SEVEN]);
    assert!(ledger.record(again, done, now).is_empty());
    assert!(ledger.tasks_left(SEVEN) == 0);
}

#[test]
fn a_lease_under_which_a_result_was_refused_is_never_dropped_by_counting() {
    let (mut ledger, now) = ledger();
    ledger.open(SEVEN, 2);
    let (one, two) = (ledger.send(results(&[1])), ledger.send(results(&[2])));
    assert!(ledger.record(one, done, now).is_empty());
    assert!(ledger.record(two, but(2, Verdict::Refused), now).is_empty());
    assert!(
        ledger.take_leases_to_drop().is_empty(),
        "the refusal counts before the last result does"
    );
    assert!(ledger.reconcile(&[SEVEN], now).is_empty());
    assert_eq!(ledger.reconcile(&[SEVEN], now), [SEVEN], "the heartbeat finds it");
}

#[test]
fn after_a_refusal_no_call_drops_the_lease() {
    let (mut ledger, now) = ledger();
    ledger.open(SEVEN, 3);
    let first = ledger.send(results(&[1]));
    assert!(ledger.record(first, but(1, Verdict::Refused), now).is_empty());
    assert!(dropped_with(&mut ledger, &[2, 3]).is_empty());
    assert!(ledger.reconcile_due(now), "it must be looked for");
}

#[test]
fn a_refused_last_result_leaves_nothing_to_decide() {
    let (mut ledger, now) = ledger();
    ledger.open(SEVEN, 1);
    let only = ledger.send(results(&[1]));
    assert_eq!(only.last_leases(), [SEVEN], "wherever it is refused, there the lease is gone");
    assert!(ledger.record(only, but(1, Verdict::Refused), now).is_empty());
    assert!(ledger.tasks_left(SEVEN) == 0 && !ledger.has_leases_to_drop());
}

#[test]
fn a_locked_result_keeps_its_lease_until_it_is_recorded() {
    let (mut ledger, now) = ledger();
    ledger.open(SEVEN, 2);
    let both = ledger.send(results(&[1, 2]));
    assert_eq!(both.last_leases(), [SEVEN]);
    let locked = ledger.record(both, but(2, Verdict::Locked), now);
    assert_eq!((locked.len(), ledger.tasks_left(SEVEN)), (1, 1));
    let again = ledger.send(locked);
    assert_eq!(again.last_leases(), [SEVEN]);
    assert!(ledger.record(again, done, now).is_empty());
    assert_eq!(ledger.tasks_left(SEVEN), 0);
}

#[test]
fn a_lease_that_waits_to_be_dropped_outlives_a_call_that_is_not_made() {
    let (mut ledger, now) = ledger();
    ledger.open(SEVEN, 2);
    let (one, two) = (ledger.send(results(&[1])), ledger.send(results(&[2])));
    assert!(ledger.record(one, done, now).is_empty() && ledger.record(two, done, now).is_empty());
    let not_made = ledger.send(Vec::new());
    assert_eq!((not_made.last_leases(), ledger.has_leases_to_drop()), (&[SEVEN][..], false));
    assert!(ledger.withdraw(not_made).is_empty());
    assert_eq!(dropped_with(&mut ledger, &[]), [SEVEN]);
}

#[test]
fn work_that_could_not_be_given_back_keeps_its_lease() {
    let (mut ledger, now) = ledger();
    ledger.open(SEVEN, 2);
    let back = ledger.give_back(work(&[1, 2]));
    assert_eq!(back.last_leases(), [SEVEN]);
    let locked = |one: &Work| if one.task == 2 { Verdict::Locked } else { Verdict::Done };
    let kept = ledger.given_back(back, locked, now);
    assert_eq!(kept.iter().map(|one| one.task).collect::<Vec<_>>(), [2]);
    assert_eq!(ledger.give_back(kept).last_leases(), [SEVEN]);
}

#[test]
fn a_claim_whose_answer_was_lost_is_disowned_at_the_second_look() {
    let (mut ledger, now) = ledger();
    ledger.open(SEVEN, 1);
    let held = [SEVEN, LeaseId(8)];
    assert!(ledger.reconcile(&held, now).is_empty(), "its answer may be under way");
    assert_eq!(ledger.reconcile(&held, now), [LeaseId(8)]);
    assert!(ledger.take_disowned(LeaseId(8)), "should the answer come, it is dropped");
    assert!(!ledger.take_disowned(LeaseId(8)) && !ledger.take_disowned(SEVEN));
}

#[test]
fn a_claim_whose_answer_comes_between_two_looks_is_ours() {
    let (mut ledger, now) = ledger();
    assert!(ledger.reconcile(&[SEVEN], now).is_empty());
    ledger.open(SEVEN, 1);
    assert!(ledger.reconcile(&[SEVEN], now).is_empty());
}

#[test]
fn leases_are_asked_for_at_the_start_after_a_broken_call_and_once_a_period() {
    let start = Instant::now();
    assert!(LeaseLedger::new(TIMING, start).reconcile_due(start));
    let (mut ledger, now) = ledger();
    assert!(!ledger.reconcile_due(now + TIMING.period - SECOND));
    assert!(ledger.reconcile_due(now + TIMING.period));
    ledger.suspect_lost_claim(now);
    assert!(ledger.reconcile_due(now + TIMING.suspicion - SECOND));
    assert!(!ledger.reconcile_due(now + TIMING.suspicion));
}

#[test]
fn an_unknown_lease_is_asked_for_once_more_and_no_more_than_that() {
    let (mut ledger, now) = ledger();
    assert!(ledger.reconcile(&[LeaseId(8)], now).is_empty());
    assert!(ledger.reconcile_due(now));
    assert!(ledger.reconcile(&[LeaseId(9)], now).is_empty());
    assert!(!ledger.reconcile_due(now), "a busy worker always has claims under way");
}
