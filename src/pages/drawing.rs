//! Drawings by the server: classes only, no style. Each stands beside the numbers that it draws.

use std::fmt::Write as _;

use maud::{Markup, html};

/// Width and height of a drawing.
const WIDE: f64 = 92.0;
const HIGH: f64 = 20.0;

/// Delays in ms as a line, beside an objective. The part above the objective is drawn again.
pub fn delays(ms: &[Option<i64>], objective: i64) -> Markup {
    let most = ms.iter().flatten().copied().max().unwrap_or(0).max(objective * 6 / 5);
    let y = |ms: i64| HIGH - 1.0 - (HIGH - 2.0) * ms as f64 / most as f64;
    let over: Vec<Option<i64>> = ms.iter().map(|ms| ms.filter(|ms| *ms > objective)).collect();
    html! {
        svg .spark viewBox="0 0 92 20" aria-hidden="true" {
            path .goal d=(format!("M0 {:.1}H92", y(objective))) {}
            path .line d=(line(ms, y)) {}
            @if over.iter().any(Option::is_some) { path .line .over d=(line(&over, y)) {} }
        }
    }
}

/// A line with gaps where nothing is known.
fn line(values: &[Option<i64>], y: impl Fn(i64) -> f64) -> String {
    let step = WIDE / values.len().saturating_sub(1).max(1) as f64;
    let mut path = String::new();
    let mut draws = false;
    for (at, value) in values.iter().enumerate() {
        match value {
            None => draws = false,
            Some(value) => {
                let (verb, x) = (if draws { 'L' } else { 'M' }, at as f64 * step);
                // A point alone is a short line.
                let end = if draws { "" } else { "h.5" };
                let _ = write!(path, "{verb}{x:.1} {:.1}{end}", y(*value));
                draws = true;
            }
        }
    }
    path
}

/// Numbers as bars, and a part of each on top of them.
pub fn bars(all: &[i64], failed: &[i64]) -> Markup {
    let most = all.iter().copied().max().unwrap_or(0).max(1);
    let step = WIDE / all.len().max(1) as f64;
    let path = |values: &[i64]| {
        let mut path = String::new();
        for (at, value) in values.iter().enumerate().filter(|(_, value)| **value > 0) {
            let high = ((HIGH - 2.0) * *value as f64 / most as f64).max(1.0);
            let (x, wide) = (at as f64 * step, (step - 0.5).max(0.5));
            let _ = write!(path, "M{x:.1} 20v-{high:.1}h{wide:.1}v{high:.1}z");
        }
        path
    };
    html! {
        svg .spark viewBox="0 0 92 20" aria-hidden="true" {
            path .bars d=(path(all)) {}
            @if failed.iter().any(|one| *one > 0) { path .bars .over d=(path(failed)) {} }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_gap_where_nothing_is_known() {
        let drawn = delays(&[Some(10), Some(20), None, Some(9_000)], 5_000).into_string();
        assert_eq!(drawn.matches('M').count(), 1 + 2 + 1, "{drawn}");
        assert!(drawn.contains("line over"), "{drawn}");
        assert!(!delays(&[Some(10)], 5_000).into_string().contains("over"));
        assert!(!delays(&[], 5_000).into_string().contains("NaN"));
    }

    #[test]
    fn a_bar_that_is_not_zero_is_seen() {
        let drawn = bars(&[0, 1, 100_000], &[0, 0, 0]).into_string();
        assert_eq!(drawn.matches('M').count(), 2, "{drawn}");
        assert!(drawn.contains("v-1.0") && !drawn.contains("over"), "{drawn}");
    }
}
