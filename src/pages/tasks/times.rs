//! A time as people type it.

use chrono::{DateTime, Days, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Utc};

use crate::duration;

/// The last `14:30` in UTC, an absolute time, or so long ago.
pub fn time(text: &str, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    if let Ok(ago) = duration::parse(text) {
        return now.checked_sub_signed(TimeDelta::from_std(ago).ok()?);
    }
    if let Ok(at) = DateTime::parse_from_rfc3339(text) {
        return Some(at.to_utc());
    }
    for format in ["%Y-%m-%dT%H:%MZ", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"] {
        if let Ok(at) = NaiveDateTime::parse_from_str(text, format) {
            return Some(at.and_utc());
        }
    }
    if let Ok(day) = NaiveDate::parse_from_str(text, "%Y-%m-%d") {
        return Some(day.and_time(NaiveTime::MIN).and_utc());
    }
    let clock =
        ["%H:%M", "%H:%M:%S"].iter().find_map(|f| NaiveTime::parse_from_str(text, f).ok())?;
    let today = now.date_naive().and_time(clock).and_utc();
    if today <= now { Some(today) } else { today.checked_sub_days(Days::new(1)) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_time_is_of_today_absolute_or_ago() {
        let now = "2026-11-27T14:00:00Z".parse().unwrap();
        let time = |text| super::time(text, now).map(|at| at.format("%d %H:%M:%S").to_string());
        for (text, at) in [
            ("13:30", "27 13:30:00"),
            ("14:30", "26 14:30:00"),
            ("2026-11-25T14:30Z", "25 14:30:00"),
            ("2026-11-25T14:30:05+01:00", "25 13:30:05"),
            ("2026-11-25", "25 00:00:00"),
            ("90m", "27 12:30:00"),
        ] {
            assert_eq!(time(text).as_deref(), Some(at), "{text}");
        }
        for wrong in
            ["25:00", "yesterday", "-5m", "99999999999d", "9999999999999999d", "2026-13-01"]
        {
            assert_eq!(time(wrong), None, "{wrong}");
        }
    }
}
