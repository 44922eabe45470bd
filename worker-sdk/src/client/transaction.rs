//! The calls of a client within the caller's connection or transaction.

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};

use crate::client::chain::{Chain, On, ParentTask, Scheduled};
use crate::client::new_task::{Due, NewTask};
use crate::client::status::{Cancelled, Reason, Retried, TaskStatus};
use crate::db::json::JsonText;
use crate::error::Error;
use crate::task::{Priority, TaskId};

/// Parameters of a statement, with their types.
pub(crate) type Parameters<'a> = [(&'a (dyn ToSql + Sync), Type)];

/// The verbs on one connection or transaction of the caller's; see [`Client::within`](crate::Client::within).
#[derive(Debug)]
pub struct TransactionClient<'a, C> {
    pub(super) connection: &'a C,
}

impl<C: GenericClient> TransactionClient<'_, C> {
    /// Schedules one task; accepted when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::schedule`](crate::Client::schedule).
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

    /// Schedules up to [`BATCH_MAX`](crate::BATCH_MAX) tasks; accepted when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::schedule_many`](crate::Client::schedule_many).
    pub async fn schedule_many(&self, tasks: &[NewTask]) -> Result<Vec<TaskId>, Error> {
        let lambdas: Vec<_> = tasks.iter().map(|t| t.lambda.as_str()).collect();
        let payloads: Vec<_> = tasks.iter().map(|t| JsonText(&t.payload)).collect();
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
    /// As [`Client::status`](crate::Client::status).
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
    /// As [`Client::explain`](crate::Client::explain).
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
    /// As [`Client::cancel`](crate::Client::cancel).
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

impl<C: GenericClient> TransactionClient<'_, C> {
    /// Schedules the tasks of a chain; accepted when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::schedule_chain`](crate::Client::schedule_chain).
    pub async fn schedule_chain(&self, chain: &Chain) -> Result<Scheduled, Error> {
        let tasks = chain.to_json()?;
        let sql = "select chain_id, ids from tuskline.schedule_chain($1)";
        let row = self.one(sql, &[(&JsonText(&tasks), Type::JSON)]).await?;
        let ids = row.get::<_, Vec<i64>>(1).into_iter().map(TaskId).collect();
        Ok(Scheduled { chain: TaskId(row.get(0)), ids })
    }

    /// Schedules a task that runs when these have ended; accepted when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::schedule_chain`](crate::Client::schedule_chain).
    pub async fn schedule_then(
        &self,
        after: &[TaskId],
        on: On,
        then: &NewTask,
    ) -> Result<TaskId, Error> {
        let scheduled = self.schedule_chain(&Chain::after_all(after, on, then)).await?;
        scheduled.ids.first().copied().ok_or_else(|| Error::Unknown("no answer".into()))
    }

    /// Cancels what has not ended of a chain, when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::cancel_chain`](crate::Client::cancel_chain).
    pub async fn cancel_chain(
        &self,
        task: TaskId,
        reason: Option<&str>,
    ) -> Result<(i32, i32), Error> {
        let sql = "select cancelled, requested from tuskline.cancel_chain($1, $2)";
        let row = self.one(sql, &[(&task.0, Type::INT8), (&reason, Type::TEXT)]).await?;
        Ok((row.get(0), row.get(1)))
    }

    /// Runs an ended task again, when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::retry`](crate::Client::retry).
    pub async fn retry(&self, task: TaskId) -> Result<Retried, Error> {
        let row = self.one("select tuskline.retry($1)", &[(&task.0, Type::INT8)]).await?;
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
    pub async fn retry_chain(&self, task: TaskId) -> Result<i32, Error> {
        let sql = "select retried from tuskline.retry_chain($1)";
        Ok(self.one(sql, &[(&task.0, Type::INT8)]).await?.get(0))
    }

    /// The parents of a task, as this connection sees them.
    ///
    /// # Errors
    /// As [`Client::parents`](crate::Client::parents).
    pub async fn parents(&self, task: TaskId) -> Result<Vec<ParentTask>, Error> {
        let sql = "select id, name, lambda, status, output from tuskline.parents($1)";
        let rows = self.connection.query_typed(sql, &[(&task.0, Type::INT8)]).await;
        rows.map_err(Error::from_read)?.iter().map(ParentTask::read).collect()
    }
}

impl<C: GenericClient> TransactionClient<'_, C> {
    /// Defines a lambda when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::define_lambda`](crate::Client::define_lambda).
    pub async fn define_lambda(&self, name: &str) -> Result<bool, Error> {
        Ok(self.one("select tuskline.define_lambda($1)", &[(&name, Type::TEXT)]).await?.get(0))
    }

    pub(super) async fn version(&self) -> Result<Option<i32>, Error> {
        Ok(self.rows("select tuskline.version()", &[]).await?[0].get(0))
    }

    /// The only row of a call that changes something.
    pub(crate) async fn one(&self, sql: &str, parameters: &Parameters<'_>) -> Result<Row, Error> {
        let rows = self.connection.query_typed(sql, parameters).await.map_err(Error::from_write)?;
        rows.into_iter().next().ok_or_else(|| Error::Unknown("no answer".into()))
    }

    /// The rows of a call that changes nothing.
    pub(crate) async fn rows(
        &self,
        sql: &str,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<Row>, Error> {
        self.connection.query_typed(sql, parameters).await.map_err(Error::from_read)
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
