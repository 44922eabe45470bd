//! Figures as an operator reads them: short, with a unit.

use crate::store::overview::Count;

/// A count in at most six columns: `12,345`, `123k`, `1.2M`.
pub fn count(count: i64) -> String {
    match count {
        ..=999 => count.to_string(),
        1_000..=99_999 => format!("{},{:03}", count / 1_000, count % 1_000),
        100_000..=999_999 => format!("{}k", count / 1_000),
        1_000_000..=9_999_999 => format!("{:.1}M", count as f64 / 1e6),
        _ => format!("{}M", count / 1_000_000),
    }
}

/// The same, with a plus if the count reached its bound. A question mark if it found no task before
/// that.
pub fn at_least(one: Count) -> String {
    match one.and_more {
        _ if one.is_unknown() => "?".to_owned(),
        true => format!("{}+", count(one.tasks)),
        false => count(one.tasks),
    }
}

/// The same in a sentence.
pub fn number_of(one: Count) -> String {
    if one.is_unknown() { "an unknown number".to_owned() } else { at_least(one) }
}

/// A dash in place of 0, so that the remaining figures are easy to see.
pub fn or_dash(count: String) -> String {
    if count == "0" { "-".to_owned() } else { count }
}

/// A rate per second in at most six columns.
pub fn rate(per_second: f64) -> String {
    match per_second {
        0.0 => "-".to_owned(),
        ..0.1 => format!("{per_second:.2}"),
        ..100.0 => format!("{per_second:.1}"),
        _ => count(per_second.round() as i64),
    }
}

/// A duration in at most seven columns.
pub fn ms(ms: Option<f64>) -> String {
    let Some(ms) = ms else { return "-".to_owned() };
    let (value, unit) = match ms {
        ..1_000.0 => (ms, "ms"),
        ..60_000.0 => (ms / 1e3, "s"),
        ..3_600_000.0 => (ms / 6e4, "min"),
        ..86_400_000.0 => (ms / 3.6e6, "h"),
        _ => (ms / 8.64e7, "d"),
    };
    if value < 10.0 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

/// The same of whole milliseconds.
pub fn age(age_ms: i64) -> String {
    ms(Some(age_ms.max(0) as f64))
}

/// A share in percent.
pub fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", 100.0 * share))
}

/// The beginning of a text, with a mark where it was cut.
pub fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    text.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
}

/// `1 task`, `2 tasks`.
pub fn tasks(number: i64) -> String {
    format!("{} task{}", count(number), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_fits_its_column() {
        let counts = [0, 999, 1_000, 99_999, 100_000, 1_234_567, 12_345_678].map(count);
        assert_eq!(counts, ["0", "999", "1,000", "99,999", "100k", "1.2M", "12M"]);
        let delays = [0.8, 12.4, 999.0, 4_200.0, 61_000.0, 7_200_000.0, 2e8].map(|n| ms(Some(n)));
        assert_eq!(delays, ["0.8 ms", "12 ms", "999 ms", "4.2 s", "1.0 min", "2.0 h", "2.3 d"]);
        assert_eq!([0.0, 0.033, 3.0, 1_500.0].map(rate), ["-", "0.03", "3.0", "1,500"]);
        assert_eq!(cut("send_email", 6), "send_…");
    }
}
