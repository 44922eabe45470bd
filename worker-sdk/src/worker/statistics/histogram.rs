//! A histogram of durations that many threads count into.
//!
//! Promises: counting costs a few additions, and no lock. The longest duration that is told covers
//! each duration that the buckets of the same report count.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

#[cfg(feature = "metrics")]
use crate::metrics::Value;

/// Upper bounds of the first 15 buckets of a histogram, in ms: `tuskline.histogram_edges()`. The 16th
/// bucket has none. 5,000 ms is among them: the objective for the start of a due task.
pub const EDGES_MS: [u64; BUCKETS - 1] =
    [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 1_800_000];
pub(super) const BUCKETS: usize = 16;

/// Stands for each duration that is longer, 11 days: `report_attempts` takes no larger amount.
const LONGEST_US: i64 = 1_000_000_000_000;

#[derive(Debug, Default)]
pub(super) struct Histogram {
    /// In µs: many attempts are shorter than a ms.
    total_us: AtomicI64,
    /// Since the last report.
    longest_us: AtomicI64,
    buckets: [AtomicI64; BUCKETS],
}

impl Histogram {
    pub(super) fn add(&self, duration: Duration) {
        let us = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        // Rounded up, so that the bound of a bucket holds for the exact duration.
        let ms = u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        let bucket = EDGES_MS.partition_point(|edge| *edge < ms);
        self.longest_us.fetch_max(us.saturating_add(1), Ordering::Relaxed);
        // A thread that sees the count also sees the longest duration.
        self.buckets[bucket].fetch_add(1, Ordering::Release);
        self.total_us.fetch_add(us, Ordering::Relaxed);
    }

    #[cfg(feature = "metrics")]
    pub(super) fn value(&self) -> Value {
        let counts: Vec<_> = self.values().skip(1).collect();
        let total_ms = self.total_us.load(Ordering::Relaxed) as f64 / 1_000.0;
        Value::histogram(&EDGES_MS, &counts, total_ms)
    }

    /// The sum in whole ms, then the buckets.
    pub(super) fn values(&self) -> impl Iterator<Item = i64> {
        let buckets = self.buckets.iter().map(|bucket| bucket.load(Ordering::Acquire));
        std::iter::once(self.total_us.load(Ordering::Relaxed) / 1_000).chain(buckets)
    }

    /// The longest duration in µs, rounded up, that the buckets may have counted since the last call.
    /// Called after [`values`](Self::values). `before`: what the last call took. It counts again: its
    /// duration may have entered a bucket after that call.
    pub(super) fn longest_us(&self, before: &mut i64) -> i64 {
        let now = self.longest_us.swap(0, Ordering::Relaxed);
        std::mem::replace(before, now).max(now).min(LONGEST_US)
    }
}
