//! The rows left at the end, and whether the numbers shown to users are true.

use crate::Invariant;
use crate::history::History;

/// I20.
pub(crate) fn shown_numbers_are_true(history: &History) -> Invariant {
    let statement = "a number shown to users equals the rows it stands for";
    let mut check = Invariant::new("I20", "shown numbers are true", statement);
    for (what, shown, counted) in &history.shown {
        check
            .expect(shown == counted, None, || format!("{what}: shown {shown}, counted {counted}"));
    }
    check.done()
}

/// I22.
pub(crate) fn nothing_is_left(history: &History) -> Invariant {
    let statement = "after the drain no leases, timers, queue rows, locks, idle transactions";
    let mut check = Invariant::new("I22", "nothing is left over", statement);
    for (what, count) in &history.left {
        check.expect(*count == 0, None, || format!("{what}: {count} left"));
    }
    check.done()
}
