//! The calls of a client within the caller's connection or transaction.

mod owners;

use tokio_postgres::types::{ToSql, Type};

use crate::client::chain::{CancelledChain, Chain, On, ParentTask, Scheduled};
use crate::client::new_task::{Due, NewTask};
use crate::client::payload::IntoTask;
use crate::client::session::Row;
use crate::client::session::sealed::Session;
use crate::client::status::{COLUMNS, Cancelled, Reason, Retried, TaskStatus};
use crate::db::Parameters;
use crate::db::json::JsonText;
use crate::db::parameter::{Hidden, hidden};
use crate::error::{Error, ErrorKind};
use crate::task::{Priority, TaskId};

/// The verbs on one transaction of the caller's; see [`Client::within`](crate::Client::within).
pub struct TransactionClient<'t> {
    pub(super) session: &'t mut dyn Session,
}

impl std::fmt::Debug for TransactionClient<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TransactionClient").finish_non_exhaustive()
    }
}

impl TransactionClient<'_> {
    /// Schedules one task; accepted when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::schedule`](crate::Client::schedule).
    pub async fn schedule(&mut self, task: impl IntoTask) -> Result<TaskId, Error> {
        let task = task.into_task();
        let (at, delay) = task.due.parts();
        let (payload, priority) = (JsonText(task.checked()?), task.priority.as_str());
        let params: [(&(dyn ToSql + Sync), Type); 11] = [
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
            (&task.traceparent, Type::TEXT),
        ];
        let (sql, params) = match task.keys.any() || task.traceparent.is_some() {
            false => {
                let sql = "select tuskline.schedule($1, $2, $3, $4, $5, make_interval(secs => $6))";
                (sql, &params[..6])
            }
            true => {
                let sql = "select tuskline.schedule($1, $2, $3, $4, $5, make_interval(secs => $6), $7, $8, $9, $10, $11)";
                (sql, &params[..])
            }
        };
        Ok(TaskId(self.one(sql, params).await?.get(0)))
    }

    /// Schedules up to [`BATCH_MAX`](crate::BATCH_MAX) tasks; accepted when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::schedule_many`](crate::Client::schedule_many).
    pub async fn schedule_many<I>(&mut self, tasks: I) -> Result<Vec<TaskId>, Error>
    where
        I: IntoIterator<Item: IntoTask>,
    {
        let tasks: Vec<NewTask> = tasks.into_iter().map(IntoTask::into_task).collect();
        let tasks = &tasks[..];
        let lambdas: Vec<_> = tasks.iter().map(|t| t.lambda.as_str()).collect();
        let mut payloads = Vec::with_capacity(tasks.len());
        for (row, task) in (1..).zip(tasks) {
            let checked = task.checked().map_err(|error| match tasks.len() {
                1 => error,
                rows => error.at(format_args!("row {row} of {rows}")),
            });
            payloads.push(JsonText(checked?));
        }
        let priorities =
            some_if(tasks, |t| t.priority != Priority::Normal, |t| t.priority.as_str());
        let collections = some_if(tasks, |t| t.collection.is_some(), |t| t.collection.as_deref());
        let due = some_if(tasks, |t| matches!(t.due, Due::At(_)), |t| t.due.parts().0);
        let delays = some_if(tasks, |t| matches!(t.due, Due::In(_)), |t| t.due.parts().1);
        let ordering =
            some_if(tasks, |t| t.keys.ordering.is_some(), |t| t.keys.ordering.as_deref());
        let limits = some_if(tasks, |t| t.keys.limit.is_some(), |t| t.keys.limit.as_deref());
        let fairness =
            some_if(tasks, |t| t.keys.fairness.is_some(), |t| t.keys.fairness.as_deref());
        let unique = some_if(tasks, |t| t.keys.unique.is_some(), |t| t.keys.unique.as_deref());
        let traces = some_if(tasks, |t| t.traceparent.is_some(), |t| t.traceparent.as_deref());
        let params: [(&(dyn ToSql + Sync), Type); 11] = [
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
            (&traces, Type::TEXT_ARRAY),
        ];
        let sql = "select tuskline.schedule_many($1, $2, $3, $4, $5, \
                 case when $6::float8[] is not null then \
                   array(select make_interval(secs => d) from unnest($6) with ordinality as u (d, n) order by n) end, $7, $8, $9, $10, $11)";
        let ids: Vec<i64> = self.one(sql, &params).await?.get(0);
        Ok(ids.into_iter().map(TaskId).collect())
    }

    /// Everything known of a task, as this connection sees it.
    ///
    /// # Errors
    /// As [`Client::status`](crate::Client::status).
    pub async fn status(&mut self, task: TaskId) -> Result<Option<TaskStatus>, Error> {
        let sql = format!("select {COLUMNS} from tuskline.task_status($1)");
        let rows = self.rows(&sql, &[(&task.0, Type::INT8)]).await?;
        rows.first().map(TaskStatus::read).transpose()
    }

    /// Why a task does not run, as this connection sees it.
    ///
    /// # Errors
    /// As [`Client::explain`](crate::Client::explain).
    pub async fn explain(&mut self, task: TaskId) -> Result<Vec<Reason>, Error> {
        let sql = "select reason, detail, cause, remedy from tuskline.explain($1)";
        let rows = self.rows(sql, &[(&task.0, Type::INT8)]).await?;
        Ok(rows.iter().map(Reason::read).collect())
    }

    /// Cancels a task when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::cancel`](crate::Client::cancel).
    pub async fn cancel(&mut self, task: TaskId, reason: Option<&str>) -> Result<Cancelled, Error> {
        let parameters: &Parameters<'_> = &[(&task.0, Type::INT8), (&reason, Type::TEXT)];
        let row = self.one("select tuskline.cancel($1, $2)", parameters).await?;
        Ok(match row.get(0) {
            "cancelled" => Cancelled::Cancelled,
            "requested" => Cancelled::Requested,
            "too_late" => Cancelled::TooLate,
            _ => Cancelled::Unknown,
        })
    }
}

impl TransactionClient<'_> {
    /// Schedules the tasks of a chain; accepted when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::schedule_chain`](crate::Client::schedule_chain).
    pub async fn schedule_chain(&mut self, chain: &Chain) -> Result<Scheduled, Error> {
        let tasks = chain.to_json()?;
        let sql = "select chain_id, ids from tuskline.schedule_chain($1)";
        let row = self.one(sql, &[(&JsonText(&tasks), Type::JSON)]).await?;
        let ids = row.get::<Vec<i64>>(1).into_iter().map(TaskId).collect();
        Ok(Scheduled { chain: TaskId(row.get(0)), ids })
    }

    /// Schedules a task that runs when these have ended; accepted when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::schedule_chain`](crate::Client::schedule_chain).
    pub async fn schedule_then(
        &mut self,
        after: &[TaskId],
        on: On,
        then: impl IntoTask,
    ) -> Result<TaskId, Error> {
        let scheduled = self.schedule_chain(&Chain::after_all(after, on, then)).await?;
        scheduled.ids.first().copied().ok_or_else(|| Error::unknown("no answer"))
    }

    /// Cancels what has not ended of a chain, when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::cancel_chain`](crate::Client::cancel_chain).
    pub async fn cancel_chain(
        &mut self,
        task: TaskId,
        reason: Option<&str>,
    ) -> Result<CancelledChain, Error> {
        let sql = "select cancelled, requested from tuskline.cancel_chain($1, $2)";
        let row = self.one(sql, &[(&task.0, Type::INT8), (&reason, Type::TEXT)]).await?;
        let [cancelled, requested] = [0, 1].map(|at| row.get::<i32>(at).unsigned_abs());
        Ok(CancelledChain { cancelled, requested })
    }

    /// Runs an ended task again, when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::retry`](crate::Client::retry).
    pub async fn retry(&mut self, task: TaskId) -> Result<Retried, Error> {
        self.retry_by("select tuskline.retry($1)", task).await
    }

    /// The same, due now.
    ///
    /// # Errors
    /// As [`Client::retry`](crate::Client::retry).
    pub async fn retry_now(&mut self, task: TaskId) -> Result<Retried, Error> {
        self.retry_by("select tuskline.retry($1, p_due_now => true)", task).await
    }

    async fn retry_by(&mut self, sql: &str, task: TaskId) -> Result<Retried, Error> {
        let row = self.one(sql, &[(&task.0, Type::INT8)]).await?;
        Ok(match row.get(0) {
            "retried" => Retried::Retried,
            "too_early" => Retried::TooEarly,
            "succeeded" => Retried::Succeeded,
            _ => Retried::Unknown,
        })
    }

    /// Runs all tasks of an ended chain again, when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::retry_chain`](crate::Client::retry_chain).
    pub async fn retry_chain(&mut self, task: TaskId) -> Result<u32, Error> {
        let sql = "select retried from tuskline.retry_chain($1)";
        let retried: i32 = self.one(sql, &[(&task.0, Type::INT8)]).await?.get(0);
        Ok(retried.unsigned_abs())
    }

    /// The parents of a task, as this connection sees them.
    ///
    /// # Errors
    /// As [`Client::parents`](crate::Client::parents).
    pub async fn parents(&mut self, task: TaskId) -> Result<Vec<ParentTask>, Error> {
        let sql = "select id, name, lambda, status, output from tuskline.parents($1)";
        self.rows(sql, &[(&task.0, Type::INT8)]).await?.iter().map(ParentTask::read).collect()
    }
}

impl TransactionClient<'_> {
    /// Defines a lambda when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::define_lambda`](crate::Client::define_lambda).
    pub async fn define_lambda(&mut self, name: &str) -> Result<bool, Error> {
        Ok(self.one("select tuskline.define_lambda($1)", &[(&name, Type::TEXT)]).await?.get(0))
    }

    pub(super) async fn version(&mut self) -> Result<Option<i32>, Error> {
        Ok(self.rows("select tuskline.version()", &[]).await?[0].get(0))
    }

    /// The only row of a call that changes something.
    pub(crate) async fn one(
        &mut self,
        sql: &str,
        parameters: &Parameters<'_>,
    ) -> Result<Row, Error> {
        let rows = self.query(sql, parameters, ErrorKind::Unknown).await?;
        rows.into_iter().next().ok_or_else(|| Error::unknown("no answer"))
    }

    /// The rows of a call that changes nothing.
    pub(crate) async fn rows(
        &mut self,
        sql: &str,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<Row>, Error> {
        self.query(sql, parameters, ErrorKind::Unavailable).await
    }

    /// Each statement of a client passes here: no driver can log a value.
    async fn query(
        &mut self,
        sql: &str,
        parameters: &Parameters<'_>,
        broken: ErrorKind,
    ) -> Result<Vec<Row>, Error> {
        let hidden = hidden(parameters);
        let parameters: Vec<_> = hidden.iter().map(Hidden::typed).collect();
        self.session.query(sql, &parameters, broken).await
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
