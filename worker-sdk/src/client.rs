//! Schedule tasks and ask after them: on a pool of connections, or on the caller's own transaction,
//! where the task is accepted with everything else that commits.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};

use crate::connection::{Connection, Pool};
use crate::json::JsonText;
use crate::task::Due;
use crate::wait::EndListener;
use crate::{Cancelled, Error, NewTask, Reason, TaskId, TaskStatus, version};

/// Most tasks in one [`Client::schedule_many`]; use `COPY tuskline.task` for more.
pub const BATCH_MAX: usize = 10_000;

/// A client on a pool of connections. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {
    pub(crate) pool: Pool,
    pub(crate) deadline: Duration,
    pub(crate) ear: Arc<EndListener>,
}

/// Longest wait for an answer, unless [`Client::deadline`] says otherwise. The same as a worker's.
const DEADLINE: Duration = Duration::from_secs(15);

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
    pub async fn with_config(config: tokio_postgres::Config) -> Result<Self, Error> {
        let client = Self::driven(config, None)?;
        client.check_version().await?;
        Ok(client)
    }

    /// Without a connection yet. One runtime drives its connections; none: whichever opens them.
    pub(crate) fn driven(
        mut config: tokio_postgres::Config,
        runtime: Option<tokio::runtime::Handle>,
    ) -> Result<Self, Error> {
        if config.get_application_name().is_none() {
            config.application_name("tuskline-client");
        }
        let ear = Arc::new(EndListener::on(config.clone(), runtime.clone()));
        Ok(Self { pool: Pool::own(config, runtime)?, deadline: DEADLINE, ear })
    }

    /// A client on a pool you already have. Nothing is checked, and nothing is heard of a commit whose
    /// wait for a synchronous standby was cancelled: such a pool drops the server's warnings.
    pub fn on(pool: deadpool_postgres::Pool) -> Self {
        Self { pool: Pool::Given(pool), deadline: DEADLINE, ear: Arc::default() }
    }

    /// Sets the longest wait for the answer to one call, 15 s by default. A call that gets none gives its
    /// connection up and says [`Error::Unknown`], or [`Error::Unavailable`] if it changes nothing: a
    /// network that swallows everything must not hold a caller for ever. Calls through
    /// [`Client::within`] and [`Client::connection`] are yours to bound.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The same verbs on your own connection or transaction: what they do commits or rolls back with
    /// it. Your commit is yours to watch: see [`Connection::confirm`].
    pub fn within<C: GenericClient>(connection: &C) -> TransactionClient<'_, C> {
        TransactionClient { connection }
    }

    /// Schedules one task; it is accepted when this returns its id: of a unique key that another task
    /// holds, that one's.
    ///
    /// # Errors
    /// [`Error::Invalid`] (unknown lambda, too large, due date, ...), [`Error::Unavailable`],
    /// [`Error::Unknown`] when the connection broke before the answer came or the deadline passed, or
    /// when the wait for a synchronous standby was cancelled: the task is accepted, and a failover may lose it.
    pub async fn schedule(&self, task: &NewTask) -> Result<TaskId, Error> {
        let connection = self.pool.get().await?;
        let call = timeout(self.deadline, Client::within(&**connection).schedule(task)).await;
        self.written(connection, call)
    }

    /// Schedules up to [`BATCH_MAX`] tasks in one commit, all or none; ids in the order given.
    ///
    /// # Errors
    /// As [`Client::schedule`]; a refusal names the row.
    pub async fn schedule_many(&self, tasks: &[NewTask]) -> Result<Vec<TaskId>, Error> {
        let connection = self.pool.get().await?;
        let call = timeout(self.deadline, Client::within(&**connection).schedule_many(tasks)).await;
        self.written(connection, call)
    }

    /// Everything known of a task; `None`: no such id, or past its retention.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Denied`].
    pub async fn status(&self, task: TaskId) -> Result<Option<TaskStatus>, Error> {
        let connection = self.pool.get().await?;
        let call = timeout(self.deadline, Client::within(&**connection).status(task)).await;
        self.answered(connection, call, Error::Unavailable).map(|(_, status)| status)
    }

    /// Why a task does not run: every reason that holds now, the first to look at on top.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Denied`].
    pub async fn explain(&self, task: TaskId) -> Result<Vec<Reason>, Error> {
        let connection = self.pool.get().await?;
        let call = timeout(self.deadline, Client::within(&**connection).explain(task)).await;
        self.answered(connection, call, Error::Unavailable).map(|(_, reasons)| reasons)
    }

    /// Cancels a task, or asks the worker that holds it to stop.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Denied`], [`Error::Unknown`].
    pub async fn cancel(&self, task: TaskId, reason: Option<&str>) -> Result<Cancelled, Error> {
        let connection = self.pool.get().await?;
        let call = timeout(self.deadline, Client::within(&**connection).cancel(task, reason)).await;
        self.written(connection, call)
    }

    /// Makes a lambda known with the default settings; `false`: it already was.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the name; [`Error::Denied`]; [`Error::Unavailable`]; [`Error::Unknown`].
    pub async fn define_lambda(&self, name: &str) -> Result<bool, Error> {
        let connection = self.pool.get().await?;
        let parameters: [(&(dyn ToSql + Sync), Type); 1] = [(&name, Type::TEXT)];
        let call = async {
            let sql = "select tuskline.define_lambda($1)";
            let rows = connection.query_typed(sql, &parameters).await.map_err(Error::from_write)?;
            Ok(rows[0].get(0))
        };
        let call = timeout(self.deadline, call).await;
        self.written(connection, call)
    }

    /// Connection of the pool, for a transaction of your own.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn connection(&self) -> Result<Connection, Error> {
        self.pool.get().await
    }

    async fn check_version(&self) -> Result<(), Error> {
        let connection = self.pool.get().await?;
        let call = timeout(self.deadline, connection.query_typed("select tuskline.version()", &[]));
        let call = call.await.map(|rows| rows.map_err(Error::from_read));
        let (_, rows) = self.answered(connection, call, Error::Unavailable)?;
        version::check(rows[0].get(0))
    }

    /// What a call that changes something came to, and whether its commit is as safe as it looks.
    pub(crate) fn written<T>(&self, connection: Connection, call: Call<T>) -> Result<T, Error> {
        let (connection, answer) = self.answered(connection, call, Error::Unknown)?;
        connection.confirm()?;
        Ok(answer)
    }

    /// A connection whose answer is still on its way goes with it: nobody else may get that answer.
    pub(crate) fn answered<T>(
        &self,
        connection: Connection,
        call: Call<T>,
        silent: fn(String) -> Error,
    ) -> Result<(Connection, T), Error> {
        match call {
            Ok(answer) => answer.map(|answer| (connection, answer)),
            Err(_) => {
                connection.discard();
                Err(silent(format!("no answer within {:?}", self.deadline)))
            }
        }
    }
}

/// The answer, if it came in time.
pub(crate) type Call<T> = Result<Result<T, Error>, Elapsed>;

/// The verbs on one connection or transaction of the caller's; see [`Client::within`].
#[derive(Debug)]
pub struct TransactionClient<'a, C> {
    pub(crate) connection: &'a C,
}

impl<C: GenericClient> TransactionClient<'_, C> {
    /// Schedules one task; accepted when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::schedule`].
    pub async fn schedule(&self, task: &NewTask) -> Result<TaskId, Error> {
        let (at, delay) = task.due.parts();
        let (payload, priority) = (JsonText(&task.payload), task.priority.as_str());
        let params: [(&(dyn ToSql + Sync), Type); 10] = [
            (&task.lambda, Type::TEXT),
            (&payload, Type::JSON),
            (&priority, Type::TEXT),
            (&task.collection, Type::TEXT),
            (&at, Type::TIMESTAMPTZ),
            (&delay, Type::FLOAT8),
            (&task.keys.ordering, Type::TEXT),
            (&task.keys.limit, Type::TEXT),
            (&task.keys.fairness, Type::TEXT),
            (&task.keys.unique, Type::TEXT),
        ];
        let (sql, params) = match task.keys.any() {
            false => {
                let sql = "select tuskline.schedule($1, $2, $3, $4, $5, make_interval(secs => $6))";
                (sql, &params[..6])
            }
            true => {
                let sql = "select tuskline.schedule($1, $2, $3, $4, $5, make_interval(secs => $6), $7, $8, $9, $10)";
                (sql, &params[..])
            }
        };
        let rows = self.connection.query_typed(sql, params).await.map_err(Error::from_write)?;
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
        let ordering =
            some_if(tasks, |t| t.keys.ordering.is_some(), |t| t.keys.ordering.as_deref());
        let limits = some_if(tasks, |t| t.keys.limit.is_some(), |t| t.keys.limit.as_deref());
        let fairness =
            some_if(tasks, |t| t.keys.fairness.is_some(), |t| t.keys.fairness.as_deref());
        let unique = some_if(tasks, |t| t.keys.unique.is_some(), |t| t.keys.unique.as_deref());
        let params: [(&(dyn ToSql + Sync), Type); 10] = [
            (&lambdas, Type::TEXT_ARRAY),
            (&payloads, Type::JSON_ARRAY),
            (&priorities, Type::TEXT_ARRAY),
            (&collections, Type::TEXT_ARRAY),
            (&due, Type::TIMESTAMPTZ_ARRAY),
            (&delays, Type::FLOAT8_ARRAY),
            (&ordering, Type::TEXT_ARRAY),
            (&limits, Type::TEXT_ARRAY),
            (&fairness, Type::TEXT_ARRAY),
            (&unique, Type::TEXT_ARRAY),
        ];
        let rows = self
            .connection
            .query_typed(
                "select tuskline.schedule_many($1, $2, $3, $4, $5, \
                 case when $6::float8[] is not null then \
                   array(select make_interval(secs => d) from unnest($6) with ordinality as u (d, n) order by n) end, $7, $8, $9, $10)",
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

    /// Why a task does not run, as this connection sees it.
    ///
    /// # Errors
    /// As [`Client::explain`].
    pub async fn explain(&self, task: TaskId) -> Result<Vec<Reason>, Error> {
        let sql = "select reason, detail, cause, remedy from tuskline.explain($1)";
        let rows = self
            .connection
            .query_typed(sql, &[(&task.0, Type::INT8)])
            .await
            .map_err(Error::from_read)?;
        Ok(rows.iter().map(Reason::read).collect())
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

    /// The only row of a call that changes something.
    pub(crate) async fn one(
        &self,
        sql: &str,
        params: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Row, Error> {
        let rows = self.connection.query_typed(sql, params).await.map_err(Error::from_write)?;
        rows.into_iter().next().ok_or_else(|| Error::Unknown("no answer".into()))
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
