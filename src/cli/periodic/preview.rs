//! The next ticks of a schedule, by the clocks of its zone and by those of all the world.

use anyhow::Result;
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Value, json};

use crate::cli::output;
use crate::periodic::{CronSchedule, ScheduleError};

/// How many ticks are foreseen.
const FORESEEN: usize = 10;

/// The next ticks after an instant, and before the schedule's end.
pub fn ticks(
    cron_schedule: &CronSchedule,
    after: DateTime<Utc>,
    ends: Option<DateTime<Utc>>,
) -> Result<Vec<DateTime<Utc>>, ScheduleError> {
    let mut ticks = Vec::new();
    let mut last = after;
    while ticks.len() < FORESEEN {
        let next = cron_schedule.next(last)?.filter(|tick| ends.is_none_or(|ends| *tick < ends));
        let Some(tick) = next else { break };
        ticks.push(tick);
        last = tick;
    }
    Ok(ticks)
}

pub fn json(cron_schedule: &CronSchedule, ticks: &[DateTime<Utc>]) -> Value {
    let tick = |tick: &DateTime<Utc>| {
        json!({
            "utc": tick.to_rfc3339_opts(SecondsFormat::Secs, true),
            "local": tick.with_timezone(&cron_schedule.zone()).to_rfc3339(),
        })
    };
    ticks.iter().map(tick).collect()
}

pub fn put(cron_schedule: &CronSchedule, ticks: &[DateTime<Utc>]) -> std::io::Result<()> {
    let row = |tick: &DateTime<Utc>| {
        let local = tick.with_timezone(&cron_schedule.zone());
        vec![
            local.format("%a %Y-%m-%d %H:%M:%S %Z").to_string(),
            tick.to_rfc3339_opts(SecondsFormat::Secs, true),
        ]
    };
    output::put_table(&["local", "utc"], ticks.iter().map(row).collect(), "it has no tick ahead")
}
