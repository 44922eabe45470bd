//! A histogram of durations, and its quantiles.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tuskline_sdk::EDGES_MS;

/// Counts by bucket, see `tuskline.histogram_edges()`, and their sum.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Sum of the durations in ms.
    pub total_ms: i64,
    /// Counts by bucket.
    pub counts: Vec<i64>,
    /// No duration is longer, in ms. None: not known.
    #[serde(skip_serializing)]
    pub longest_ms: Option<f64>,
}

impl Histogram {
    /// How many durations it has.
    pub fn count(&self) -> i64 {
        saturating_sum(self.counts.iter())
    }

    /// The sum of several.
    pub fn sum<'a>(histograms: impl Iterator<Item = &'a Self>) -> Self {
        let mut sum =
            Self { total_ms: 0, counts: vec![0; EDGES_MS.len() + 1], longest_ms: Some(0.0) };
        for one in histograms.filter(|one| one.count() > 0) {
            sum.longest_ms = sum.longest_ms.zip(one.longest_ms).map(|(a, b)| a.max(b));
            sum.total_ms = sum.total_ms.saturating_add(one.total_ms);
            for (sum, count) in sum.counts.iter_mut().zip(&one.counts) {
                *sum = sum.saturating_add(*count);
            }
        }
        sum
    }

    /// A quantile in ms, interpolated within its bucket, as by `tuskline.quantile()`, and never above the longest
    /// duration. None: it is empty.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let wanted = share * self.count() as f64;
        let mut below = 0.0;
        for (at, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = *count as f64;
            if below + count >= wanted {
                let low = at.checked_sub(1).map_or(0.0, |before| EDGES_MS[before] as f64);
                let high = EDGES_MS.get(at).map_or(low, |edge| *edge as f64);
                let within = low + (high - low) * (wanted - below) / count;
                return Some(within.min(self.longest_ms.unwrap_or(f64::INFINITY)));
            }
            below += count;
        }
        None
    }

    /// The share of durations up to a bound, which must be the edge of a bucket. None: it is empty.
    pub fn share_within(&self, bound: Duration) -> Option<f64> {
        let edges = EDGES_MS.iter().take_while(|edge| u128::from(**edge) <= bound.as_millis());
        let within = saturating_sum(self.counts.iter().take(edges.count()));
        (self.count() > 0).then(|| within as f64 / self.count() as f64)
    }
}

/// Saturates, because a worker may have reported any number.
fn saturating_sum<'a>(counts: impl Iterator<Item = &'a i64>) -> i64 {
    counts.fold(0, |sum, count| sum.saturating_add(*count))
}
