//! Periodic tasks: schedules by name. Each deploy may define them again.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::client::setters::setters;
use crate::client::verbs::{instant, part, span};
use crate::db::json::{PayloadText, payload_of};
use crate::error::Code;
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Serialize)]
#[must_use]
pub struct Periodic {
    pub(super) name: String,
    #[serde(skip)]
    pub(super) lambda: String,
    cron: String,
    zone: Option<String>,
    #[serde(skip)]
    pub(super) payload: Option<PayloadText>,
    collection: Option<String>,
    priority: Option<Priority>,
    missed: Option<&'static str>,
    missed_most: Option<u16>,
    #[serde(serialize_with = "span")]
    grace: Option<Duration>,
    overlap: Option<Overlap>,
    #[serde(serialize_with = "instant")]
    starts_at: Option<DateTime<Utc>>,
    #[serde(serialize_with = "instant")]
    ends_at: Option<DateTime<Utc>>,
}

impl Periodic {
    /// A schedule named `name`: tasks of `lambda` at the ticks of `cron`, five fields or six with seconds
    /// first. In UTC, without payload, priority normal, missed ticks [`Missed::Once`] after a grace of a
    /// minute, [`Overlap::Allow`].
    pub fn new(name: &str, lambda: &str, cron: &str) -> Self {
        Self {
            name: name.into(),
            lambda: lambda.into(),
            cron: cron.into(),
            zone: None,
            payload: None,
            collection: None,
            priority: None,
            missed: None,
            missed_most: None,
            grace: None,
            overlap: None,
            starts_at: None,
            ends_at: None,
        }
    }

    setters! {
        /// IANA name of the time zone whose clocks the cron is read by.
        zone(zone: &str) = Some(zone.into());

        /// Payload of each task.
        payload(payload: &impl Serialize) = Some(payload_of(payload));

        /// Collection of each task.
        collection(collection: &str) = Some(collection.into());

        /// Priority of each task.
        priority(priority: Priority) = Some(priority);
    }

    /// The rule for ticks that no server saw in time.
    pub fn missed(mut self, missed: Missed) -> Self {
        (self.missed, self.missed_most) = match missed {
            Missed::Skip => (Some("skip"), None),
            Missed::Once => (Some("once"), None),
            Missed::All { max } => (Some("all"), Some(max)),
        };
        self
    }

    setters! {
        /// How late a tick may be fired before it counts as missed: 1 s to 1 h.
        grace(grace: Duration) = Some(grace);

        /// The rule for a tick while the task of an earlier tick has not ended.
        overlap(overlap: Overlap) = Some(overlap);

        /// No tick before.
        starts_at(at: DateTime<Utc>) = Some(at);

        /// No tick then or later.
        ends_at(at: DateTime<Utc>) = Some(at);
    }

    /// The schedule as a part of a definition.
    pub(crate) fn to_part(&self) -> Result<Value, (Code, String)> {
        let mut fields = part(self);
        if let Some(text) = self.payload.clone().transpose()? {
            let payload = serde_json::from_str(&text);
            fields["payload"] =
                payload.map_err(|error| (Code::InvalidPayload, error.to_string()))?;
        }
        Ok(fields)
    }
}
