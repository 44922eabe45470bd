//! Spans of time, in nanoseconds of CLOCK_MONOTONIC.

/// From `from` to just before `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Span {
    /// Whether it shares a moment with the time between two moments, both included.
    pub(crate) fn meets(&self, from: u64, to: u64) -> bool {
        self.from <= to && self.to > from
    }

    /// Nanoseconds of it between two moments.
    pub(crate) fn within(&self, from: u64, to: u64) -> u64 {
        self.to.min(to).saturating_sub(self.from.max(from))
    }
}

/// Spans that do not touch each other, in order.
#[derive(Debug, Default)]
pub(crate) struct Spans(Vec<Span>);

impl Spans {
    /// Pairs each beginning with the next end. A second beginning before the end says nothing new;
    /// a last one without an end lasts until `end`.
    pub(crate) fn pair(mut edges: Vec<(u64, crate::Edge)>, end: u64) -> Self {
        edges.sort_by_key(|(at, _)| *at);
        let mut spans = Vec::new();
        let mut open = None;
        for (at, edge) in edges {
            match edge {
                crate::Edge::Begin => open = open.or(Some(at)),
                crate::Edge::End => spans.extend(open.take().map(|from| Span { from, to: at })),
            }
        }
        spans.extend(open.map(|from| Span { from, to: end.max(from) }));
        Self(spans)
    }

    /// Whether one of them meets the time between two moments.
    pub(crate) fn meet(&self, from: u64, to: u64) -> bool {
        let first = self.0.partition_point(|span| span.to <= from);
        self.0.get(first).is_some_and(|span| span.from <= to)
    }

    /// Nanoseconds of theirs between two moments.
    pub(crate) fn within(&self, from: u64, to: u64) -> u64 {
        self.0.iter().map(|span| span.within(from, to)).sum()
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Span> {
        self.0.iter()
    }
}

/// Milliseconds from one moment to a later one; 0 when it is not later.
#[allow(clippy::cast_precision_loss, reason = "far below 2^53 ns")]
pub(crate) fn ms_between(from: u64, to: u64) -> f64 {
    to.saturating_sub(from) as f64 / 1e6
}
