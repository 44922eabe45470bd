//! The periodic role: fires the ticks of schedules, each once, as tasks.
//!
//! Promises: a tick becomes a task within milliseconds of its time, whatever the number of servers; a change
//! of a schedule counts as soon as it is committed; what was missed while no server ran is made up for as the
//! schedule says; one that cannot be read or fired stops none but itself. No server leads: all of them calculate, and the
//! database takes each tick from one.
//! Must never: decide by this machine's clock what is due.

mod cron;
#[cfg(test)]
mod tests;

use std::slice;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tuskline_sdk::Address;

use crate::config::PeriodicOptions;
use crate::recovery::{Recovery, RoleHealth};
use crate::session::{Deadlines, Lost, Session};
use crate::store::periodic::{self as store, Due, Fire, Fired, PERIODIC_CHANNEL, Schedule};
pub use cron::{CronSchedule, ScheduleError};

const ROLE: &str = "periodic";

/// Longest wait for our own notification before the channel counts as deaf.
const ECHO_DEADLINE: Duration = Duration::from_secs(1);

/// Fires ticks until `shutdown`, through every loss of the database.
pub async fn run(
    address: impl Into<Address>,
    options: PeriodicOptions,
    health: RoleHealth,
    shutdown: CancellationToken,
) {
    let address = address.into();
    let mut recovery = Recovery::new(ROLE, health);
    loop {
        let work = work(&address, &options, &mut recovery);
        let Some(Err(lost)) = shutdown.run_until_cancelled(work).await else { break };
        shutdown.run_until_cancelled(sleep(recovery.failed(&lost))).await;
    }
    tracing::debug!("periodic stopped");
}

async fn work(
    address: &Address,
    options: &PeriodicOptions,
    recovery: &mut Recovery,
) -> Result<std::convert::Infallible, Lost> {
    let silent = |_| Lost::Silent(options.lap_deadline);
    let periodic = Periodic::connect(address, options).await?;
    timeout(options.lap_deadline, periodic.calculate_all()).await.map_err(silent)??;
    loop {
        let nap = timeout(options.lap_deadline, periodic.lap()).await.map_err(silent)??;
        recovery.worked();
        // Whether it was the time or a notification, the next lap looks at everything.
        let _ = timeout(nap, periodic.session.notified()).await;
    }
}

/// One session, for the verbs and to listen.
struct Periodic<'o> {
    options: &'o PeriodicOptions,
    session: Session,
    hears: bool,
}

/// Result of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dealt {
    /// There was nothing to do, or nothing that we can do.
    Nothing,
    /// All of it is done; there may be more.
    All,
    /// Another server has some of it in hand.
    Busy,
}

impl<'o> Periodic<'o> {
    async fn connect(address: &Address, options: &'o PeriodicOptions) -> Result<Self, Lost> {
        let session = Session::listening(address, ROLE, PERIODIC_CHANNEL).await?;
        let other = Session::open(address, ROLE, Deadlines::USUAL).await?;
        let hears = session.hears(&other, PERIODIC_CHANNEL, ECHO_DEADLINE).await?;
        if !hears {
            session.stop_listening().await?;
            tracing::warn!("notifications do not arrive (a transaction pooler?), polling instead");
        }
        Ok(Self { options, session, hears })
    }

    /// Ticks that an earlier server calculated may be out of date: time zones change.
    async fn calculate_all(&self) -> Result<(), Lost> {
        let mut after = String::new();
        loop {
            let due = self.due(Some(&after)).await?;
            self.deal_with(&due).await?;
            match due.schedules.into_iter().last() {
                Some(last) => after = last.name,
                None => return Ok(()),
            }
        }
    }

    /// Fires everything that is due; says how long to sleep.
    async fn lap(&self) -> Result<Duration, Lost> {
        loop {
            let due = self.due(None).await?;
            match self.deal_with(&due).await? {
                Dealt::All => {}
                Dealt::Busy => return Ok(self.busy_nap()),
                Dealt::Nothing => return Ok(self.nap_until(due.next_due)),
            }
        }
    }

    async fn due(&self, after: Option<&str>) -> Result<Due, Lost> {
        let PeriodicOptions { batch, installation, .. } = self.options;
        Ok(store::due_periodic(self.session.client(), *batch, after, installation).await?)
    }

    async fn deal_with(&self, due: &Due) -> Result<Dealt, Lost> {
        let mut fires = Vec::new();
        for schedule in &due.schedules {
            match owed(schedule, due.until, self.options.most_ticks) {
                Ok(fire) => fires.push(fire),
                Err(error) if schedule.last_error.as_ref() == Some(&error.to_string()) => {}
                Err(error) => {
                    self.note(&schedule.name, schedule.version, &error.to_string()).await?;
                }
            }
        }
        if fires.is_empty() {
            return Ok(Dealt::Nothing);
        }
        let fired = self.fire(&fires).await?;
        Ok(match fired {
            Fired { lost: 1.., .. } => Dealt::Busy,
            Fired { refused, .. } if refused as usize == fires.len() => Dealt::Nothing,
            _ => Dealt::All,
        })
    }

    /// All of a batch in one transaction; if the server will not, each by itself, so that only the culprit
    /// stays behind.
    async fn fire(&self, fires: &[Fire]) -> Result<Fired, Lost> {
        let fired =
            store::fire_periodic(self.session.client(), fires, &self.options.installation).await;
        match fired.as_ref().map_err(|error| error.as_db_error()) {
            Err(Some(_)) if fires.len() > 1 => {
                let mut all = Fired::default();
                for fire in fires {
                    all += Box::pin(self.fire(slice::from_ref(fire))).await?;
                }
                Ok(all)
            }
            Err(Some(refusal)) => {
                for fire in fires {
                    self.note(&fire.name, fire.version, refusal.message()).await?;
                }
                Ok(Fired { refused: 1, ..Fired::default() })
            }
            _ => Ok(fired?),
        }
    }

    async fn note(&self, name: &str, version: i64, error: &str) -> Result<(), Lost> {
        if store::note_schedule_error(self.session.client(), name, version, error).await? {
            tracing::warn!(
                schedule = name,
                error,
                "the ticks of a schedule cannot be calculated or fired"
            );
        }
        Ok(())
    }

    fn nap_until(&self, next_due: Option<Duration>) -> Duration {
        let longest =
            if self.hears { self.options.longest_nap } else { self.options.longest_deaf_nap };
        match next_due {
            Some(Duration::ZERO) => self.busy_nap(),
            Some(due) => due.min(longest),
            None => longest,
        }
    }

    fn busy_nap(&self) -> Duration {
        self.options.busy_nap.mul_f64(1.0 + fastrand::f64())
    }
}

/// The ticks of a schedule up to `until`: those that are on time, and the latest of those that are not. At
/// most `most_ticks`, and then no farther than the last of them.
fn owed(
    schedule: &Schedule,
    until: DateTime<Utc>,
    most_ticks: usize,
) -> Result<Fire, ScheduleError> {
    let cron_schedule = CronSchedule::parse(&schedule.cron, &schedule.zone)?;
    let ended = |tick: &DateTime<Utc>| schedule.ends.is_some_and(|ends| *tick >= ends);
    let missed_until = schedule.on_time - TimeDelta::microseconds(1);
    let mut ticks = cron_schedule.latest(schedule.since, missed_until, schedule.max_ticks)?;
    ticks.extend(cron_schedule.between(schedule.since.max(missed_until), until)?);
    ticks.retain(|tick| !ended(tick));
    ticks.truncate(most_ticks);
    let until = if ticks.len() < most_ticks { until } else { ticks[most_ticks - 1] };
    // A schedule that has not begun yet sleeps until it does.
    let next = cron_schedule.next(until.max(schedule.since))?.filter(|tick| !ended(tick));
    Ok(Fire { name: schedule.name.clone(), version: schedule.version, until, ticks, next })
}
