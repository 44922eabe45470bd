//! Schedule tasks and ask after them: on a pool of connections, or on the caller's own transaction,
//! where the task is accepted with everything else that commits.

use chrono::{DateTime, Utc};
use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use serde::Serialize;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, NoTls, Row};

use crate::json::{JsonOwned, JsonText};
use crate::task::Due;
use crate::{Error, FUNCTION_SET, NewTask, Status, TaskId};

/// Most tasks in one [`Client::schedule_many`]; use `COPY tuskline.task` for more.
pub const BATCH_MAX: usize = 10_000;

/// A client on a pool of connections. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {
    pool: Pool,
}

impl Client {
    /// Connects to `url` with up to 8 connections and checks that schema and binary fit together.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the url; [`Error::Unavailable`]; [`Error::Denied`]; [`Error::Incompatible`].
    pub async fn connect(url: &str) -> Result<Self, Error> {
        let config: tokio_postgres::Config = url
            .parse()
            .map_err(|error| Error::invalid("TK013", format!("invalid_url: {error}")))?;
        Self::with_config(config).await
    }

    /// The same from a parsed configuration.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn with_config(mut config: tokio_postgres::Config) -> Result<Self, Error> {
        if config.get_application_name().is_none() {
            config.application_name("tuskline-client");
        }
        let how = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let pool = Pool::builder(Manager::from_config(config, NoTls, how))
            .max_size(8)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(std::time::Duration::from_secs(10)))
            .build()
            .map_err(|error| Error::Unavailable(error.to_string()))?;
        let client = Self::on(pool);
        client.check_version().await?;
        Ok(client)
    }

    /// A client on a pool you already have. Nothing is checked.
    pub fn on(pool: Pool) -> Self {
        Self { pool }
    }

    /// The same verbs on your own connection or transaction: what they do commits or rolls back with
    /// it.
    pub fn within<C: GenericClient>(connection: &C) -> Within<'_, C> {
        Within { connection }
    }

    /// Schedules one task; it is accepted when this returns its id.
    ///
    /// # Errors
    /// [`Error::Invalid`] (unknown lambda, too large, due date, ...), [`Error::Unavailable`],
    /// [`Error::Unknown`] when the connection broke before the answer came.
    pub async fn schedule(&self, task: &NewTask) -> Result<TaskId, Error> {
        let connection = self.pool.get().await?;
        Client::within(&**connection).schedule(task).await
    }

    /// Schedules up to [`BATCH_MAX`] tasks in one commit, all or none; ids in the order given.
    ///
    /// # Errors
    /// As [`Client::schedule`]; a refusal names the row.
    pub async fn schedule_many(&self, tasks: &[NewTask]) -> Result<Vec<TaskId>, Error> {
        let connection = self.pool.get().await?;
        Client::within(&**connection).schedule_many(tasks).await
    }

    /// Everything known of a task; `None`: no such id, or past its retention.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Denied`].
    pub async fn status(&self, task: TaskId) -> Result<Option<TaskStatus>, Error> {
        let connection = self.pool.get().await?;
        Client::within(&**connection).status(task).await
    }

    /// Cancels a task, or asks the worker that holds it to stop.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Denied`], [`Error::Unknown`].
    pub async fn cancel(&self, task: TaskId, reason: Option<&str>) -> Result<Cancelled, Error> {
        let connection = self.pool.get().await?;
        Client::within(&**connection).cancel(task, reason).await
    }

    /// Makes a lambda known with the default settings; `false`: it already was.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the name; [`Error::Denied`]; [`Error::Unavailable`].
    pub async fn define_lambda(&self, name: &str) -> Result<bool, Error> {
        let connection = self.pool.get().await?;
        let row = connection
            .query_typed("select tuskline.define_lambda($1)", &[(&name, Type::TEXT)])
            .await
            .map_err(Error::from_write)?;
        Ok(row[0].get(0))
    }

    /// Connection of the pool, for a transaction of your own.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn connection(&self) -> Result<deadpool_postgres::Object, Error> {
        Ok(self.pool.get().await?)
    }

    async fn check_version(&self) -> Result<(), Error> {
        let connection = self.pool.get().await?;
        let rows = connection
            .query_typed("select tuskline.version()", &[])
            .await
            .map_err(Error::from_read)?;
        check_version(rows[0].get(0))
    }
}

pub(crate) fn check_version(found: i32) -> Result<(), Error> {
    match found.cmp(&FUNCTION_SET) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Less => Err(Error::Incompatible(format!(
            "the schema's function set {found} is older than this binary's {FUNCTION_SET}: run `tuskline migrate`"
        ))),
        std::cmp::Ordering::Greater => Err(Error::Incompatible(format!(
            "the schema's function set {found} is newer than this binary's {FUNCTION_SET}: update the binary"
        ))),
    }
}

/// What [`Client::cancel`] came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cancelled {
    /// It was waiting and is cancelled now.
    Cancelled,
    /// A worker holds it and is told to stop; its result may still win the race.
    Requested,
    /// It had already ended.
    TooLate,
    /// No such task.
    Unknown,
}

/// Everything known of one task.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
#[allow(missing_docs, reason = "named and described as in the database's view tuskline.tasks")]
pub struct TaskStatus {
    pub id: TaskId,
    pub lambda: String,
    pub collection: Option<String>,
    pub priority: String,
    pub status: Status,
    pub attempt: i32,
    pub max_attempts: Option<i32>,
    pub crashes: i32,
    pub due_at: DateTime<Utc>,
    pub created_at: DateTime<Utc>,
    pub started_at: Option<DateTime<Utc>>,
    pub finished_at: Option<DateTime<Utc>>,
    pub next_trigger_at: Option<DateTime<Utc>>,
    pub executor_id: Option<i64>,
    pub host: Option<String>,
    pub pid: Option<i32>,
    pub lease_until: Option<DateTime<Utc>>,
    pub cancel_requested_at: Option<DateTime<Utc>>,
    pub failures: i64,
    pub error_class: Option<String>,
    pub error: Option<String>,
    pub output: Option<serde_json::Value>,
    pub payload: Option<serde_json::Value>,
}

impl TaskStatus {
    fn read(row: &Row) -> Result<Self, Error> {
        let json = |column: &str| -> Option<serde_json::Value> {
            let text: Option<JsonOwned> = row.get(column);
            // Accepted JSON always parses; a number beyond f64 is the one thing that may not.
            text.map(|t| serde_json::from_str(&t.0).unwrap_or(serde_json::Value::String(t.0)))
        };
        Ok(Self {
            id: TaskId(row.get("id")),
            lambda: row.get("lambda"),
            collection: row.get("collection"),
            priority: row.get("priority"),
            status: row.get::<_, &str>("status").parse()?,
            attempt: row.get("attempt"),
            max_attempts: row.get("max_attempts"),
            crashes: row.get("crashes"),
            due_at: row.get("due_at"),
            created_at: row.get("created_at"),
            started_at: row.get("started_at"),
            finished_at: row.get("finished_at"),
            next_trigger_at: row.get("next_trigger_at"),
            executor_id: row.get("executor_id"),
            host: row.get("host"),
            pid: row.get("pid"),
            lease_until: row.get("lease_until"),
            cancel_requested_at: row.get("cancel_requested_at"),
            failures: row.get("failures"),
            error_class: row.get("error_class"),
            error: row.get("error"),
            output: json("output"),
            payload: json("payload"),
        })
    }
}

/// The verbs on one connection or transaction of the caller's; see [`Client::within`].
#[derive(Debug)]
pub struct Within<'a, C> {
    connection: &'a C,
}

impl<C: GenericClient> Within<'_, C> {
    /// Schedules one task; accepted when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::schedule`].
    pub async fn schedule(&self, task: &NewTask) -> Result<TaskId, Error> {
        let (at, delay) = task.due.parts();
        let rows = self
            .connection
            .query_typed(
                "select tuskline.schedule($1, $2, $3, $4, $5, make_interval(secs => $6))",
                &[
                    (&task.lambda, Type::TEXT),
                    (&JsonText(&task.payload), Type::JSON),
                    (&task.priority.as_str(), Type::TEXT),
                    (&task.collection, Type::TEXT),
                    (&at, Type::TIMESTAMPTZ),
                    (&delay, Type::FLOAT8),
                ],
            )
            .await
            .map_err(Error::from_write)?;
        Ok(TaskId(rows[0].get(0)))
    }

    /// Schedules up to [`BATCH_MAX`] tasks; accepted when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::schedule_many`].
    pub async fn schedule_many(&self, tasks: &[NewTask]) -> Result<Vec<TaskId>, Error> {
        let lambdas: Vec<_> = tasks.iter().map(|t| t.lambda.as_str()).collect();
        let payloads: Vec<_> = tasks.iter().map(|t| JsonText(&t.payload)).collect();
        let priorities =
            some_if(tasks, |t| t.priority != crate::Priority::Normal, |t| t.priority.as_str());
        let collections = some_if(tasks, |t| t.collection.is_some(), |t| t.collection.as_deref());
        let due = some_if(tasks, |t| matches!(t.due, Due::At(_)), |t| t.due.parts().0);
        let delays = some_if(tasks, |t| matches!(t.due, Due::In(_)), |t| t.due.parts().1);
        let params: [(&(dyn ToSql + Sync), Type); 6] = [
            (&lambdas, Type::TEXT_ARRAY),
            (&payloads, Type::JSON_ARRAY),
            (&priorities, Type::TEXT_ARRAY),
            (&collections, Type::TEXT_ARRAY),
            (&due, Type::TIMESTAMPTZ_ARRAY),
            (&delays, Type::FLOAT8_ARRAY),
        ];
        let rows = self
            .connection
            .query_typed(
                "select tuskline.schedule_many($1, $2, $3, $4, $5, \
                 case when $6::float8[] is not null then \
                   array(select make_interval(secs => d) from unnest($6) with ordinality as u (d, n) order by n) end)",
                &params,
            )
            .await
            .map_err(Error::from_write)?;
        Ok(rows[0].get::<_, Vec<i64>>(0).into_iter().map(TaskId).collect())
    }

    /// Everything known of a task, as this connection sees it.
    ///
    /// # Errors
    /// As [`Client::status`].
    pub async fn status(&self, task: TaskId) -> Result<Option<TaskStatus>, Error> {
        let rows = self
            .connection
            .query_typed("select * from tuskline.task_status($1)", &[(&task.0, Type::INT8)])
            .await
            .map_err(Error::from_read)?;
        rows.first().map(TaskStatus::read).transpose()
    }

    /// Cancels a task when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::cancel`].
    pub async fn cancel(&self, task: TaskId, reason: Option<&str>) -> Result<Cancelled, Error> {
        let rows = self
            .connection
            .query_typed(
                "select tuskline.cancel($1, $2)",
                &[(&task.0, Type::INT8), (&reason, Type::TEXT)],
            )
            .await
            .map_err(Error::from_write)?;
        Ok(match rows[0].get(0) {
            "cancelled" => Cancelled::Cancelled,
            "requested" => Cancelled::Requested,
            "too_late" => Cancelled::TooLate,
            _ => Cancelled::Unknown,
        })
    }
}

impl Due {
    /// Instant and delay in seconds, one of them at most.
    fn parts(self) -> (Option<DateTime<Utc>>, Option<f64>) {
        match self {
            Self::Now => (None, None),
            Self::At(at) => (Some(at), None),
            Self::In(delay) => (None, Some(delay.as_secs_f64())),
        }
    }
}

/// A parallel array, or nothing at all when no row needs it.
fn some_if<'t, T>(
    tasks: &'t [NewTask],
    needed: impl Fn(&NewTask) -> bool,
    value: impl Fn(&'t NewTask) -> T,
) -> Option<Vec<T>> {
    tasks.iter().any(needed).then(|| tasks.iter().map(value).collect())
}
