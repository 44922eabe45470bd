//! The invariants, in files named for what they are about. Each is one function that reads a history
//! and yields an [`Invariant`](crate::Invariant).

pub(crate) mod acceptance;
pub(crate) mod chains;
pub(crate) mod edges;
pub(crate) mod endings;
pub(crate) mod executors;
pub(crate) mod fences;
pub(crate) mod heartbeats;
pub(crate) mod leftovers;
pub(crate) mod limits;
pub(crate) mod order;
pub(crate) mod overlap;
pub(crate) mod recovery;
pub(crate) mod redrives;
pub(crate) mod repeats;
pub(crate) mod restores;
pub(crate) mod resumed;
pub(crate) mod ticks;
pub(crate) mod timeliness;
pub(crate) mod transitions;
pub(crate) mod wake_line;
