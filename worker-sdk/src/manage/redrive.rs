//! Dead letters that return: those of one cause, a batch at a time, carefully.

use chrono::{DateTime, Utc};
use serde::Serialize;
use tokio_postgres::types::{ToSql, Type};

use super::Parameters;
use crate::json::payload_of;
use crate::{Client, Error, TaskId};

/// Which dead letters shall begin anew, and how.
///
/// # Example
/// ```no_run
/// # use tuskline_sdk::{Client, Error, Redrive};
/// # async fn mended(client: &Client) -> Result<(), Error> {
/// let redrive = Redrive::of("send_email").fingerprint("bb2b0fb8fe12").canary().per_second(100.0);
/// let (tasks, first) = client.preview_redrive(&redrive).await?;
/// println!("{tasks} would return, the first of them {first:?}");
/// let number = client.redrive(&redrive, "the address book is back").await?;
/// println!("{:?}", client.redrive_progress(number).await?);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Redrive {
    lambda: Option<String>,
    ids: Option<Vec<i64>>,
    fingerprint: Option<String>,
    collection: Option<String>,
    before: Option<DateTime<Utc>>,
    most: Option<i64>,
    per_second: Option<f64>,
    canary: bool,
    payload: Option<String>,
}

/// How far a redrive has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RedriveProgress {
    /// `running`, `canary` (it waits for the ends of some), `done`, `died_again` or `stopped`.
    pub state: String,
    /// How many it has let go.
    pub released: i64,
    /// How many of them are dead again.
    pub died_again: i64,
    /// What made it end so.
    pub note: Option<String>,
}

impl Redrive {
    /// The dead letters of a lambda.
    pub fn of(lambda: &str) -> Self {
        Self { lambda: Some(lambda.into()), ..Self::default() }
    }

    /// These tasks: 1 to 10,000.
    pub fn tasks(ids: &[TaskId]) -> Self {
        Self { ids: Some(ids.iter().map(|id| id.0).collect()), ..Self::default() }
    }

    /// Only those whose last failure has this fingerprint: those of one cause.
    #[must_use]
    pub fn fingerprint(mut self, fingerprint: &str) -> Self {
        self.fingerprint = Some(fingerprint.into());
        self
    }

    /// Only those of a collection.
    #[must_use]
    pub fn collection(mut self, collection: &str) -> Self {
        self.collection = Some(collection.into());
        self
    }

    /// Only those that had died by then.
    #[must_use]
    pub fn before(mut self, at: DateTime<Utc>) -> Self {
        self.before = Some(at);
        self
    }

    /// At most so many.
    #[must_use]
    pub fn limit(mut self, most: i64) -> Self {
        self.most = Some(most);
        self
    }

    /// So many a second; otherwise as fast as it goes.
    #[must_use]
    pub fn per_second(mut self, per_second: f64) -> Self {
        self.per_second = Some(per_second);
        self
    }

    /// One goes first, then 10, then the rest; it stops by itself when they die again.
    #[must_use]
    pub fn canary(mut self) -> Self {
        self.canary = true;
        self
    }

    /// Another payload, for a redrive of one task; the old one is kept in `tuskline.redriven`.
    ///
    /// # Errors
    /// As [`NewTask::new`](crate::NewTask::new).
    pub fn payload(mut self, payload: &impl Serialize) -> Result<Self, Error> {
        self.payload = Some(payload_of(payload)?);
        Ok(self)
    }

    /// Which dead letters: what `redrive` and `preview_redrive` are asked first.
    fn choice(&self) -> [(&(dyn ToSql + Sync), Type); 6] {
        [
            (&self.lambda, Type::TEXT),
            (&self.fingerprint, Type::TEXT),
            (&self.ids, Type::INT8_ARRAY),
            (&self.collection, Type::TEXT),
            (&self.before, Type::TIMESTAMPTZ),
            (&self.most, Type::INT8),
        ]
    }
}

const REDRIVE: &str = "select tuskline.redrive($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
const PREVIEW: &str = "select tasks, coalesce(first_ids, '{}') \
                       from tuskline.preview_redrive($1, $2, $3, $4, $5, $6)";
const PROGRESS: &str =
    "select state, released, died_again, note from tuskline.redrives where redrive_id = $1";

impl Client {
    /// Lets dead letters begin anew, as store consumers find the time; returns the number of the redrive.
    ///
    /// # Errors
    /// [`Error::Invalid`]: neither a lambda nor ids, an unknown lambda, a number out of range, a payload
    /// for more than one task, no reason. [`Error::Denied`], [`Error::Unavailable`], [`Error::Unknown`].
    pub async fn redrive(&self, redrive: &Redrive, reason: &str) -> Result<i64, Error> {
        let how: &Parameters<'_> = &[
            (&redrive.per_second, Type::FLOAT8),
            (&redrive.canary, Type::BOOL),
            (&redrive.payload, Type::TEXT),
            (&reason, Type::TEXT),
        ];
        let parameters = [&redrive.choice()[..], how].concat();
        Ok(self.act(REDRIVE, &parameters).await?.get(0))
    }

    /// How many it would let go now, and the first ten of them.
    ///
    /// # Errors
    /// [`Error::Invalid`] as [`Client::redrive`], [`Error::Denied`], [`Error::Unavailable`].
    pub async fn preview_redrive(&self, redrive: &Redrive) -> Result<(i64, Vec<TaskId>), Error> {
        let rows = self.look(PREVIEW, &redrive.choice()).await?;
        let row = rows.first().ok_or_else(|| Error::Unavailable("no answer".into()))?;
        let first: Vec<i64> = row.get(1);
        Ok((row.get(0), first.into_iter().map(TaskId).collect()))
    }

    /// How far a redrive has come; `None`: there is none of that number.
    ///
    /// # Errors
    /// [`Error::Denied`], [`Error::Unavailable`].
    pub async fn redrive_progress(&self, number: i64) -> Result<Option<RedriveProgress>, Error> {
        let rows = self.look(PROGRESS, &[(&number, Type::INT8)]).await?;
        Ok(rows.first().map(|row| RedriveProgress {
            state: row.get(0),
            released: row.get(1),
            died_again: row.get(2),
            note: row.get(3),
        }))
    }

    /// Stops a redrive; what it has let go goes on. `false`: none of that number is under way.
    ///
    /// # Errors
    /// [`Error::Denied`], [`Error::Unavailable`], [`Error::Unknown`].
    pub async fn stop_redrive(&self, number: i64) -> Result<bool, Error> {
        let sql = "select tuskline.stop_redrive($1)";
        Ok(self.act(sql, &[(&number, Type::INT8)]).await?.get(0))
    }
}
