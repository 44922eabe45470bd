//! Axes of a chart: where they begin and end, and their ticks.

/// Ticks of a linear axis, about.
const TICKS: f64 = 5.0;

/// How an axis goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    /// From zero.
    Linear,
    /// By decades; values of zero and below are left out.
    Log,
}

/// An axis: what it shows, with its unit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis(pub &'static str, pub Scale);

/// The values an axis reaches from end to end, with a tick at each.
#[derive(Debug)]
pub(super) struct Range {
    scale: Scale,
    pub ticks: Vec<f64>,
}

impl Range {
    /// Round ends around these values.
    pub(super) fn around(scale: Scale, values: impl Iterator<Item = f64>) -> Self {
        let (least, most) = values.fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(v), b.max(v)));
        let ticks = match scale {
            _ if least > most => vec![0.1, 1.0],
            Scale::Linear => linear(most),
            Scale::Log => decades(least, most),
        };
        Self { scale, ticks }
    }

    /// Where a value lies, from 0 to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        let along = |v: f64| if self.scale == Scale::Log { v.log10() } else { v };
        let (from, to) = (self.ticks.first(), self.ticks.last());
        let (from, to) = (from.map_or(0.0, |v| along(*v)), to.map_or(1.0, |v| along(*v)));
        ((along(value) - from) / (to - from)).clamp(0.0, 1.0)
    }
}

/// Steps of 1, 2 or 5 times a power of ten from zero to the first at or above `most`.
fn linear(most: f64) -> Vec<f64> {
    let most = if most > 0.0 { most } else { 1.0 };
    let power = 10_f64.powf((most / TICKS).log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].map(|n| n * power).into_iter().find(|s| most / s <= TICKS + 1.0);
    let step = step.unwrap_or(10.0 * power);
    let mut ticks = vec![0.0];
    while ticks.last().is_some_and(|last| *last < most * 0.999_999) && ticks.len() < 20 {
        #[allow(clippy::cast_precision_loss)]
        ticks.push(step * ticks.len() as f64);
    }
    ticks
}

/// Powers of ten, with 2 and 5 times each where there are few, that hold both values.
fn decades(least: f64, most: f64) -> Vec<f64> {
    let (first, last) = (least.log10().floor(), most.log10().ceil());
    let steps: &[f64] = if last - first <= 3.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let mut ticks = Vec::new();
    let mut power = first;
    while power <= last {
        ticks.extend(steps.iter().map(|step| step * 10_f64.powf(power)));
        power += 1.0;
    }
    let from = ticks.iter().rposition(|tick| *tick <= least).unwrap_or(0);
    let to = ticks.iter().position(|tick| *tick >= most).unwrap_or(ticks.len() - 1);
    let to = to.max(from + 1).min(ticks.len() - 1);
    ticks[from..=to].to_vec()
}

/// A number in few characters: 20000 as 20k, 0.05 as it is.
pub(super) fn short(value: f64) -> String {
    let (scaled, unit) = match value {
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e4 => (v / 1e3, "k"),
        v => (v, ""),
    };
    let text = format!("{scaled:.4}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_hold_what_is_shown() {
        assert_eq!(linear(1.0), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(linear(138_000.0), [0.0, 50_000.0, 100_000.0, 150_000.0]);
        assert_eq!(decades(0.7, 21.0), [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
        assert_eq!(decades(1.0, 1.0), [1.0, 2.0]);
        let wide = decades(1.0, 2e7);
        assert_eq!((wide.len(), short(wide[7])), (9, "10M".to_owned()));
        assert_eq!(
            (short(20_000.0), short(0.05), short(1.0)),
            ("20k".into(), "0.05".into(), "1".into())
        );
    }
}
