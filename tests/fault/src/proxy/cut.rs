//! Cuts: connections that end at a statement, so that its client cannot know the outcome.
//!
//! Promises: an armed cut is used by one request and only once. While none is armed, a statement
//! costs one atomic load.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Where to cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// A part of the statement's text, in any case of letters; the empty string is in every
    /// statement. The proxy searches the first 64 KiB of a text; COPY is never cut.
    pub holding: String,
    /// On which side of the server's work.
    pub when: CutWhen,
}

/// On which side of the server's work a cut is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutWhen {
    /// The server never sees the statement: it has not happened.
    BeforeServer,
    /// The server has executed the statement and answered, but the proxy drops the answer. The
    /// statement has taken effect, unless it failed or an open transaction around it rolls back.
    AfterServer,
    /// The server never sees the statement, and the client gets no more answers. The connection
    /// stands as if its peer were gone without a word, until the client closes it.
    Silence,
}

/// The cuts that a door has yet to make.
#[derive(Default)]
pub struct Armed {
    cuts: Mutex<Vec<(Cut, u32)>>,
    left: AtomicU64,
}

impl Armed {
    pub fn arm(&self, cut: Cut, count: u32) {
        if count > 0 {
            let mut cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
            cuts.push((cut, count));
            self.left.fetch_add(count.into(), Ordering::Release);
        }
    }

    pub fn disarm(&self) {
        let mut cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
        cuts.clear();
        self.left.store(0, Ordering::Release);
    }

    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Acquire)
    }

    /// Uses up the first cut that is meant for this statement.
    pub fn claim(&self, sql: &[u8]) -> Option<CutWhen> {
        if self.left() == 0 || begins_a_copy(sql) {
            return None;
        }
        let mut cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
        let at = cuts.iter().position(|(cut, _)| holds(sql, cut.holding.as_bytes()))?;
        let (cut, count) = &mut cuts[at];
        let when = cut.when;
        *count -= 1;
        if *count == 0 {
            cuts.remove(at);
        }
        self.left.fetch_sub(1, Ordering::Release);
        Some(when)
    }
}

fn holds(sql: &[u8], needle: &[u8]) -> bool {
    needle.is_empty() || sql.windows(needle.len()).any(|part| part.eq_ignore_ascii_case(needle))
}

/// A COPY goes back and forth within one request, which has no single moment to cut at.
fn begins_a_copy(sql: &[u8]) -> bool {
    sql.trim_ascii_start().get(..4).is_some_and(|word| word.eq_ignore_ascii_case(b"copy"))
}
