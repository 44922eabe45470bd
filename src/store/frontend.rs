//! The verbs of the Frontend by RPC. Texts and numbers of tasks pass as they are: nothing here reads a
//! payload or an output.
//!
//! Promises: a statement does nothing unless its session acts as the role. Each is sent together with the
//! statement that sets it ([`in_role`]), and a cancellation may end that one alone.

use chrono::{DateTime, Utc};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error};

use super::rows::{Parameters, column, value};

/// Sets the role, the person for the audit, and the time that a statement may take, for the transaction.
const SET_ROLE: &str = "\
    select set_config('role', $1, true), set_config('tuskline.person', $2, true), \
           set_config('timezone', 'UTC', true), set_config('statement_timeout', '3s', true)";

/// Why a call of a role failed.
#[derive(Debug)]
pub enum RoleError {
    /// The role cannot be set.
    Role(Error),
    /// The call or its transaction.
    Call(Error),
}

/// Makes a call of one statement in a transaction that acts as a role. `person` is for the audit. All of it is sent at
/// once; if the role cannot be set, the transaction is aborted.
///
/// # Errors
/// The connection's or the server's.
pub async fn in_role<T>(
    client: &Client,
    begin: &str,
    (role, person): (&str, &str),
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, RoleError> {
    let parameters: &Parameters<'_> = &[(&role, Type::TEXT), (&person, Type::TEXT)];
    let (begun, set, answer, ended) = tokio::join!(
        biased; // In this order they are sent.
        client.batch_execute(begin),
        client.query_typed(SET_ROLE, parameters),
        call,
        client.batch_execute("commit"),
    );
    begun.map_err(RoleError::Call)?;
    set.map_err(RoleError::Role)?;
    let answer = answer.map_err(RoleError::Call)?;
    ended.map_err(RoleError::Call)?;
    Ok(answer)
}

/// A task to schedule: the arguments of `schedule`.
#[derive(Debug, Default)]
pub struct NewTask {
    /// The lambda.
    pub lambda: String,
    /// JSON text.
    pub payload: Option<String>,
    /// None: normal.
    pub priority: Option<String>,
    /// The collection.
    pub collection: Option<String>,
    /// When it is due.
    pub scheduled_at: Option<DateTime<Utc>>,
    /// How long until it is due, in milliseconds.
    pub delay_ms: Option<i64>,
    /// The key of an order.
    pub ordering_key: Option<String>,
    /// The key of a limit.
    pub limit_key: Option<String>,
    /// The key of a fair share.
    pub fairness_key: Option<String>,
    /// The unique key.
    pub unique_key: Option<String>,
    /// The trace context.
    pub traceparent: Option<String>,
}

/// The arguments of `schedule_many`, from `$1` on.
const TASKS: &str = "$1, $2::text[]::json[], $3, $4, $5, \
    case when $6::int8[] is not null then array( \
      select d * interval '1 millisecond' from unnest($6) with ordinality as u (d, n) order by n) end, \
    $7, $8, $9, $10, $11";

/// Schedules tasks, all or none. With a request id a repeated call schedules nothing. Returns their ids.
///
/// # Errors
/// The connection's or the server's.
pub async fn schedule(
    client: &Client,
    role: &str,
    request_id: Option<&str>,
    tasks: &[NewTask],
) -> Result<Vec<i64>, Error> {
    let lambdas: Vec<&str> = tasks.iter().map(|task| task.lambda.as_str()).collect();
    let texts: [_; 8] = [
        texts(tasks, |task| task.payload.as_deref()),
        texts(tasks, |task| task.priority.as_deref()),
        texts(tasks, |task| task.collection.as_deref()),
        texts(tasks, |task| task.ordering_key.as_deref()),
        texts(tasks, |task| task.limit_key.as_deref()),
        texts(tasks, |task| task.fairness_key.as_deref()),
        texts(tasks, |task| task.unique_key.as_deref()),
        texts(tasks, |task| task.traceparent.as_deref()),
    ];
    let [payloads, priorities, collections, orders, limits, shares, keys, traces] = &texts;
    let due = of_each(tasks, |task| task.scheduled_at);
    let delays = of_each(tasks, |task| task.delay_ms);
    let mut parameters: Vec<(&(dyn ToSql + Sync), Type)> = vec![
        (&lambdas, Type::TEXT_ARRAY),
        (payloads, Type::TEXT_ARRAY),
        (priorities, Type::TEXT_ARRAY),
        (collections, Type::TEXT_ARRAY),
        (&due, Type::TIMESTAMPTZ_ARRAY),
        (&delays, Type::INT8_ARRAY),
        (orders, Type::TEXT_ARRAY),
        (limits, Type::TEXT_ARRAY),
        (shares, Type::TEXT_ARRAY),
        (keys, Type::TEXT_ARRAY),
        (traces, Type::TEXT_ARRAY),
        (&role, Type::TEXT),
    ];
    let verb = match &request_id {
        None => "schedule_many(",
        Some(request_id) => {
            parameters.push((request_id, Type::TEXT));
            "schedule_once($13, "
        }
    };
    let sql = format!("select tuskline.{verb}{TASKS}) where current_setting('role') = $12");
    value(client, &sql, &parameters).await
}

/// A value of each task; none: no task has one.
fn of_each<'t, T>(
    tasks: &'t [NewTask],
    value: impl Fn(&'t NewTask) -> Option<T>,
) -> Option<Vec<Option<T>>> {
    let values: Vec<_> = tasks.iter().map(value).collect();
    values.iter().any(Option::is_some).then_some(values)
}

fn texts<'t>(
    tasks: &'t [NewTask],
    value: impl Fn(&'t NewTask) -> Option<&'t str>,
) -> Option<Vec<Option<&'t str>>> {
    of_each(tasks, value)
}

/// Cancels a task. Returns the word of the verb.
///
/// # Errors
/// The connection's or the server's.
pub async fn cancel(
    client: &Client,
    role: &str,
    task: i64,
    reason: Option<&str>,
) -> Result<String, Error> {
    let parameters: &Parameters<'_> =
        &[(&task, Type::INT8), (&reason, Type::TEXT), (&role, Type::TEXT)];
    let sql = "select tuskline.cancel($1, $2) where current_setting('role') = $3";
    value(client, sql, parameters).await
}

/// The status of a task as JSON text, with ids and JSON of applications as strings. Fields that are null are
/// left out. None: there is no such task.
///
/// # Errors
/// The connection's or the server's.
pub async fn status(client: &Client, role: &str, task: i64) -> Result<Option<String>, Error> {
    let sql = "select json_strip_nulls(row_to_json(s))::text \
          from tuskline.task_status($1) t cross join lateral ( \
            select t.id::text, t.lambda, t.collection, t.priority, t.status, t.attempt, t.max_attempts, \
                   t.crashes, t.due_at, t.created_at, t.started_at, t.finished_at, t.next_trigger_at, \
                   t.executor_id::text, t.host, t.pid, t.lease_until, t.cancel_requested_at, t.failures, \
                   t.error_class, t.error, t.output::text, t.payload::text, t.percent, t.message, \
                   t.checkpoint::text, t.said_at, t.ordering_key, t.limit_key, t.fairness_key, \
                   t.unique_key, t.traceparent) s \
         where current_setting('role') = $2";
    Ok(column(client, sql, &[(&task, Type::INT8), (&role, Type::TEXT)]).await?.into_iter().next())
}

/// Every reason why a task does not run, as the text of a JSON array.
///
/// # Errors
/// The connection's or the server's.
pub async fn explain(client: &Client, role: &str, task: i64) -> Result<String, Error> {
    let sql = "select coalesce(json_agg(json_strip_nulls(row_to_json(r)) order by e.no), '[]')::text \
          from tuskline.explain($1) with ordinality as e (reason, detail, cause, remedy, no) \
               cross join lateral (select e.reason, e.detail, e.cause, e.remedy) r \
         where current_setting('role') = $2";
    value(client, sql, &[(&task, Type::INT8), (&role, Type::TEXT)]).await
}
