//! Commits in doubt: made here, perhaps not on the standby that was to have them.
//!
//! With synchronous replication a commit waits for a standby. When somebody cancels that wait, the
//! server answers with success all the same, and says in a warning that the transaction has committed
//! locally. A failover may lose it: the outcome is unknown, and must never look like success.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio_postgres::error::{DbError, Severity};

/// Where the server waits for a standby. The warning's text is translated, this name never is.
const WAIT: &str = "SyncRepWaitForLSN";

/// Counts the commits in doubt of one connection. The warning comes before the answer to the
/// statement, so whoever compares the count before and after a call knows of that call.
#[derive(Debug, Clone, Default)]
pub(crate) struct Doubts(Arc<AtomicU64>);

impl Doubts {
    pub(crate) fn hear(&self, notice: &DbError) {
        let warning = notice.parsed_severity() == Some(Severity::Warning);
        if warning && notice.routine() == Some(WAIT) {
            tracing::warn!(said = notice.message(), "a commit may not be on the standby");
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
