//! Percentiles, by nearest rank: always a value that was measured.

use serde::Serialize;

/// Percentiles of values in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// How many values.
    pub n: u64,
    /// Median.
    pub p50_ms: f64,
    /// 90 % are at most this.
    pub p90_ms: f64,
    /// 95 % are at most this.
    pub p95_ms: f64,
    /// 99 % are at most this.
    pub p99_ms: f64,
    /// The greatest.
    pub max_ms: f64,
}

impl Percentiles {
    /// The percentiles of `values`; zeros when there are none.
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self {
            n: values.len() as u64,
            p50_ms: rank(&values, 50),
            p90_ms: rank(&values, 90),
            p95_ms: rank(&values, 95),
            p99_ms: rank(&values, 99),
            max_ms: rank(&values, 100),
        }
    }
}

fn rank(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_measured_values() {
        let found = Percentiles::of((1..=200).map(f64::from).collect());
        assert_eq!((found.n, found.p50_ms, found.p90_ms), (200, 100.0, 180.0));
        assert_eq!((found.p95_ms, found.p99_ms, found.max_ms), (190.0, 198.0, 200.0));
        assert_eq!(Percentiles::of(vec![7.0]).p50_ms, 7.0);
        assert_eq!(Percentiles::of(Vec::new()), Percentiles::default());
    }
}
