//! The verbs of periodic tasks, for the periodic role.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use tokio_postgres::types::{FromSqlOwned, Type};
use tokio_postgres::{Client, Error, Row};

use super::rows::{Parameters, value};

/// Channel on which servers hear that a schedule has changed.
pub const PERIODIC_CHANNEL: &str = "tuskline_periodic";

/// A schedule whose ticks are to be calculated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Its name.
    pub name: String,
    /// As it is now; another one means that it has changed, or was fired.
    pub version: i64,
    /// The cron, as its author wrote it.
    pub cron: String,
    /// Name of its time zone.
    pub zone: String,
    /// Ticks after this are owed.
    pub since: DateTime<Utc>,
    /// Ticks before this are missed.
    pub on_time: DateTime<Utc>,
    /// How many of the missed are wanted at most, the latest.
    pub max_ticks: usize,
    /// Ticks then or later are none.
    pub ends: Option<DateTime<Utc>>,
    /// Error that keeps a server from calculating them.
    pub last_error: Option<String>,
}

/// Result of one `due_periodic`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// Now: ticks up to here are wanted.
    pub until: DateTime<Utc>,
    /// How long until a schedule is due again; none: that is not to be foreseen.
    pub next_due: Option<Duration>,
    /// Schedules to calculate or fire.
    pub schedules: Vec<Schedule>,
}

/// Up to `limit` schedules that are due, or those after a name, due or not.
///
/// # Errors
/// The connection's or the server's.
pub async fn due_periodic(
    client: &Client,
    limit: u32,
    after: Option<&str>,
    installation: &str,
) -> Result<Due, Error> {
    let sql = "select until, next_due_ms, names, versions, crons, zones, sinces, on_times, max_ticks, ends, troubles \
        from tuskline.due_periodic($1, $2, $3)";
    let parameters: &Parameters<'_> =
        &[(&limit.cast_signed(), Type::INT4), (&after, Type::TEXT), (&installation, Type::TEXT)];
    let row = client.query_typed_one(sql, parameters).await?;
    Ok(Due { until: row.get(0), next_due: super::next_due(&row, 1), schedules: schedules(&row) })
}

fn schedules(row: &Row) -> Vec<Schedule> {
    let versions: Vec<i64> = list(row, 3);
    let (crons, zones): (Vec<String>, Vec<String>) = (list(row, 4), list(row, 5));
    let (sinces, on_times): (Vec<DateTime<Utc>>, Vec<DateTime<Utc>>) = (list(row, 6), list(row, 7));
    let most: Vec<i32> = list(row, 8);
    let ends: Vec<Option<DateTime<Utc>>> = list(row, 9);
    let last_errors: Vec<Option<String>> = list(row, 10);
    let schedule = |(at, name): (usize, String)| Schedule {
        name,
        version: versions[at],
        cron: crons[at].clone(),
        zone: zones[at].clone(),
        since: sinces[at],
        on_time: on_times[at],
        max_ticks: usize::try_from(most[at]).unwrap_or(0),
        ends: ends[at],
        last_error: last_errors[at].clone(),
    };
    list(row, 2).into_iter().enumerate().map(schedule).collect()
}

/// An array; null is an empty one.
fn list<T>(row: &Row, column: usize) -> Vec<T>
where
    Vec<T>: FromSqlOwned,
{
    row.get::<_, Option<Vec<T>>>(column).unwrap_or_default()
}

/// Ticks of one schedule to fire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fire {
    /// Its name.
    pub name: String,
    /// The version for which this was calculated.
    pub version: i64,
    /// How far.
    pub until: DateTime<Utc>,
    /// Ticks up to there.
    pub ticks: Vec<DateTime<Utc>>,
    /// The first after that; none: there is none.
    pub next: Option<DateTime<Utc>>,
}

/// Result of a batch of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fired {
    /// Tasks scheduled.
    pub tasks: u32,
    /// Schedules that have changed, or that another session had locked.
    pub lost: u32,
    /// Schedules that the server refused.
    pub refused: u32,
}

impl std::ops::AddAssign for Fired {
    fn add_assign(&mut self, more: Self) {
        self.tasks += more.tasks;
        self.lost += more.lost;
        self.refused += more.refused;
    }
}

/// Fires ticks of several schedules in one transaction.
///
/// # Errors
/// The connection's or the server's; then none is fired.
pub async fn fire_periodic(
    client: &Client,
    fires: &[Fire],
    installation: &str,
) -> Result<Fired, Error> {
    let names: Vec<&str> = fires.iter().map(|fire| fire.name.as_str()).collect();
    let versions: Vec<i64> = fires.iter().map(|fire| fire.version).collect();
    let untils: Vec<DateTime<Utc>> = fires.iter().map(|fire| fire.until).collect();
    let ticks: Vec<String> = fires.iter().map(|fire| array(&fire.ticks)).collect();
    let nexts: Vec<Option<DateTime<Utc>>> = fires.iter().map(|fire| fire.next).collect();
    let sql = "select tuskline.fire_periodic(d.name, d.version, d.until, d.ticks::timestamptz[], d.next, $6) \
        from unnest($1, $2, $3, $4, $5) as d (name, version, until, ticks, next)";
    let parameters: &Parameters<'_> = &[
        (&names, Type::TEXT_ARRAY),
        (&versions, Type::INT8_ARRAY),
        (&untils, Type::TIMESTAMPTZ_ARRAY),
        (&ticks, Type::TEXT_ARRAY),
        (&nexts, Type::TIMESTAMPTZ_ARRAY),
        (&installation, Type::TEXT),
    ];
    let rows = client.query_typed(sql, parameters).await?;
    let mut fired = Fired::default();
    for row in rows {
        match row.get::<_, Option<i32>>(0) {
            Some(tasks) => fired.tasks += tasks.unsigned_abs(),
            None => fired.lost += 1,
        }
    }
    Ok(fired)
}

/// An array as SQL writes one: there are no arrays of arrays of different lengths.
fn array(ticks: &[DateTime<Utc>]) -> String {
    let texts = ticks.iter().map(|tick| tick.to_rfc3339_opts(SecondsFormat::AutoSi, true));
    format!("{{{}}}", texts.collect::<Vec<_>>().join(","))
}

/// Records why the ticks of a schedule cannot be calculated or fired. Returns whether the error is new.
///
/// # Errors
/// The connection's or the server's.
pub async fn note_schedule_error(
    client: &Client,
    name: &str,
    version: i64,
    error: &str,
) -> Result<bool, Error> {
    let sql = "select tuskline.note_schedule_error($1, $2, $3)";
    value(client, sql, &[(&name, Type::TEXT), (&version, Type::INT8), (&error, Type::TEXT)]).await
}
