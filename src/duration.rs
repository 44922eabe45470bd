//! Durations as people write them: `500ms`, `5s`, `5m`, `1h`, `2d`.

use std::time::Duration;

use serde::{Serialize, Serializer};

/// Units, longest first, in milliseconds.
const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Reads one number and one unit. A bare number has no meaning here, and time does not run back.
pub fn parse(text: &str) -> Result<Duration, String> {
    if text.starts_with('-') {
        return Err(format!("must not be negative, got {text}"));
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if unit.is_empty() && digits > 0 {
        return Err(format!("needs a unit: {text}ms, {text}s, {text}m, {text}h or {text}d"));
    }
    let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| factor);
    let (Ok(number), Some(factor)) = (number.parse::<u64>(), factor) else {
        return Err(format!(
            "must be a whole number and a unit (500ms, 5s, 5m, 1h, 2d), got {text}"
        ));
    };
    let milliseconds = number.checked_mul(*factor).filter(|ms| i64::try_from(*ms).is_ok());
    milliseconds.map(Duration::from_millis).ok_or_else(|| format!("is too long: {text}"))
}

/// Writes the two largest units that matter: `2d 3h`, `5m`, `1s 500ms`.
pub fn show(milliseconds: i64) -> String {
    let mut rest = milliseconds.unsigned_abs();
    let mut parts = Vec::new();
    for (name, factor) in UNITS {
        if rest >= factor {
            parts.push(format!("{}{name}", rest / factor));
            rest %= factor;
        }
        if parts.len() == 2 || (parts.len() == 1 && rest < factor / 60) {
            break;
        }
    }
    if parts.is_empty() { "0s".to_owned() } else { parts.join(" ") }
}

/// In whole milliseconds, for the database.
pub fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// As PostgreSQL reads it.
///
/// # Errors
/// The errors of the serializer.
pub fn serialize<S: Serializer>(value: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    value.map(|value| format!("{} milliseconds", milliseconds(value))).serialize(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_a_unit_is_a_duration() {
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(parse("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(parse("1h"), Ok(Duration::from_secs(3_600)));
        assert_eq!(parse("2d"), Ok(Duration::from_secs(172_800)));
        assert_eq!(parse("0s"), Ok(Duration::ZERO));
    }

    #[test]
    fn anything_else_says_what_is_wrong() {
        let refused = |text: &str| parse(text).unwrap_err();
        assert_eq!(refused("5"), "needs a unit: 5ms, 5s, 5m, 5h or 5d");
        assert_eq!(refused("-5s"), "must not be negative, got -5s");
        for wrong in ["", "s", "5 s", "1.5h", "5w", "1h30m", "5S", "ms", "+5s"] {
            assert!(refused(wrong).starts_with("must be a whole number and a unit"), "{wrong}");
        }
        assert!(refused("99999999999999999999d").starts_with("must be a whole"));
        assert_eq!(refused("999999999999999d"), "is too long: 999999999999999d");
    }

    #[test]
    fn what_is_shown_is_short() {
        let shown = [0, 500, 1_500, 300_000, 5_400_000, 604_800_000, 90_061_001].map(show);
        assert_eq!(shown, ["0s", "500ms", "1s 500ms", "5m", "1h 30m", "7d", "1d 1h"]);
    }
}
