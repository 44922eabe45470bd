//! Latencies in a histogram of three significant digits, in µs.

use hdrhistogram::Histogram;

/// Measurements of one kind.
#[derive(Debug, Clone)]
pub(super) struct Latencies(Histogram<u64>);

/// Quantiles in milliseconds; absent when nothing was measured.
#[derive(Debug, Clone, Copy, Default, serde::Serialize)]
pub struct Quantiles {
    /// Half took no longer.
    pub p50_ms: Option<f64>,
    /// 95 of 100 took no longer.
    pub p95_ms: Option<f64>,
    /// 99 of 100 took no longer.
    pub p99_ms: Option<f64>,
    pub max_ms: Option<f64>,
}

impl Latencies {
    /// None yet.
    pub(super) fn none() -> anyhow::Result<Self> {
        Ok(Self(Histogram::new(3)?))
    }

    /// Adds one.
    pub(super) fn record(&mut self, took_us: u64) {
        // It grows by itself and refuses nothing that fits into memory.
        let _ = self.0.record(took_us);
    }

    /// Adds those of another.
    pub(super) fn add(&mut self, other: &Self) -> anyhow::Result<()> {
        Ok(self.0.add(&other.0)?)
    }

    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    /// Value in µs and how often, for another process.
    pub(super) fn pairs(&self) -> Vec<(u64, u64)> {
        self.0.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())).collect()
    }

    /// From what [`Latencies::pairs`] gave.
    pub(super) fn from_pairs(pairs: &[(u64, u64)]) -> anyhow::Result<Self> {
        let mut all = Histogram::new(3)?;
        for &(took_us, times) in pairs {
            all.record_n(took_us, times)?;
        }
        Ok(Self(all))
    }

    /// The distribution: ms, and the share that took no longer; a hundred points.
    pub(super) fn distribution(&self) -> Vec<(f64, f64)> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let tail = [0.995, 0.999, 0.9999, 1.0];
        let shares = (1..100).map(|percent| f64::from(percent) / 100.0).chain(tail);
        #[allow(clippy::cast_precision_loss)]
        shares.map(|share| (self.0.value_at_quantile(share) as f64 / 1000.0, share)).collect()
    }

    pub(super) fn quantiles(&self) -> Quantiles {
        #[allow(clippy::cast_precision_loss)]
        let at = |share: f64| {
            (!self.0.is_empty()).then(|| self.0.value_at_quantile(share) as f64 / 1000.0)
        };
        Quantiles { p50_ms: at(0.5), p95_ms: at(0.95), p99_ms: at(0.99), max_ms: at(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_survive_the_way_to_another_process() {
        let mut own = Latencies::none().unwrap();
        (1..=1000).for_each(|us| own.record(us * 7));
        let theirs = Latencies::from_pairs(&own.pairs()).unwrap();
        assert_eq!(theirs.count(), 1000);
        assert_eq!(theirs.quantiles().p99_ms, own.quantiles().p99_ms);
        assert_eq!(Latencies::none().unwrap().quantiles().max_ms, None);
    }

    #[test]
    fn a_distribution_only_rises() {
        let mut all = Latencies::none().unwrap();
        (1..=1000).for_each(|us| all.record(us * us));
        let points = all.distribution();
        assert!(points.is_sorted() && points.last().is_some_and(|(_, share)| *share >= 1.0));
        assert_eq!(Latencies::none().unwrap().distribution(), []);
    }
}
