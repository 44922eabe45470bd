//! One task of a test's database, with what is kept of it elsewhere.

use chrono::{DateTime, TimeDelta, Utc};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use tuskline_sdk::{Priority, Status, TaskId};

use super::{Database, Error, report};

/// Every task, or the task $1, with what is kept of it elsewhere.
pub(super) const TASKS: &str = "
    with c as materialized (select tuskline.clock() as now),
         s as (select * from tuskline.task union all select * from tuskline.task_kept),
         m as (select task_id, min(due) as due from tuskline.timer group by task_id)
    select s.id, s.lambda, s.collection, s.priority::text as priority, s.status::text as status, s.attempt, s.fence, s.payload::text as payload,
           s.ordering_key, s.limit_key, s.fairness_key, s.unique_key, o.output::text as output, s.created_at,
           coalesce(case when s.status in ('new', 'retriable_failure') then m.due end, s.scheduled_at, s.created_at) as due_at, c.now,
           f.attempts, f.classes, f.messages, f.fences, f.times
      from c cross join s
           left join m on m.task_id = s.id
           left join tuskline.task_output o on o.task_id = s.id
           left join lateral (
             select array_agg(e.attempt order by e.failed_at, e.fence) as attempts, array_agg(e.error_class order by e.failed_at, e.fence) as classes,
                    array_agg(e.message order by e.failed_at, e.fence) as messages, array_agg(e.fence order by e.failed_at, e.fence) as fences,
                    array_agg(e.failed_at order by e.failed_at, e.fence) as times
               from tuskline.task_failure e where e.task_id = s.id) f on true
     where $1::bigint is null or s.id = $1
     order by s.id";

/// A task, as it was when it was looked at.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Task {
    /// Its number.
    pub id: TaskId,
    /// Its lambda.
    pub lambda: String,
    /// Its collection.
    pub collection: Option<String>,
    /// Its priority.
    pub priority: Priority,
    /// Where it stands.
    pub status: Status,
    /// Attempts so far, the present one included; a snooze uses up none.
    pub attempt: i16,
    /// Its payload.
    pub payload: Value,
    /// Value that its body returned, if it did.
    pub output: Option<Value>,
    /// Its failed attempts, oldest first.
    pub failures: Vec<Failure>,
    /// Key of its ordering policy.
    pub ordering_key: Option<String>,
    /// Key that limits by key count by.
    pub limit_key: Option<String>,
    /// Tenant under a fair limit.
    pub fairness_key: Option<String>,
    /// Unique key.
    pub unique_key: Option<String>,
    /// When it was scheduled.
    pub created_at: DateTime<Utc>,
    /// When it is due next: as it was scheduled, or for another attempt.
    pub due_at: DateTime<Utc>,
    /// From the time of the look until then; negative: it was due before.
    pub due_in: TimeDelta,
    pub(super) fence: i64,
}

/// An attempt that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// The task.
    pub task: TaskId,
    /// Number of the attempt, from 1.
    pub attempt: i16,
    /// `error`, `fatal`, `panic`, `decode`, `timeout`, `output`, ... as in `tuskline.task_failure`.
    pub class: String,
    /// Message of its last failure.
    pub message: String,
    pub(super) failed_at: DateTime<Utc>,
    pub(super) fence: i64,
}

impl Task {
    pub(super) async fn read(db: &Database, id: TaskId) -> Result<Self, Error> {
        let row = db.own().query_opt(TASKS, &[&id.0]).await?.ok_or(Error::NoSuchTask(id))?;
        Self::of_row(&row)
    }

    /// It has ended, and by success.
    ///
    /// # Panics
    /// Else, and tells its story.
    #[track_caller]
    pub fn assert_succeeded(&self) -> &Self {
        if self.status != Status::Success {
            panic!("expected task {} to succeed, but\n{}", self.id, self.story());
        }
        self
    }

    /// Its payload, decoded.
    ///
    /// # Errors
    /// It is no `P`.
    pub fn payload_as<P: DeserializeOwned>(&self) -> Result<P, serde_json::Error> {
        P::deserialize(&self.payload)
    }

    /// Value that its body returned, decoded.
    ///
    /// # Panics
    /// It has returned nothing, or no `T`.
    #[track_caller]
    pub fn output_as<T: DeserializeOwned>(&self) -> T {
        let Some(output) = &self.output else {
            panic!("task {} has no output\n{}", self.id, self.story());
        };
        match T::deserialize(output) {
            Ok(decoded) => decoded,
            Err(error) => {
                panic!("the output of task {} does not decode: {error}\n    {output}", self.id)
            }
        }
    }

    /// How it came to where it stands, for people.
    pub(super) fn story(&self) -> String {
        let mut text = String::new();
        report::stories(&mut text, &[self]);
        text.trim_end().to_owned()
    }

    pub(super) fn of_row(row: &Row) -> Result<Self, Error> {
        // Accepted JSON always parses; a number beyond f64 is the one thing that may not.
        let json = |column: &str| {
            let text: Option<String> = row.get(column);
            text.map(|text| serde_json::from_str(&text).unwrap_or(Value::String(text)))
        };
        let (id, due_at): (i64, DateTime<Utc>) = (row.get("id"), row.get("due_at"));
        let now: DateTime<Utc> = row.get("now");
        Ok(Self {
            id: TaskId(id),
            lambda: row.get("lambda"),
            collection: row.get("collection"),
            priority: row.get::<_, &str>("priority").parse()?,
            status: row.get::<_, &str>("status").parse()?,
            attempt: row.get("attempt"),
            payload: json("payload").unwrap_or_default(),
            output: json("output"),
            failures: failures(row, TaskId(id)),
            ordering_key: row.get("ordering_key"),
            limit_key: row.get("limit_key"),
            fairness_key: row.get("fairness_key"),
            unique_key: row.get("unique_key"),
            created_at: row.get("created_at"),
            due_at,
            due_in: due_at - now,
            fence: row.get("fence"),
        })
    }
}

fn failures(row: &Row, task: TaskId) -> Vec<Failure> {
    let attempts: Vec<i16> = list(row, "attempts");
    let (classes, messages): (Vec<String>, Vec<String>) =
        (list(row, "classes"), list(row, "messages"));
    let (fences, times): (Vec<i64>, Vec<DateTime<Utc>>) = (list(row, "fences"), list(row, "times"));
    let texts = classes.into_iter().zip(messages);
    let places = fences.into_iter().zip(times);
    let all = attempts.into_iter().zip(texts).zip(places);
    all.map(|((attempt, (class, message)), (fence, failed_at))| Failure {
        task,
        attempt,
        class,
        message,
        failed_at,
        fence,
    })
    .collect()
}

/// An array; none: a task without failures.
fn list<'r, T: FromSql<'r>>(row: &'r Row, column: &str) -> Vec<T> {
    row.get::<_, Option<Vec<T>>>(column).unwrap_or_default()
}
