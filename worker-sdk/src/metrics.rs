//! Metrics in the text format of OpenMetrics, which Prometheus reads.
//!
//! Worker and server read their figures at each scrape, so no figure is stored twice.

pub mod port;

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;

pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Names and values of the labels of a sample.
pub type Labels = Vec<(&'static str, String)>;

/// A metric and its samples.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// Its name. A counter is shown with the suffix `_total`.
    pub name: &'static str,
    /// The thing that it measures, in one sentence.
    pub help: &'static str,
    /// Kind of its samples.
    pub kind: Kind,
    /// One for each set of labels.
    pub samples: Vec<(Labels, Value)>,
}

/// Kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// [`Value::Counter`].
    Counter,
    /// [`Value::Gauge`].
    Gauge,
    /// [`Value::Histogram`].
    Histogram,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A count that only grows.
    Counter(u64),
    /// A figure that goes up and down.
    Gauge(f64),
    /// Counts by bucket, and the sum of what was counted, in seconds.
    Histogram {
        /// Upper bound of each bucket in seconds, and its own count; the last bound is infinite.
        buckets: Vec<(f64, u64)>,
        /// In seconds.
        sum: f64,
    },
}

impl Family {
    /// A metric without samples yet.
    pub fn new(kind: Kind, name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind, samples: Vec::new() }
    }

    /// A counter without samples yet.
    pub fn counter(name: &'static str, help: &'static str) -> Self {
        Self::new(Kind::Counter, name, help)
    }

    /// A gauge without samples yet.
    pub fn gauge(name: &'static str, help: &'static str) -> Self {
        Self::new(Kind::Gauge, name, help)
    }

    /// A histogram without samples yet.
    pub fn histogram(name: &'static str, help: &'static str) -> Self {
        Self::new(Kind::Histogram, name, help)
    }

    pub fn push(&mut self, labels: Labels, value: Value) {
        self.samples.push((labels, value));
    }
}

impl Value {
    /// A histogram from counts by bucket, the bounds of all buckets but the last in ms, and the sum in ms.
    pub fn histogram(edges_ms: &[u64], counts: &[i64], total_ms: f64) -> Self {
        let bounds = edges_ms.iter().map(|edge| *edge as f64 / 1_000.0).chain([f64::INFINITY]);
        let counts = counts.iter().map(|count| u64::try_from(*count).unwrap_or(0));
        Self::Histogram { buckets: bounds.zip(counts).collect(), sum: total_ms / 1_000.0 }
    }

    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        match self {
            Self::Counter(count) => ConstCounter::new(*count).encode(encoder),
            Self::Gauge(value) => encoder.encode_gauge(value),
            Self::Histogram { buckets, sum } => {
                let count = buckets.iter().map(|bucket| bucket.1).sum();
                encoder.encode_histogram::<NoLabelSet>(*sum, count, buckets, None)
            }
        }
    }
}

#[derive(Debug)]
struct Families(Vec<Family>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in &self.0 {
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut metric = encoder.encode_descriptor(family.name, family.help, None, kind)?;
            for (labels, value) in &family.samples {
                value.encode(metric.encode_family(labels)?)?;
            }
        }
        Ok(())
    }
}

/// The text that a scrape gets. A family without a sample still has its name and help.
pub fn text(families: Vec<Family>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Families(families)));
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = encode(&mut text, &registry);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_become_the_text_of_openmetrics() {
        let label = |name: &str| vec![("lambda", name.to_owned())];
        let mut done = Family::counter("done", "Attempts that succeeded");
        done.push(label("a\"b"), Value::Counter(3));
        let mut delay = Family::histogram("delay_seconds", "From due to start");
        delay.push(label("c"), Value::histogram(&[5, 10], &[1, 2, 4], 1_500.0));
        let mut depth = Family::gauge("depth", "Rows");
        depth.push(Vec::new(), Value::Gauge(2.5));
        let text = text(vec![done, Family::gauge("none", "Nothing"), delay, depth]);
        let expected = "# HELP done Attempts that succeeded\n\
            # TYPE done counter\n\
            done_total{lambda=\"a\\\"b\"} 3\n\
            # HELP none Nothing\n\
            # TYPE none gauge\n\
            # HELP delay_seconds From due to start\n\
            # TYPE delay_seconds histogram\n\
            delay_seconds_sum{lambda=\"c\"} 1.5\n\
            delay_seconds_count{lambda=\"c\"} 7\n\
            delay_seconds_bucket{le=\"0.005\",lambda=\"c\"} 1\n\
            delay_seconds_bucket{le=\"0.01\",lambda=\"c\"} 3\n\
            delay_seconds_bucket{le=\"+Inf\",lambda=\"c\"} 7\n\
            # HELP depth Rows\n\
            # TYPE depth gauge\n\
            depth 2.5\n\
            # EOF\n";
        assert_eq!(text, expected);
    }
}
