//! The edges of the state machine, as the matrix in ARCHITECTURE.md has them. An edge names a verb,
//! the statuses before and after, and the changes of fence, attempt and crashes.

use crate::Status::{
    self, Cancelled, Claimed, Dead, Dropped, Enqueued, FatalFailure, New, Processing,
    RetriableFailure, Success,
};
use crate::history::Transition;

/// An edge of a verb.
#[derive(Debug)]
pub(crate) struct Rule {
    from: Option<Status>,
    to: Status,
    verb: &'static str,
    change: Change,
}

/// The change that a verb makes to the numbers of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// All begin at zero.
    Made,
    /// Nothing.
    Nothing,
    /// A greater fence, one more attempt.
    Claim,
    /// The attempt is over: no crash in a row any more.
    Result,
    /// The attempt never was, and it is no crash in a row any more.
    Snooze,
    /// The attempt never was.
    GiveBack,
    /// The attempt never was, and perhaps it was a crash.
    Rescue,
    /// As if it had never been tried.
    Revive,
}

const fn rule(from: Option<Status>, to: Status, verb: &'static str, change: Change) -> Rule {
    Rule { from, to, verb, change }
}

/// Every edge there is. Success has none.
const RULES: &[Rule] = &[
    rule(None, New, "schedule", Change::Made),
    rule(None, Enqueued, "schedule", Change::Made),
    rule(Some(New), Enqueued, "enqueue_due", Change::Nothing),
    rule(Some(RetriableFailure), Enqueued, "enqueue_due", Change::Nothing),
    rule(Some(Enqueued), Claimed, "claim", Change::Claim),
    rule(Some(Claimed), Processing, "start", Change::Nothing),
    rule(Some(Claimed), Success, "set_results", Change::Result),
    rule(Some(Claimed), RetriableFailure, "set_results", Change::Result),
    rule(Some(Claimed), FatalFailure, "set_results", Change::Result),
    rule(Some(Claimed), Dead, "set_results, last attempt", Change::Result),
    rule(Some(Claimed), Cancelled, "set_results, asked to stop", Change::Result),
    rule(Some(Processing), Success, "set_results", Change::Result),
    rule(Some(Processing), RetriableFailure, "set_results", Change::Result),
    rule(Some(Processing), FatalFailure, "set_results", Change::Result),
    rule(Some(Processing), Dead, "set_results, last attempt", Change::Result),
    rule(Some(Processing), Cancelled, "set_results, asked to stop", Change::Result),
    rule(Some(Claimed), New, "set_results, snoozed", Change::Snooze),
    rule(Some(Processing), New, "set_results, snoozed", Change::Snooze),
    rule(Some(Claimed), Enqueued, "release, find_stalled", Change::GiveBack),
    rule(Some(Processing), Enqueued, "release, find_stalled", Change::GiveBack),
    rule(Some(Claimed), Cancelled, "release, asked to stop", Change::GiveBack),
    rule(Some(Processing), Cancelled, "release, asked to stop", Change::GiveBack),
    rule(Some(Claimed), Enqueued, "rescue", Change::Rescue),
    rule(Some(Processing), Enqueued, "rescue", Change::Rescue),
    rule(Some(Claimed), Dead, "rescue, last crash", Change::Rescue),
    rule(Some(Processing), Dead, "rescue, last crash", Change::Rescue),
    rule(Some(Claimed), Cancelled, "rescue, asked to stop", Change::Rescue),
    rule(Some(Processing), Cancelled, "rescue, asked to stop", Change::Rescue),
    rule(Some(New), Cancelled, "cancel", Change::Nothing),
    rule(Some(Enqueued), Cancelled, "cancel", Change::Nothing),
    rule(Some(RetriableFailure), Cancelled, "cancel", Change::Nothing),
    rule(Some(Enqueued), New, "claim or sort_queue, over a limit", Change::Nothing),
    rule(Some(New), Dropped, "enqueue_due or promote, gated", Change::Nothing),
    rule(Some(Enqueued), Dropped, "claim or promote, gated", Change::Nothing),
    rule(Some(RetriableFailure), Dropped, "enqueue_due or promote, gated", Change::Nothing),
    rule(Some(New), Dead, "gated, or behind a failure in an order", Change::Nothing),
    rule(Some(Enqueued), Dead, "claim or promote, gated", Change::Nothing),
    rule(Some(RetriableFailure), Dead, "gated, or behind a failure in an order", Change::Nothing),
    rule(Some(FatalFailure), New, "retry, redrive", Change::Revive),
    rule(Some(Dead), New, "retry, redrive", Change::Revive),
    rule(Some(Cancelled), New, "retry, redrive", Change::Revive),
    rule(Some(Dropped), New, "retry, redrive", Change::Revive),
];

/// Why no verb makes this change; none: one does. `before` is the change before it.
pub(crate) fn refuse(before: Option<&Transition>, now: &Transition) -> Option<String> {
    let was = before.map(|before| before.to);
    if now.from != was {
        return Some(format!("leaves {:?}, but the change before it led to {was:?}", now.from));
    }
    if before.is_some_and(|before| before.step >= now.step) {
        return Some(format!("step {} twice", now.step));
    }
    let edges: Vec<&Rule> =
        RULES.iter().filter(|rule| (rule.from, rule.to) == (now.from, now.to)).collect();
    if edges.is_empty() {
        return Some(format!("no verb leads from {:?} to {:?}", now.from, now.to));
    }
    if edges.iter().any(|rule| rule.change.fits(before, now)) {
        return None;
    }
    let verbs: Vec<_> = edges.iter().map(|rule| rule.verb).collect();
    let numbers = |step: &Transition| (step.fence, step.attempt, step.crashes);
    let (old, new) = (before.map(numbers), numbers(now));
    let by = verbs.join("; ");
    Some(format!(
        "{:?} to {:?} ({by}) with (fence, attempt, crashes) {old:?} to {new:?}",
        now.from, now.to
    ))
}

impl Change {
    fn fits(self, before: Option<&Transition>, now: &Transition) -> bool {
        let Some(old) = before else {
            return self == Self::Made && (now.fence, now.attempt, now.crashes) == (0, 0, 0);
        };
        let same_fence = now.fence == old.fence;
        let (attempt, crashes) = (now.attempt - old.attempt, now.crashes - old.crashes);
        match self {
            Self::Made => false,
            Self::Nothing => same_fence && (attempt, crashes) == (0, 0),
            Self::Claim => now.fence > old.fence && (attempt, crashes) == (1, 0),
            Self::Result => same_fence && attempt == 0 && now.crashes == 0,
            Self::Snooze => same_fence && attempt == -1 && now.crashes == 0,
            Self::GiveBack => same_fence && (attempt, crashes) == (-1, 0),
            Self::Rescue => same_fence && attempt == -1 && (0..=1).contains(&crashes),
            Self::Revive => same_fence && (now.attempt, now.crashes) == (0, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_task_can_only_become_new_and_a_success_can_not() {
        for rule in RULES.iter().filter(|rule| rule.from.is_some_and(Status::is_terminal)) {
            assert_eq!((rule.to, rule.change), (New, Change::Revive), "{rule:?}");
        }
        for status in [New, Enqueued, Claimed, Processing, RetriableFailure].iter().chain(&FAILED) {
            assert!(RULES.iter().any(|rule| rule.from == Some(*status)), "{status:?}");
        }
        assert!(!RULES.iter().any(|rule| rule.from == Some(Success)));
    }

    /// The terminal statuses of the matrix, for verbs that refuse only some of them.
    const FAILED: [Status; 4] = [FatalFailure, Dead, Cancelled, Dropped];

    #[test]
    fn the_edges_are_those_of_the_matrix_in_the_architecture() {
        let text = include_str!("../../../../ARCHITECTURE.md");
        let matrix = text.split("<!-- matrix -->").nth(1).expect("ARCHITECTURE.md has its matrix");
        let columns = [New, Enqueued, Claimed, Processing, RetriableFailure];
        let mut found = std::collections::BTreeSet::new();
        for line in matrix.lines().filter(|line| line.starts_with("| ")).skip(1) {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            let terminal = FAILED.iter().map(|from| (from, &cells[2 + columns.len()]));
            for (from, cell) in columns.iter().zip(&cells[2..]).chain(terminal) {
                found.extend(status(cell).map(|to| format!("{from:?} to {to:?}")));
            }
        }
        let ours = RULES
            .iter()
            .filter_map(|rule| rule.from.map(|from| format!("{from:?} to {:?}", rule.to)));
        assert_eq!(ours.collect::<std::collections::BTreeSet<_>>(), found);
    }

    fn status(word: &str) -> Option<Status> {
        let word = if word == "retriable" { "retriable_failure" } else { word };
        let word = if word == "fatal" { "fatal_failure" } else { word };
        serde_json::from_value(serde_json::Value::from(word)).ok()
    }
}
