//! The counts of a door, by which a fault can check that it has really happened.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counts of a door since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections accepted, without the refused ones.
    pub opened: u64,
    /// Connections open now.
    pub open: u64,
    /// Connections refused by [`Mode::Refuse`](super::Mode::Refuse).
    pub refused: u64,
    /// Connections that found no server.
    pub unreachable: u64,
    /// Connections ended by a RST of ours: by order, by a cut, or because a side was reset.
    pub resets: u64,
    /// Bytes delivered to the server.
    pub bytes_to_server: u64,
    /// Bytes delivered to the client.
    pub bytes_to_client: u64,
    /// Connections cut at a statement before the server had it.
    pub cuts_before: u64,
    /// Connections cut at a statement after the server had done it.
    pub cuts_after: u64,
    /// Cuts that are armed and have not met their statement yet.
    pub cuts_armed: u64,
}

/// The same, while it grows.
#[derive(Default)]
pub struct Tally {
    pub opened: AtomicU64,
    pub open: AtomicU64,
    pub refused: AtomicU64,
    pub unreachable: AtomicU64,
    pub resets: AtomicU64,
    pub bytes_to_server: AtomicU64,
    pub bytes_to_client: AtomicU64,
    pub cuts_before: AtomicU64,
    pub cuts_after: AtomicU64,
}

impl Tally {
    pub fn counts(&self, cuts_armed: u64) -> Counts {
        Counts {
            opened: self.opened.load(Relaxed),
            open: self.open.load(Relaxed),
            refused: self.refused.load(Relaxed),
            unreachable: self.unreachable.load(Relaxed),
            resets: self.resets.load(Relaxed),
            bytes_to_server: self.bytes_to_server.load(Relaxed),
            bytes_to_client: self.bytes_to_client.load(Relaxed),
            cuts_before: self.cuts_before.load(Relaxed),
            cuts_after: self.cuts_after.load(Relaxed),
            cuts_armed,
        }
    }
}

/// Counts one more.
pub fn one_more(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

/// Counts something as open for as long as it lives.
pub struct WhileOpen<'a>(&'a AtomicU64);

impl<'a> WhileOpen<'a> {
    pub fn new(counter: &'a AtomicU64) -> Self {
        one_more(counter);
        Self(counter)
    }
}

impl Drop for WhileOpen<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
