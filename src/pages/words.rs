//! Figures as a person reads them: an exact count is written out, an estimate is rounded and says
//! `about`, a count that reached its bound has a plus, and what nobody knows is `?`.

use chrono::{DateTime, TimeDelta, Utc};

use crate::store::overview::Count;

/// Nothing to measure.
pub const NOTHING: &str = "–";

/// `1,204`.
pub fn count(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let first = digits.len() % 3;
    let each = digits.char_indices().map(|(at, one)| match at > 0 && at % 3 == first {
        true => format!(",{one}"),
        false => one.to_string(),
    });
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", each.collect::<String>())
}

/// `1,000+`; `?` if the count reached its bound before it found a task.
pub fn at_least(one: Count) -> String {
    match (one.tasks, one.and_more) {
        (0, true) => "?".to_owned(),
        (tasks, true) => format!("{}+", count(tasks)),
        (tasks, false) => count(tasks),
    }
}

/// An estimate, to three digits: `about 4,310`; `0` is `0`.
pub fn about(number: i64) -> String {
    if number == 0 {
        return "0".to_owned();
    }
    let step = 10_i64.pow(number.max(1).ilog10().saturating_sub(2));
    format!("about {}", count(number / step * step))
}

/// `18 ms`, `7.9 s`, `2 min 07 s`, `3 h 20 min`, `4 d`.
pub fn span(ms: i64) -> String {
    match ms {
        ..=999 => format!("{} ms", ms.max(0)),
        1_000..=59_999 => format!("{:.1} s", ms as f64 / 1e3),
        60_000..=3_599_999 => format!("{} min {:02} s", ms / 60_000, ms / 1_000 % 60),
        3_600_000..=86_399_999 => format!("{} h {:02} min", ms / 3_600_000, ms / 60_000 % 60),
        _ => format!("{} d", ms / 86_400_000),
    }
}

/// [`span`], or that there is nothing to measure.
pub fn span_of(ms: Option<i64>) -> String {
    ms.map_or_else(|| NOTHING.to_owned(), span)
}

/// `13 min ago`, `in 5 min`.
pub fn ago(age: TimeDelta) -> String {
    let words = match age.num_seconds().abs() {
        second @ ..=59 => format!("{second} s"),
        second @ 60..=3_599 => format!("{} min", second / 60),
        second @ 3_600..=86_399 => format!("{} h", second / 3_600),
        second => format!("{} d", second / 86_400),
    };
    if age < TimeDelta::zero() { format!("in {words}") } else { format!("{words} ago") }
}

/// A rate per second: `182.6`, `0.02`; `0` only where nothing happened.
pub fn rate(per_second: f64) -> String {
    match per_second {
        0.0 => "0".to_owned(),
        ..0.1 => format!("{per_second:.2}"),
        _ => format!("{per_second:.1}"),
    }
}

/// `84.5 %`.
pub fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| NOTHING.to_owned(), |share| format!("{:.1} %", 100.0 * share))
}

/// The absolute time behind a relative one.
pub fn moment(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%d %H:%M:%S%.3f UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_says_how_well_it_is_known() {
        let more = |tasks, and_more| at_least(Count { tasks, and_more });
        assert_eq!(
            [count(0), count(999), count(1_204_316), count(-1_000)],
            ["0", "999", "1,204,316", "-1,000"]
        );
        assert_eq!([more(12, false), more(1_000, true), more(0, true)], ["12", "1,000+", "?"]);
        assert_eq!(
            [about(0), about(7), about(4_318), about(1_234_567)],
            ["0", "about 7", "about 4,310", "about 1,230,000"]
        );
        assert_eq!([rate(0.0), rate(0.004), rate(182.62)], ["0", "0.00", "182.6"]);
        assert_eq!([percent(Some(0.845)), percent(None)], ["84.5 %", "–"]);
    }

    #[test]
    fn a_duration_has_two_units_at_most() {
        let spans = [-3, 18, 7_900, 127_000, 12_000_000, 400_000_000].map(span);
        assert_eq!(spans, ["0 ms", "18 ms", "7.9 s", "2 min 07 s", "3 h 20 min", "4 d"]);
        assert_eq!(ago(TimeDelta::seconds(800)), "13 min ago");
        assert_eq!(ago(TimeDelta::seconds(-300)), "in 5 min");
    }
}
