//! A cron schedule: a cron pattern with the time zone whose clocks it is read by, and its ticks.
//!
//! Promises for the two days of the year on which daylight saving begins and ends:
//! - A cron at fixed times, with no `*` in its seconds, minutes and hours, ticks once for each of them. A
//!   time that does not exist, because the clocks go forward over it, ticks at the first instant that
//!   follows; one that exists twice, because they go back, ticks the first time only. So what runs at
//!   `30 2 * * *` runs every day, once; and `30 2,14 * * *` twice.
//! - Any other cron (`*/5 * * * *`) ticks at every instant at which the clocks show a time of it: in the hour
//!   that comes twice both times, and not in the one that is left out. So it goes on evenly.
//!
//! Two times that come to the same instant are one tick. (Croner's own rule takes for fixed what has one
//! time a day only, so that a list of them would lose one or double it; hence it is asked for fixed times
//! without a zone.)

use chrono::{
    DateTime, NaiveDateTime, SubsecRound as _, TimeDelta, TimeZone as _, Timelike as _, Utc,
};
use chrono_tz::Tz;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};
use croner::{Cron, CronDateTime};

/// How far back the search for the latest ticks begins; it doubles until there are enough.
const FIRST_REACH: TimeDelta = TimeDelta::hours(1);

/// Longest cron; `tuskline_core.cron_error` has the same.
const CRON_MAX: usize = 200;

/// Longest that clocks have ever been put forward, and more: a day.
const LONGEST_GAP_MINUTES: i64 = 26 * 60;

/// A cron and its time zone.
#[derive(Debug, Clone)]
pub struct CronSchedule {
    cron: Cron,
    zone: Tz,
    times: Times,
}

/// How a cron says at what times of the day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Times {
    /// One by one.
    Fixed,
    /// With a `*`.
    Even,
}

/// Why a cron schedule has no ticks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// It is no cron.
    #[error("cron '{0}' is not understood: {1}")]
    Cron(String, String),
    /// There is no such time zone, as far as this binary knows.
    #[error("time zone '{0}' is not known; give one like Europe/Berlin")]
    Zone(String),
    /// The search for the next tick came to nothing.
    #[error("the tick after {0} cannot be calculated: {1}")]
    Search(String, String),
}

impl CronSchedule {
    /// Reads a cron of five fields, or of six with seconds first, and the name of a time zone. Croner reads
    /// more: a field without a value and a letter that only looks like ASCII are refused here.
    /// `tuskline_core.cron_error` checks the same in SQL.
    ///
    /// # Errors
    /// [`ScheduleError::Cron`] or [`ScheduleError::Zone`].
    pub fn parse(cron: &str, zone: &str) -> Result<Self, ScheduleError> {
        let parser =
            CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let unread = |why: String| ScheduleError::Cron(cron.to_owned(), why);
        if !cron.is_ascii() || cron.len() > CRON_MAX {
            return Err(unread(format!("it must be ASCII, of at most {CRON_MAX} characters")));
        }
        let read = parser.parse(cron).map_err(|error| unread(error.to_string()))?;
        if !has_values(&read) {
            return Err(unread("each field must name a value".to_owned()));
        }
        let zone = zone.parse().map_err(|_| ScheduleError::Zone(zone.to_owned()))?;
        let times = times_of(&read.pattern.to_string());
        Ok(Self { cron: read, zone, times })
    }

    /// The time zone.
    pub fn zone(&self) -> Tz {
        self.zone
    }

    /// The cron in words, without its zone: `At 02:30.`
    #[cfg(feature = "pages")]
    pub fn words(&self) -> String {
        self.cron.describe()
    }

    /// The first tick after an instant; none: there is none for thousands of years.
    ///
    /// # Errors
    /// [`ScheduleError::Search`].
    pub fn next(&self, after: DateTime<Utc>) -> Result<Option<DateTime<Utc>>, ScheduleError> {
        let from = after.trunc_subsecs(0).with_timezone(&self.zone);
        match self.times {
            Times::Even => match self.search(&from)?.map(|tick| tick.to_utc()) {
                Some(tick) if tick <= after => {
                    Err(ScheduleError::Search(after.to_string(), format!("{tick} is not after it")))
                }
                tick => Ok(tick),
            },
            Times::Fixed => {
                let mut local = from.naive_local();
                // In an hour that comes twice, times that were before it may follow by the clock.
                while let Some(next) = self.search(&local)? {
                    match self.instant_of(next)? {
                        tick if tick > after => return Ok(Some(tick)),
                        _ => local = next,
                    }
                }
                Ok(None)
            }
        }
    }

    fn search<T: CronDateTime + ToString>(&self, after: &T) -> Result<Option<T>, ScheduleError> {
        match self.cron.find_next_occurrence(after, false) {
            Ok(tick) => Ok(Some(tick)),
            Err(CronError::TimeSearchLimitExceeded) => Ok(None),
            Err(error) => Err(ScheduleError::Search(after.to_string(), error.to_string())),
        }
    }

    /// When clocks show a time for the first time, or, if they never do, the first instant after that.
    fn instant_of(&self, local: NaiveDateTime) -> Result<DateTime<Utc>, ScheduleError> {
        let first = |local: NaiveDateTime| self.zone.from_local_datetime(&local).earliest();
        if let Some(instant) = first(local) {
            return Ok(instant.to_utc());
        }
        // Clocks are put at whole minutes.
        let minute = local.with_second(0).unwrap_or(local);
        let after = (1..=LONGEST_GAP_MINUTES)
            .find_map(|minutes| first(minute + TimeDelta::minutes(minutes)))
            .ok_or_else(|| ScheduleError::Search(local.to_string(), "no such time".to_owned()))?;
        Ok(after.to_utc())
    }

    /// Every tick after an instant, up to and with another.
    ///
    /// # Errors
    /// [`ScheduleError::Search`].
    pub fn between(
        &self,
        after: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> Result<Vec<DateTime<Utc>>, ScheduleError> {
        let mut ticks = Vec::new();
        let mut last = after;
        while let Some(tick) = self.next(last)?.filter(|tick| *tick <= until) {
            ticks.push(tick);
            last = tick;
        }
        Ok(ticks)
    }

    /// The latest of these ticks, `most` of them, without a look at all of a year.
    ///
    /// # Errors
    /// [`ScheduleError::Search`].
    pub fn latest(
        &self,
        after: DateTime<Utc>,
        until: DateTime<Utc>,
        most: usize,
    ) -> Result<Vec<DateTime<Utc>>, ScheduleError> {
        if self.next(after)?.is_none_or(|first| first > until) {
            return Ok(Vec::new());
        }
        let mut reach = FIRST_REACH;
        loop {
            let from = after.max(until - reach);
            let mut ticks = self.between(from, until)?;
            if ticks.len() >= most || from == after {
                return Ok(ticks.split_off(ticks.len().saturating_sub(most)));
            }
            reach = reach * 2;
        }
    }
}

/// Whether each field has a value, so that there can be a tick.
fn has_values(cron: &Cron) -> bool {
    let of = &cron.pattern;
    let times = [&of.seconds, &of.minutes, &of.hours, &of.months];
    let weekday = |bits: u8| !of.days_of_week.get_set_values(1 << bits).is_empty();
    times.iter().all(|field| !field.values().is_empty())
        && (!of.days.values().is_empty() || of.days.has_modifiers())
        && (0..8).any(weekday)
}

/// By the fields before the last three, which are of days.
fn times_of(cron: &str) -> Times {
    let fields: Vec<&str> = cron.split_whitespace().collect();
    let of_day = &fields[..fields.len().saturating_sub(3)];
    if of_day.iter().any(|field| field.contains('*')) { Times::Even } else { Times::Fixed }
}
