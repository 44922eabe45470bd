//! Every fault on a real server, small: that it happens, and what it must leave intact.

mod clock;
mod crash;
mod disk;
mod disturb;
mod ledger;
mod pooler;
mod replace;
mod site;
mod standby;

use std::time::Duration;

use super::*;

pub(super) use ledger::Ledger;

/// Longest wait for anything in a test.
const DEADLINE: Duration = Duration::from_secs(60);

/// Waits until something is so.
async fn until(what: &str, so: impl Fn() -> bool) {
    let started = Instant::now();
    while !so() {
        assert!(started.elapsed() < DEADLINE, "not within the deadline: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Whether a fault can be tried here; a missing tool is reported loudly.
fn possible(site: &Site, what: &str) -> bool {
    let skipped: Vec<_> = site.skipped().into_iter().filter(|s| s.what == what).collect();
    skipped.iter().for_each(|skipped| eprintln!("{skipped}"));
    skipped.is_empty()
}
