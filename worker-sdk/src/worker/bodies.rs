//! The bodies that run in this process under one registration, counted by the guards that they hold.
//!
//! Promises: once closed, no body begins; a count of 0 then means that none runs. One atomic holds both,
//! so no body begins between the close and the look. Must never: lock or wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Nothing may begin any more.
const CLOSED: usize = 1;
/// A guard counts as this, beside the bit above.
const ONE: usize = 2;

#[derive(Debug, Default)]
pub(crate) struct Bodies(AtomicUsize);

impl Bodies {
    /// The guard of a body that is about to begin. `None`: nothing may begin any more.
    pub(crate) fn begin(self: &Arc<Self>) -> Option<BodyGuard> {
        let before = self.0.fetch_add(ONE, Ordering::AcqRel);
        // Dropped at once where it is too late: the count is one too high for a moment, never too low.
        let guard = BodyGuard(Arc::clone(self));
        (before & CLOSED == 0).then_some(guard)
    }

    /// Nothing begins from here on.
    pub(crate) fn close(&self) {
        self.0.fetch_or(CLOSED, Ordering::AcqRel);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Guards that are held now.
    pub(crate) fn running(&self) -> usize {
        self.0.load(Ordering::Acquire) / ONE
    }
}

/// Held from before a body's first instruction until after its last, on every way out. Its context holds
/// another: code that a body gives its context to counts as a part of the body.
#[derive(Debug)]
pub(crate) struct BodyGuard(Arc<Bodies>);

impl BodyGuard {
    /// For a body that no worker runs: it is counted nowhere else.
    pub(crate) fn alone() -> Self {
        let bodies = Arc::new(Bodies::default());
        bodies.0.fetch_add(ONE, Ordering::AcqRel);
        Self(bodies)
    }
}

impl Clone for BodyGuard {
    /// Also once closed: the body has begun already.
    fn clone(&self) -> Self {
        self.0.0.fetch_add(ONE, Ordering::AcqRel);
        Self(Arc::clone(&self.0))
    }
}

impl Drop for BodyGuard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(ONE, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_begins_once_closed_and_what_began_is_counted_to_its_end() {
        let bodies = Arc::new(Bodies::default());
        let body = bodies.begin().expect("open");
        bodies.close();
        assert!(bodies.begin().is_none());
        assert_eq!(bodies.running(), 1, "a refusal leaves no trace");
        let side = body.clone();
        drop(body);
        assert_eq!(bodies.running(), 1, "a part of it runs on");
        drop(side);
        assert!(bodies.is_closed() && bodies.running() == 0);
    }

    #[test]
    fn a_body_that_panics_is_counted_no_more() {
        let bodies = Arc::new(Bodies::default());
        let guard = bodies.begin();
        let body = std::thread::spawn(move || {
            let _guard = guard;
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert!(body.join().is_err());
        assert_eq!(bodies.running(), 0);
    }

    /// In each order of the two, the closer sees a body that was let in.
    #[test]
    fn no_body_begins_between_the_close_and_the_look() {
        for _ in 0..2_000 {
            let bodies = Arc::new(Bodies::default());
            let theirs = Arc::clone(&bodies);
            let beginner = std::thread::spawn(move || theirs.begin());
            bodies.close();
            let seen = bodies.running();
            let begun = beginner.join().expect("no panic").is_some();
            assert!(!begun || seen == 1, "a body began and was not seen");
        }
    }
}
