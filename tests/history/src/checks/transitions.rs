//! Replays every change that the database made along the table of edges.

use super::edges;
use crate::Invariant;
use crate::history::History;

/// I6, with how many changes were replayed and accepted.
pub(crate) fn changes_are_legal(history: &History) -> Invariant {
    let statement =
        "each change is an edge of the matrix, continues the one before, keeps its numbers";
    let mut check = Invariant::new("I6", "legal transitions only", statement);
    for task in history.tasks.all() {
        let mut before = None;
        for now in history.transitions.of(task) {
            let refusal = edges::refuse(before, now);
            check.expect(refusal.is_none(), history.id(task), || {
                format!("step {}: {}", now.step, refusal.unwrap_or_default())
            });
            before = Some(now);
        }
    }
    check.done()
}
