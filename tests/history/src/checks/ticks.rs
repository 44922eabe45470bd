//! Ticks of schedules: each becomes one task. The check counts the ticks, in seconds, from the
//! injector's record of its schedules. It reads no cron and knows no time zone, so it can judge
//! only crons of seconds.

use std::collections::HashMap;

use serde::Serialize;

use super::acceptance::tasks_of_ticks;
use crate::history::{Fired, History, Schedule};
use crate::{Invariant, Percentiles};

const SECOND_US: i64 = 1_000_000;

/// The outcomes of the ticks of schedules.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Ticks {
    /// Schedules.
    pub schedules: u64,
    /// Their ticks that had to become a task.
    pub owed: u64,
    /// The number of ticks with more than one task.
    pub doubled: u64,
    /// The number of ticks without a task.
    pub missing: u64,
    /// The number of tasks that the policy for missed ticks made, because no server had been there
    /// in time.
    pub made_up_for: u64,
    /// From a tick to when it was dealt with, by the database's clock.
    pub late: Percentiles,
}

/// I26.
pub(crate) fn each_tick_has_one_task(history: &History) -> (Invariant, Ticks) {
    let statement =
        "each tick that is owed has one task, of its lambda and on record; no other tick has any";
    let mut check = Invariant::new("I26", "one task for each tick", statement);
    let mut found = Ticks { schedules: history.schedules.len() as u64, ..Ticks::default() };
    let mut tasks = tasks_of_ticks(history);
    let records: HashMap<(u32, i64), &Fired> =
        history.fired.iter().map(|fired| ((fired.name, fired.tick_us), fired)).collect();
    for schedule in &history.schedules {
        let Some(period_us) = period_us(&schedule.periodic.cron) else {
            check.violated(None, || format!("no cron library can read {}", schedule.periodic.cron));
            continue;
        };
        for tick_us in instants(period_us, &schedule.periodic.owed) {
            let key = (schedule.name, tick_us);
            let made = tasks.remove(&key).unwrap_or_default();
            found.owed += 1;
            found.missing += u64::from(made.is_empty());
            found.doubled += u64::from(made.len() > 1);
            let wrong = wrong(history, schedule, &made, records.get(&key).copied());
            let task = made.first().and_then(|task| history.id(*task));
            check.expect(wrong.is_none(), task, || say(schedule, tick_us, &wrong));
        }
        for tick_us in instants(period_us, &schedule.periodic.open) {
            let made = tasks.remove(&(schedule.name, tick_us)).unwrap_or_default();
            if let [first, _, ..] = made[..] {
                let wrong = Some(format!("has {} tasks", made.len()));
                check.violated(history.id(first), || say(schedule, tick_us, &wrong));
            }
        }
    }
    for ((name, tick_us), tasks) in tasks {
        let (name, second) = (history.words.key(name), tick_us / SECOND_US);
        check.violated(history.id(tasks[0]), || {
            format!("made for a tick of {name} at second {second}, which it does not have")
        });
    }
    found.made_up_for = made_up_for(history);
    found.late = Percentiles::of(history.fired.iter().map(late_ms).collect());
    (check.done(), found)
}

/// A cron that ticks every so many seconds of the minute. In every zone of today these are the same instants.
fn period_us(cron: &str) -> Option<i64> {
    let seconds = cron.strip_suffix(" * * * * *")?;
    let period = match seconds {
        "*" => 1,
        _ => seconds.strip_prefix("*/")?.parse().ok()?,
    };
    (period > 0 && 60 % period == 0).then_some(period * SECOND_US)
}

/// The multiples of the period in these spans.
fn instants(period_us: i64, spans: &[(i64, i64)]) -> impl Iterator<Item = i64> {
    spans.iter().flat_map(move |(from, to)| {
        let after_last = |moment: i64| (moment - 1).div_euclid(period_us) + 1;
        (after_last(*from)..after_last(*to)).map(move |n| n * period_us)
    })
}

fn wrong(
    history: &History,
    schedule: &Schedule,
    made: &[u32],
    record: Option<&Fired>,
) -> Option<String> {
    let &[task] = made else {
        let why = record.and_then(|fired| fired.reason.as_deref());
        return Some(match made.len() {
            0 => format!("has no task ({})", why.unwrap_or("and no record says why")),
            more => format!("has {more} tasks"),
        });
    };
    let lambda = history.row(task).map(|row| row.lambda);
    if lambda != Some(schedule.lambda) {
        let other = lambda.map_or("nobody", |lambda| history.words.key(lambda).as_str());
        return Some(format!("has a task of {other}, not of {}", schedule.periodic.lambda));
    }
    let recorded = record.and_then(|fired| fired.task);
    (recorded != Some(task)).then(|| {
        let other = recorded.map(|task| *history.tasks.key(task));
        format!("has a task, and its record names {other:?}")
    })
}

fn say(schedule: &Schedule, tick_us: i64, wrong: &Option<String>) -> String {
    let (name, wrong) = (&schedule.periodic.name, wrong.as_deref().unwrap_or_default());
    format!("the tick of {name} at second {} {wrong}", tick_us / SECOND_US)
}

#[allow(clippy::cast_precision_loss, reason = "milliseconds")]
fn made_up_for(history: &History) -> u64 {
    let schedules = history.schedules.iter();
    let graces: HashMap<u32, f64> =
        schedules.map(|one| (one.name, one.periodic.grace_ms as f64)).collect();
    let is_missed =
        |fired: &&Fired| graces.get(&fired.name).is_some_and(|grace_ms| late_ms(fired) > *grace_ms);
    history.fired.iter().filter(|fired| fired.task.is_some()).filter(is_missed).count() as u64
}

#[allow(clippy::cast_precision_loss, reason = "spans, far below 2^53 us")]
fn late_ms(fired: &Fired) -> f64 {
    (fired.fired_us - fired.tick_us).max(0) as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_counted_in_spans_without_their_ends() {
        let counted = |period: i64, spans: &[(i64, i64)]| {
            instants(period, spans).map(|us| us / SECOND_US).collect::<Vec<_>>()
        };
        let second = |s: i64| s * SECOND_US;
        assert_eq!(counted(second(1), &[(second(3), second(5))]), [3, 4]);
        assert_eq!(counted(second(1), &[(second(3) + 1, second(5) + 1)]), [4, 5]);
        assert_eq!(
            counted(second(5), &[(second(3), second(10)), (second(10), second(16))]),
            [5, 10, 15]
        );
        assert!(counted(second(1), &[(second(5), second(5))]).is_empty());
    }

    #[test]
    fn only_what_can_be_counted_is() {
        assert_eq!(period_us("* * * * * *"), Some(SECOND_US));
        assert_eq!(period_us("*/5 * * * * *"), Some(5 * SECOND_US));
        for other in ["*/7 * * * * *", "*/0 * * * * *", "0 * * * * *", "* * * * *", "*/2 * * * 1 *"]
        {
            assert_eq!(period_us(other), None, "{other}");
        }
    }
}
