//! Periodic tasks: schedules by name. Each deploy may define them again.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::{Value, json};

use crate::db::interval;
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

impl Missed {
    pub(super) fn parts(self) -> (&'static str, u16) {
        match self {
            Self::Skip => ("skip", MISSED_MOST),
            Self::Once => ("once", MISSED_MOST),
            Self::All { max } => ("all", max),
        }
    }
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

impl Overlap {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Skip => "skip",
            Self::Queue => "queue",
        }
    }
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
    pub(super) name: String,
    pub(super) lambda: String,
    pub(super) cron: String,
    pub(super) zone: String,
    pub(super) payload: Option<PayloadText>,
    pub(super) collection: Option<String>,
    pub(super) priority: Priority,
    pub(super) missed: Missed,
    pub(super) grace: Duration,
    pub(super) overlap: Overlap,
    pub(super) starts_at: Option<DateTime<Utc>>,
    pub(super) ends_at: Option<DateTime<Utc>>,
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

impl Periodic {
    /// The schedule as a part of a definition.
    pub(crate) fn to_part(&self) -> Result<Value, (Code, String)> {
        let payload = match self.payload.clone().transpose()? {
            None => Value::Null,
            Some(text) => serde_json::from_str(&text)
                .map_err(|error| (Code::InvalidPayload, error.to_string()))?,
        };
        let (missed, most) = self.missed.parts();
        Ok(json!({
            "name": self.name, "cron": self.cron, "zone": self.zone, "payload": payload,
            "collection": self.collection, "priority": self.priority, "missed": missed,
            "missed_most": most, "grace": interval(self.grace), "overlap": self.overlap.label(),
            "starts_at": self.starts_at, "ends_at": self.ends_at,
        }))
    }
}
