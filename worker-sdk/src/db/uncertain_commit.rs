//! Uncertain commits: made on this server, but perhaps not on the synchronous standby.
//!
//! With synchronous replication a commit waits for a standby. If that wait is cancelled, the server
//! still answers with success, and a warning says that the transaction has committed locally. A failover
//! may lose it: the outcome is unknown, and must never look like success.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio_postgres::error::{DbError, Severity};

/// The function in which the server waits for a standby. The warning's text is translated, this name is not.
const WAIT: &str = "SyncRepWaitForLSN";

/// Counts the uncertain commits of one connection. The warning comes before the answer to the statement,
/// so the count before and after a call tells whether its commit is uncertain.
#[derive(Debug, Clone, Default)]
pub(crate) struct UncertainCommits(Arc<AtomicU64>);

impl UncertainCommits {
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
