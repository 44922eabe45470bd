//! The calls of a [`Client`] about tasks: schedule them, ask about them, steer them.

use serde_json::{Value, json};
use tokio_postgres::types::{ToSql, Type};

use crate::client::Client;
use crate::client::chain::{CancelledChain, Chain, On, ParentTask, Scheduled};
use crate::client::new_task::NewTask;
use crate::client::payload::IntoTask;
use crate::client::sender::Sender;
use crate::client::session::Row;
use crate::client::status::{Cancelled, Reason, Retried, STATUS, TaskStatus, value, word};
use crate::client::verbs::{CANCEL, CANCEL_CHAIN, RETRY, RETRY_CHAIN};
use crate::db::Parameters;
use crate::db::json::JsonText;
use crate::db::parameter::{Hidden, hidden};
use crate::error::{Error, ErrorKind};
use crate::task::{Priority, Privilege, Status, TaskId};

impl<S: Sender> Client<S> {
    /// Schedules one task. It is accepted when this returns its id. If another task holds its unique key,
    /// the id is that task's.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) (unknown lambda, too large, due date, ...),
    /// [`Unavailable`](crate::ErrorKind::Unavailable). [`Unknown`](crate::ErrorKind::Unknown): the connection
    /// broke before the answer came, or the deadline passed. Or the wait for a synchronous standby was
    /// cancelled: the task is accepted, and a failover may lose it.
    pub async fn schedule(&self, task: impl IntoTask) -> Result<TaskId, Error> {
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

    /// Schedules up to [`BATCH_MAX`](crate::BATCH_MAX) tasks in one commit, all or none; ids in the order given.
    ///
    /// # Errors
    /// As [`Client::schedule`]; a refusal names the row.
    pub async fn schedule_many<I>(&self, tasks: I) -> Result<Vec<TaskId>, Error>
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
        let is_usual = tasks.iter().all(|t| t.priority == Priority::Normal);
        let priorities: Option<Vec<_>> =
            (!is_usual).then(|| tasks.iter().map(|t| t.priority.as_str()).collect());
        let collections = column(tasks, |t| t.collection.as_deref());
        let due = column(tasks, |t| t.due.parts().0);
        let delays = column(tasks, |t| t.due.parts().1);
        let ordering = column(tasks, |t| t.keys.ordering.as_deref());
        let limits = column(tasks, |t| t.keys.limit.as_deref());
        let fairness = column(tasks, |t| t.keys.fairness.as_deref());
        let unique = column(tasks, |t| t.keys.unique.as_deref());
        let traces = column(tasks, |t| t.traceparent.as_deref());
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

    /// Everything known of a task; `None`: no such id, or past its retention.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable), [`Denied`](crate::ErrorKind::Denied).
    pub async fn status(&self, task: TaskId) -> Result<Option<TaskStatus>, Error> {
        let rows = self.rows(STATUS, &[(&task.0, Type::INT8)]).await?;
        rows.first().map(TaskStatus::read).transpose()
    }

    /// Why a task does not run: every reason that holds now, the first one to look at on top.
    ///
    /// # Errors
    /// As [`Client::status`].
    pub async fn explain(&self, task: TaskId) -> Result<Vec<Reason>, Error> {
        let sql = "select row_to_json(e)::text from tuskline.explain($1) e";
        let rows = self.rows(sql, &[(&task.0, Type::INT8)]).await?;
        rows.iter().map(|row| value(row.get(0))).collect()
    }

    /// Cancels a task, or asks the worker that holds it to stop.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable), [`Denied`](crate::ErrorKind::Denied),
    /// [`Unknown`](crate::ErrorKind::Unknown).
    pub async fn cancel(&self, task: TaskId, reason: Option<&str>) -> Result<Cancelled, Error> {
        let row = self.call(CANCEL, "v", json!({ "task": task, "reason": reason })).await?;
        word(row.get(0))
    }
}

impl<S: Sender> Client<S> {
    /// Schedules the tasks of a chain in one commit, all or none.
    ///
    /// # Errors
    /// As [`Client::schedule`]. [`Invalid`](crate::ErrorKind::Invalid): a circle, two tasks of one name, an
    /// unknown parent, a parent on two conditions, a path of over 1,000 tasks, or over 10,000 tasks in all.
    pub async fn schedule_chain(&self, chain: &Chain) -> Result<Scheduled, Error> {
        let tasks = chain.to_json()?;
        let sql = "select chain_id, ids from tuskline.schedule_chain($1)";
        let row = self.one(sql, &[(&JsonText(&tasks), Type::JSON)]).await?;
        let ids = row.get::<Vec<i64>>(1).into_iter().map(TaskId).collect();
        Ok(Scheduled { chain: TaskId(row.get(0)), ids })
    }

    /// Schedules a task that runs when these have ended.
    ///
    /// # Errors
    /// As [`Client::schedule_chain`](crate::Client::schedule_chain).
    pub async fn schedule_then(
        &self,
        after: &[TaskId],
        on: On,
        then: impl IntoTask,
    ) -> Result<TaskId, Error> {
        let scheduled = self.schedule_chain(&Chain::after_all(after, on, then)).await?;
        scheduled.ids.first().copied().ok_or_else(|| Error::unknown("no answer"))
    }

    /// Cancels the chain that a task belongs to.
    ///
    /// # Errors
    /// As [`Client::cancel`], and [`Invalid`](crate::ErrorKind::Invalid): the task belongs to no chain.
    pub async fn cancel_chain(
        &self,
        task: TaskId,
        reason: Option<&str>,
    ) -> Result<CancelledChain, Error> {
        let arguments = json!({ "task": task, "reason": reason });
        let row = self.call(CANCEL_CHAIN, "cancelled, requested", arguments).await?;
        let [cancelled, requested] = [0, 1].map(|at| row.get::<i32>(at).unsigned_abs());
        Ok(CancelledChain { cancelled, requested })
    }

    /// Starts a task again that ended, but not in success. The tasks that depend on it wait again. It keeps
    /// its due time, if that is later than now.
    ///
    /// # Errors
    /// As [`Client::cancel`].
    pub async fn retry(&self, task: TaskId) -> Result<Retried, Error> {
        self.retry_by(json!({ "task": task })).await
    }

    /// The same, due now.
    ///
    /// # Errors
    /// As [`Client::cancel`].
    pub async fn retry_now(&self, task: TaskId) -> Result<Retried, Error> {
        self.retry_by(json!({ "task": task, "due_now": true })).await
    }

    async fn retry_by(&self, arguments: Value) -> Result<Retried, Error> {
        word(self.call(RETRY, "v", arguments).await?.get(0))
    }

    /// The same for the whole chain that a task belongs to; returns how many tasks start again.
    ///
    /// # Errors
    /// As [`Client::cancel_chain`].
    pub async fn retry_chain(&self, task: TaskId) -> Result<u32, Error> {
        let row = self.call(RETRY_CHAIN, "retried", json!({ "task": task })).await?;
        Ok(row.get::<i32>(0).unsigned_abs())
    }

    /// The tasks that a task waits or waited for, and their outputs.
    ///
    /// # Errors
    /// As [`Client::status`]. [`Denied`](crate::ErrorKind::Denied), too: a parent has succeeded, and the caller has
    /// neither the right [`Work`](Privilege::Work) nor [`Inspect`](Privilege::Inspect) on the lambda of the task.
    pub async fn parents(&self, task: TaskId) -> Result<Vec<ParentTask>, Error> {
        let sql = "select id, name, lambda, status, output from tuskline.parents($1)";
        let rows = self.rows(sql, &[(&task.0, Type::INT8)]).await?;
        let parents = rows.iter().map(ParentTask::read).collect::<Result<Vec<_>, _>>()?;
        let hidden = |one: &ParentTask| one.status == Some(Status::Success) && one.output.is_none();
        if parents.iter().any(hidden) {
            self.check_shown(task, &[Privilege::Work, Privilege::Inspect]).await?;
        }
        Ok(parents)
    }
}

impl<S: Sender> Client<S> {
    pub(super) async fn version(&self) -> Result<Option<i32>, Error> {
        Ok(self.rows("select tuskline.version()", &[]).await?[0].get(0))
    }

    /// Refuses a caller without one of these rights on the lambda of a task. The output of a task is null for it,
    /// and would look like nothing.
    pub(super) async fn check_shown(
        &self,
        task: TaskId,
        rights: &[Privilege],
    ) -> Result<(), Error> {
        let rights: Vec<&str> = rights.iter().map(|right| right.as_str()).collect();
        let parameters: &Parameters<'_> = &[(&task.0, Type::INT8), (&rights, Type::TEXT_ARRAY)];
        let rows = match self.rows(HIDDEN, parameters).await {
            // Before there were rights, nothing was hidden.
            Err(error) if error.kind() == ErrorKind::Incompatible => return Ok(()),
            answered => answered?,
        };
        rows.first().map_or(Ok(()), |row| {
            let (text, hint) = (row.get::<String>(0), row.get::<String>(1));
            Err(Error::new(ErrorKind::Denied, text).hinting(hint.as_str()))
        })
    }

    /// The only row of a call that changes something.
    pub(crate) async fn one(&self, sql: &str, parameters: &Parameters<'_>) -> Result<Row, Error> {
        let rows = self.query(sql, parameters, ErrorKind::Unknown).await?;
        rows.into_iter().next().ok_or_else(|| Error::unknown("no answer"))
    }

    /// The rows of a call that changes nothing.
    pub(crate) async fn rows(
        &self,
        sql: &str,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<Row>, Error> {
        self.query(sql, parameters, ErrorKind::Unavailable).await
    }

    /// Each statement of a client passes here: no driver can log a value.
    pub(super) async fn query(
        &self,
        sql: &str,
        parameters: &Parameters<'_>,
        broken: ErrorKind,
    ) -> Result<Vec<Row>, Error> {
        let hidden = hidden(parameters);
        let parameters: Vec<_> = hidden.iter().map(Hidden::typed).collect();
        self.sender.send(sql, &parameters, broken).await
    }
}

/// A row if the caller has none of the rights `$2` on the lambda of the task `$1`: a text and a hint like those of the
/// database's own refusals.
const HIDDEN: &str = "\
    select format('no_right: role %s has no right to %s %s, so outputs are hidden (task %s: %s)', c.role, \
                  array_to_string($2, ' or '), t.lambda, t.id, t.status), \
           format('an owner of the lambda can: select tuskline.grant_lambda(%L, %L, ''inspect'')', t.lambda, c.role) \
      from tuskline.task_status($1) t cross join lateral ( \
        select coalesce(nullif(current_setting('role'), 'none'), session_user::text) as role) c \
     where not exists (select from unnest($2) as r (name) where tuskline.may(t.lambda, r.name))";

/// A value of each task; none: no task has one, and the array is not sent.
fn column<'t, T>(
    tasks: &'t [NewTask],
    value: impl Fn(&'t NewTask) -> Option<T>,
) -> Option<Vec<Option<T>>> {
    let column: Vec<_> = tasks.iter().map(value).collect();
    column.iter().any(Option::is_some).then_some(column)
}
