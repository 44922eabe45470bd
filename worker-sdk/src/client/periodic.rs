//! Periodic tasks: schedules by name. Each deploy may define them again.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use tokio_postgres::types::Type;

use crate::client::transaction::TransactionClient;
use crate::db::Parameters;
use crate::db::json::{JsonText, PayloadText, checked, payload_of};
use crate::error::Error;
use crate::task::Priority;

/// The rule for ticks that no server saw in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missed {
    /// They are left out.
    Skip,
    /// The last of them is fired.
    Once,
    /// All of them are fired, the latest 1 to 1,000 at most.
    All {
        /// How many at most.
        max: u16,
    },
}

/// The rule for a tick while the task of an earlier tick has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overlap {
    /// Another task.
    Allow,
    /// None.
    Skip,
    /// A task that waits for that one.
    Queue,
}

/// The answer of [`Client::define_periodic`](crate::Client::define_periodic).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Defined {
    /// A new schedule.
    Defined,
    /// It was there, with other settings.
    Changed,
    /// It was there, and is as it was.
    Unchanged,
}

/// A schedule: a task of a lambda at each tick of a cron, by the clocks of a time zone.
///
/// # Example
/// ```no_run
/// # use tuskline_sdk::{Client, Error, Missed, Overlap, Periodic};
/// # async fn deploy(client: &Client) -> Result<(), Error> {
/// let nightly = Periodic::new("nightly", "report", "30 2 * * *")
///     .zone("Europe/Berlin")
///     .payload(&serde_json::json!({"kind": "daily"}))
///     .missed(Missed::Once)
///     .overlap(Overlap::Skip);
/// client.define_periodic(&nightly).await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Periodic {
    name: String,
    lambda: String,
    cron: String,
    zone: String,
    payload: Option<PayloadText>,
    collection: Option<String>,
    priority: Priority,
    missed: Missed,
    grace: Duration,
    overlap: Overlap,
    starts_at: Option<DateTime<Utc>>,
    ends_at: Option<DateTime<Utc>>,
}

/// The default of `Missed::All`; `tuskline.define_periodic` has the same.
const MISSED_MOST: u16 = 100;

impl Periodic {
    /// A schedule named `name`: tasks of `lambda` at the ticks of `cron`, five fields or six with seconds
    /// first. In UTC, without payload, priority normal, missed ticks [`Missed::Once`] after a grace of a
    /// minute, [`Overlap::Allow`].
    pub fn new(name: &str, lambda: &str, cron: &str) -> Self {
        Self {
            name: name.into(),
            lambda: lambda.into(),
            cron: cron.into(),
            zone: "UTC".into(),
            payload: None,
            collection: None,
            priority: Priority::Normal,
            missed: Missed::Once,
            grace: Duration::from_secs(60),
            overlap: Overlap::Allow,
            starts_at: None,
            ends_at: None,
        }
    }

    /// IANA name of the time zone whose clocks the cron is read by.
    #[must_use]
    pub fn zone(mut self, zone: &str) -> Self {
        self.zone = zone.into();
        self
    }

    /// Payload of each task.
    #[must_use]
    pub fn payload(mut self, payload: &impl Serialize) -> Self {
        self.payload = Some(payload_of(payload));
        self
    }

    /// Collection of each task.
    #[must_use]
    pub fn collection(mut self, collection: &str) -> Self {
        self.collection = Some(collection.into());
        self
    }

    /// Priority of each task.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// The rule for ticks that no server saw in time.
    #[must_use]
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    /// How late a tick may be fired before it counts as missed: 1 s to 1 h.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// The rule for a tick while the task of an earlier tick has not ended.
    #[must_use]
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// No tick before.
    #[must_use]
    pub fn starts_at(mut self, at: DateTime<Utc>) -> Self {
        self.starts_at = Some(at);
        self
    }

    /// No tick then or later.
    #[must_use]
    pub fn ends_at(mut self, at: DateTime<Utc>) -> Self {
        self.ends_at = Some(at);
        self
    }
}

const DEFINE: &str = "select tuskline.define_periodic($1, $2, $3, $4, $5, $6, $7, $8, $9, \
                      make_interval(secs => $10), $11, $12, $13)";

impl TransactionClient<'_> {
    /// Defines a schedule when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::define_periodic`](crate::Client::define_periodic).
    pub async fn define_periodic(&mut self, periodic: &Periodic) -> Result<Defined, Error> {
        let (missed, most) = match periodic.missed {
            Missed::Skip => ("skip", MISSED_MOST),
            Missed::Once => ("once", MISSED_MOST),
            Missed::All { max } => ("all", max),
        };
        let overlap = match periodic.overlap {
            Overlap::Allow => "allow",
            Overlap::Skip => "skip",
            Overlap::Queue => "queue",
        };
        let payload = periodic.payload.as_ref().map(checked).transpose()?.map(JsonText);
        let parameters: &Parameters<'_> = &[
            (&periodic.name, Type::TEXT),
            (&periodic.lambda, Type::TEXT),
            (&periodic.cron, Type::TEXT),
            (&payload, Type::JSON),
            (&periodic.zone, Type::TEXT),
            (&periodic.collection, Type::TEXT),
            (&periodic.priority.as_str(), Type::TEXT),
            (&missed, Type::TEXT),
            (&i32::from(most), Type::INT4),
            (&periodic.grace.as_secs_f64(), Type::FLOAT8),
            (&overlap, Type::TEXT),
            (&periodic.starts_at, Type::TIMESTAMPTZ),
            (&periodic.ends_at, Type::TIMESTAMPTZ),
        ];
        Ok(match self.one(DEFINE, parameters).await?.get(0) {
            "defined" => Defined::Defined,
            "changed" => Defined::Changed,
            _ => Defined::Unchanged,
        })
    }

    /// Pauses a schedule when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::pause_periodic`](crate::Client::pause_periodic).
    pub async fn pause_periodic(
        &mut self,
        name: &str,
        reason: Option<&str>,
    ) -> Result<bool, Error> {
        self.about_periodic("select tuskline.pause_periodic($1, $2)", name, reason).await
    }

    /// Resumes a schedule when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::resume_periodic`](crate::Client::resume_periodic).
    pub async fn resume_periodic(
        &mut self,
        name: &str,
        reason: Option<&str>,
    ) -> Result<bool, Error> {
        self.about_periodic("select tuskline.resume_periodic($1, $2)", name, reason).await
    }

    /// Deletes a schedule when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::drop_periodic`](crate::Client::drop_periodic).
    pub async fn drop_periodic(&mut self, name: &str, reason: Option<&str>) -> Result<bool, Error> {
        self.about_periodic("select tuskline.drop_periodic($1, $2)", name, reason).await
    }

    async fn about_periodic(
        &mut self,
        sql: &str,
        name: &str,
        reason: Option<&str>,
    ) -> Result<bool, Error> {
        Ok(self.one(sql, &[(&name, Type::TEXT), (&reason, Type::TEXT)]).await?.get(0))
    }
}
