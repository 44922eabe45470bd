//! What a client asks of chains.

use tokio::time::timeout;
use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};

use super::{Chain, On, ParentTask, Scheduled};
use crate::client::TransactionClient;
use crate::json::{JsonOwned, JsonText};
use crate::{Client, Error, NewTask, Retried, TaskId};

impl Client {
    /// Schedules the tasks of a chain in one commit, all or none.
    ///
    /// # Errors
    /// As [`Client::schedule`], and [`Error::Invalid`]: tasks that wait for each other, two of one name,
    /// a parent that there is not, or on two conditions, over 1000 one after the other, over 10,000 in all.
    pub async fn schedule_chain(&self, chain: &Chain) -> Result<Scheduled, Error> {
        let connection = self.pool.get().await?;
        let within = Client::within(&**connection);
        let call = timeout(self.deadline, within.schedule_chain(chain)).await;
        self.written(connection, call)
    }

    /// Schedules tasks, and one that runs when all of them have ended, in one commit. What they came to it
    /// finds with [`Context::parents`](crate::Context::parents).
    ///
    /// # Errors
    /// As [`Client::schedule_many`] and [`Client::schedule_chain`].
    pub async fn schedule_many_then(
        &self,
        tasks: &[NewTask],
        then: &NewTask,
    ) -> Result<(Vec<TaskId>, TaskId), Error> {
        let mut connection = self.pool.get().await?;
        let call = async {
            let transaction = connection.transaction().await.map_err(Error::from_read)?;
            let within = Client::within(&*transaction);
            let ids = within.schedule_many(tasks).await?;
            let then = within.schedule_then(&ids, On::Always, then).await?;
            transaction.commit().await.map_err(Error::from_write)?;
            Ok((ids, then))
        };
        let call = timeout(self.deadline, call).await;
        self.written(connection, call)
    }

    /// Cancels what has not ended of the chain that a task belongs to, any of it: how many tasks ended
    /// at once, and how many are in a worker's hands and were asked to stop.
    ///
    /// # Errors
    /// As [`Client::cancel`], and [`Error::Invalid`]: the task is of no chain.
    pub async fn cancel_chain(
        &self,
        task: TaskId,
        reason: Option<&str>,
    ) -> Result<(i32, i32), Error> {
        let connection = self.pool.get().await?;
        let within = Client::within(&**connection);
        let call = timeout(self.deadline, within.cancel_chain(task, reason)).await;
        self.written(connection, call)
    }

    /// Lets a task begin anew that ended otherwise than by success; those that wait for it wait again.
    ///
    /// # Errors
    /// As [`Client::cancel`].
    pub async fn retry(&self, task: TaskId) -> Result<Retried, Error> {
        let connection = self.pool.get().await?;
        let call = timeout(self.deadline, Client::within(&**connection).retry(task)).await;
        self.written(connection, call)
    }

    /// The same for all of the chain that a task belongs to; how many there were.
    ///
    /// # Errors
    /// As [`Client::cancel_chain`].
    pub async fn retry_chain(&self, task: TaskId) -> Result<i32, Error> {
        let connection = self.pool.get().await?;
        let call = timeout(self.deadline, Client::within(&**connection).retry_chain(task)).await;
        self.written(connection, call)
    }

    /// Whom a task waits or waited for, and what they returned.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Denied`].
    pub async fn parents(&self, task: TaskId) -> Result<Vec<ParentTask>, Error> {
        let connection = self.pool.get().await?;
        let call = timeout(self.deadline, Client::within(&**connection).parents(task)).await;
        self.answered(connection, call, Error::Unavailable).map(|(_, parents)| parents)
    }
}

impl<C: GenericClient> TransactionClient<'_, C> {
    /// Schedules the tasks of a chain; accepted when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::schedule_chain`].
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
    /// As [`Client::schedule_chain`].
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
    /// As [`Client::cancel_chain`].
    pub async fn cancel_chain(
        &self,
        task: TaskId,
        reason: Option<&str>,
    ) -> Result<(i32, i32), Error> {
        let sql = "select cancelled, requested from tuskline.cancel_chain($1, $2)";
        let row = self.one(sql, &[(&task.0, Type::INT8), (&reason, Type::TEXT)]).await?;
        Ok((row.get(0), row.get(1)))
    }

    /// Lets a task begin anew, when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::retry`].
    pub async fn retry(&self, task: TaskId) -> Result<Retried, Error> {
        let row = self.one("select tuskline.retry($1)", &[(&task.0, Type::INT8)]).await?;
        Ok(match row.get(0) {
            "retried" => Retried::Retried,
            "too_early" => Retried::TooEarly,
            "succeeded" => Retried::Succeeded,
            _ => Retried::Unknown,
        })
    }

    /// Lets all of a chain begin anew, when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::retry_chain`].
    pub async fn retry_chain(&self, task: TaskId) -> Result<i32, Error> {
        let sql = "select retried from tuskline.retry_chain($1)";
        Ok(self.one(sql, &[(&task.0, Type::INT8)]).await?.get(0))
    }

    /// Whom a task waits or waited for, as this connection sees it.
    ///
    /// # Errors
    /// As [`Client::parents`].
    pub async fn parents(&self, task: TaskId) -> Result<Vec<ParentTask>, Error> {
        let sql = "select id, name, lambda, status, output from tuskline.parents($1)";
        let rows = self.connection.query_typed(sql, &[(&task.0, Type::INT8)]).await;
        rows.map_err(Error::from_read)?.iter().map(ParentTask::read).collect()
    }
}

impl ParentTask {
    fn read(row: &Row) -> Result<Self, Error> {
        let status: Option<&str> = row.get(3);
        let output: Option<JsonOwned> = row.get(4);
        Ok(Self {
            id: TaskId(row.get(0)),
            name: row.get(1),
            lambda: row.get(2),
            status: status.map(str::parse).transpose()?,
            output: output.map(|text| {
                serde_json::from_str(&text.0).unwrap_or(serde_json::Value::String(text.0))
            }),
        })
    }
}
