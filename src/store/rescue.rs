//! `rescue`: ends the executors that fell silent, gives back what ended ones held, and tells who lives.

use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::rows::Parameters;

/// Executors that the caller has seen silent for a whole lease each, on a clock of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Silent {
    /// In which life of the server; a crash or a promotion begins another.
    pub booted_at: Option<DateTime<Utc>>,
    /// Their numbers.
    pub executors: Vec<i64>,
    /// The number of beats that each was last seen with, and is ended at.
    pub beats: Vec<i64>,
}

/// State of an executor that has not ended, at one reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pulse {
    /// Its number.
    pub executor: i64,
    /// Its heartbeats so far.
    pub beats: i64,
    /// How long it must be silent before it may be ended.
    pub lease: Duration,
    /// How long it has been silent at least, by what store consumers have noted.
    pub silent: Duration,
}

/// Result of one `rescue`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rescued {
    /// Leases of ended executors looked at.
    pub leases: u32,
    /// Tasks back in their queues.
    pub tasks: u32,
    /// Tasks that are dead, having been part of too many crashes.
    pub buried: u32,
    /// Which life of the server this was; none: its queues are not rebuilt yet.
    pub booted_at: Option<DateTime<Utc>>,
    /// Every executor that has not ended.
    pub pulses: Vec<Pulse>,
}

/// Ends those of the `silent` that have beaten no more, and puts back the tasks of up to `limit`
/// leases of ended executors.
///
/// # Errors
/// The connection's or the server's.
pub async fn rescue(
    client: &Client,
    limit: u32,
    silent: &Silent,
    installation: &str,
) -> Result<Rescued, Error> {
    let sql = "select leases, rescued, buried, booted_at, executors, beats, lease_ms, silent_ms \
        from tuskline.rescue($1, $2, $3, $4, $5)";
    let parameters: &Parameters<'_> = &[
        (&limit.cast_signed(), Type::INT4),
        (&silent.executors, Type::INT8_ARRAY),
        (&silent.beats, Type::INT8_ARRAY),
        (&silent.booted_at, Type::TIMESTAMPTZ),
        (&installation, Type::TEXT),
    ];
    let row = client.query_typed_one(sql, parameters).await?;
    let count = |at: usize| row.get::<_, i32>(at).unsigned_abs();
    let list = |at: usize| row.get::<_, Option<Vec<i64>>>(at).unwrap_or_default();
    let span = |ms: i64| Duration::from_millis(ms.max(0).unsigned_abs());
    let pulses = list(4).into_iter().zip(list(5)).zip(list(6)).zip(list(7));
    let pulse = |(((executor, beats), lease_ms), silent_ms)| {
        let (lease, silent) = (span(lease_ms), span(silent_ms));
        Pulse { executor, beats, lease, silent }
    };
    Ok(Rescued {
        leases: count(0),
        tasks: count(1),
        buried: count(2),
        booted_at: row.get(3),
        pulses: pulses.map(pulse).collect(),
    })
}

/// Notes for how long the `silent` have been so, in milliseconds beside them.
///
/// # Errors
/// The connection's or the server's.
pub async fn note_silence(
    client: &Client,
    silent: &Silent,
    silent_ms: &[i64],
) -> Result<(), Error> {
    let parameters: &Parameters<'_> = &[
        (&silent.executors, Type::INT8_ARRAY),
        (&silent.beats, Type::INT8_ARRAY),
        (&silent_ms, Type::INT8_ARRAY),
        (&silent.booted_at, Type::TIMESTAMPTZ),
    ];
    client.query_typed("select tuskline.note_silence($1, $2, $3, $4)", parameters).await.map(drop)
}
