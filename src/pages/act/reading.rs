//! The facts of a preview: the thing, the right of the role, the tasks counted now, and a sample.
//!
//! Promises: nothing changes. Tasks are counted to [`MOST`].

use serde::Serialize;
use serde_json::{Value, json};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};
use tuskline_sdk::verbs::{ALL_ROWS, PREVIEW_OPERATION};

use super::given::Given;
use super::verbs::Of;
use crate::pages::parts::encoded;
use crate::pages::table::{Column, Kind, text};
use crate::store::rows::rows;

/// Tasks that are counted.
pub const MOST: i64 = 100_000;
/// Tasks in the sample.
const SAMPLE: usize = 5;

/// The facts of an act from the database.
#[derive(Debug)]
pub struct Seen {
    /// The thing that it changes, or the tasks of a chain.
    pub rows: Vec<Value>,
    pub right: Right,
    pub count: Option<Count>,
    pub sample: Vec<Value>,
}

/// Whether the role may act.
#[derive(Debug)]
pub struct Right {
    /// It may call the function.
    pub may_call: bool,
    /// Groups of roles that may.
    pub groups: Vec<String>,
    /// A lambda on which it lacks the right.
    pub barred: Option<String>,
}

/// Tasks by status.
#[derive(Debug, Clone, Serialize)]
pub struct Count {
    pub tasks: i64,
    /// There are more.
    pub and_more: bool,
    pub by_status: Vec<(String, i64)>,
    #[serde(skip)]
    first: Vec<i64>,
}

/// The role, the function, and the lambdas of the thing.
const RIGHT: &str = "
    select has_function_privilege(p.oid, 'execute'),
           array(select r.rolname::text from aclexplode(p.proacl) a
                        join pg_roles r on r.oid = a.grantee
                  where a.privilege_type = 'EXECUTE' and starts_with(r.rolname, 'tuskline_')
                  order by 1),
           (select l.lambda from unnest($3) as l (lambda)
             where not exists (select from unnest($2) as w (privilege)
                                where tuskline.may(l.lambda, w.privilege)) limit 1)
      from pg_proc p
     where p.pronamespace = 'tuskline'::regnamespace and p.proname = $1
     order by p.pronargs desc limit 1";

const TASK: &str = "select id, lambda, status, attempt, due_at
                      from tuskline.task_facts($1::text::bigint)";
const CHAIN: &str = "
    select task_id as id, name, lambda, status, waits_for from tuskline.chain_tasks
     where chain_id = (select c.chain_id from tuskline.chain_tasks c
                        where c.task_id = $1::text::bigint)
     order by depth, task_id limit 1001";
const LAMBDA: &str = "select name as lambda from tuskline.lambda where name = $1";
const GATE: &str = "select gate_id, lambda, action, collection, priority, parked, reason, author
                      from tuskline.gates where gate_id = $1::text::bigint and opened_at is null";
const LIMIT: &str = "
    select limit_id, lambda, kind, max_concurrency, per_second, burst, collection, priority, held,
           waiting, reason, author
      from tuskline.limits where limit_id = $1::text::bigint and dropped_at is null";
const PERIODIC: &str = "select name, lambda, cron, zone, enabled, next_tick
                          from tuskline.periodics where name = $1";
const OPERATION: &str =
    "select operation_id, lambda, action, state, changed, looked, reason, author
                           from tuskline.operations where operation_id = $1::text::bigint";
const SAMPLED: &str = "
    select t.id, t.lambda, t.status, t.attempt, coalesce(t.finished_at, t.created_at) as at
      from tuskline.tasks t where t.id = any ($1) order by t.id";

impl Of {
    /// How the thing is read by the value of a field.
    fn source(self) -> (&'static str, &'static str) {
        match self {
            Self::Task => (TASK, "task"),
            Self::Chain => (CHAIN, "task"),
            Self::Lambda | Self::Key | Self::Tasks => (LAMBDA, "lambda"),
            Self::Gate => (GATE, "gate"),
            Self::Limit => (LIMIT, "limit"),
            Self::Periodic => (PERIODIC, "name"),
            Self::Operation => (OPERATION, "operation"),
        }
    }

    /// Columns of the thing on the page.
    pub fn columns(self) -> &'static [Column] {
        const TASKS: [Column; 4] = [
            Column::new("Task", "id", Kind::Link("tasks")),
            Column::new("Lambda", "lambda", Kind::Link("lambdas")),
            Column::new("Status", "status", Kind::State),
            Column::wide("Attempt", "attempt", Kind::Count),
        ];
        const CHAIN: [Column; 4] = [
            Column::new("Task", "id", Kind::Link("tasks")),
            Column::wide("Name", "name", Kind::Code),
            Column::new("Lambda", "lambda", Kind::Link("lambdas")),
            Column::new("Status", "status", Kind::State),
        ];
        const GATE: [Column; 4] = [
            Column::new("Gate", "gate_id", Kind::Code).above("reason"),
            Column::new("Does", "action", Kind::Text),
            Column::new("Lambda", "lambda", Kind::Link("lambdas")),
            Column::new("Parked", "parked", Kind::Count),
        ];
        const LIMIT: [Column; 6] = [
            Column::new("Limit", "limit_id", Kind::Code).above("reason"),
            Column::new("Kind", "kind", Kind::Text),
            Column::new("Lambda", "lambda", Kind::Link("lambdas")),
            Column::wide("At a time", "max_concurrency", Kind::Count),
            Column::wide("Per second", "per_second", Kind::Text),
            Column::new("Waiting", "waiting", Kind::Count),
        ];
        const PERIODIC: [Column; 4] = [
            Column::new("Schedule", "name", Kind::Link("periodic")),
            Column::new("Lambda", "lambda", Kind::Link("lambdas")),
            Column::wide("Cron", "cron", Kind::Code).above("zone"),
            Column::new("Next", "next_tick", Kind::Age),
        ];
        const OPERATION: [Column; 4] = [
            Column::new("Operation", "operation_id", Kind::Code).above("reason"),
            Column::new("Action", "action", Kind::Text),
            Column::new("State", "state", Kind::State),
            Column::new("Changed", "changed", Kind::Count),
        ];
        match self {
            Self::Task => &TASKS,
            Self::Chain => &CHAIN,
            Self::Lambda | Self::Key | Self::Tasks => &[],
            Self::Gate => &GATE,
            Self::Limit => &LIMIT,
            Self::Periodic => &PERIODIC,
            Self::Operation => &OPERATION,
        }
    }

    /// The text for a thing that is not there.
    pub fn missing(self) -> &'static str {
        match self {
            Self::Task => "no task has this id, or its retention is over",
            Self::Chain => "the task is in no chain",
            Self::Lambda | Self::Key | Self::Tasks => "there is no lambda of this name",
            Self::Gate => "no gate of this number is set",
            Self::Limit => "there is no limit of this number",
            Self::Periodic => "there is no schedule of this name",
            Self::Operation => "there is no operation of this number",
        }
    }
}

impl Seen {
    /// Reads up to four statements. None: there is no such thing.
    ///
    /// # Errors
    /// The connection's or the server's.
    pub async fn read(client: &Client, given: &Given) -> Result<Option<Self>, Error> {
        let (source, key) = given.act.of.source();
        let found: Vec<Value> = match given.text(key) {
            Some(key) => rows(client, source, &[(&key, Type::TEXT)]).await?,
            None => Vec::new(),
        };
        if given.text(key).is_some() && found.is_empty() {
            return Ok(None);
        }
        let right = Right::read(client, given, &found).await?;
        let is_whole = given.missing().is_none() && right.has();
        let count = match given.act.of {
            Of::Tasks if is_whole => Some(counted(client, &given.filter(MOST + 1)).await?),
            Of::Lambda if is_whole => Some(counted(client, &waiting(given)).await?),
            Of::Chain => Some(Count::of_rows(&found)),
            _ => None,
        };
        let first = count.as_ref().filter(|_| given.act.of != Of::Chain).map(|one| &one.first);
        let sample = match first {
            Some(ids) => rows(client, SAMPLED, &[(ids, Type::INT8_ARRAY)]).await?,
            None => Vec::new(),
        };
        Ok(Some(Self { rows: found, right, count, sample }))
    }

    /// Number that the confirmation is bound to.
    pub fn number(&self, given: &Given) -> i64 {
        let counted = self.count.as_ref().filter(|_| given.act.is_counted());
        counted.map_or(1, |count| count.tasks)
    }
}

impl Right {
    async fn read(client: &Client, given: &Given, rows: &[Value]) -> Result<Self, Error> {
        let mut lambdas: Vec<&str> = rows.iter().filter_map(|row| row["lambda"].as_str()).collect();
        lambdas.sort_unstable();
        lambdas.dedup();
        let (name, rights) = (given.act.verb.name, given.act.rights);
        let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
            [(&name, Type::TEXT), (&rights, Type::TEXT_ARRAY), (&lambdas, Type::TEXT_ARRAY)];
        let row = client.query_typed_one(RIGHT, &parameters).await?;
        Ok(Self { may_call: row.get(0), groups: row.get(1), barred: row.get(2) })
    }

    pub fn has(&self) -> bool {
        self.may_call && self.barred.is_none()
    }
}

/// The tasks that a gate or a limit of this scope holds back.
fn waiting(given: &Given) -> Value {
    json!({
        "action": "cancel", "lambda": given.text("lambda"), "collection": given.text("collection"),
        "priority": given.text("priority"), "limit": (MOST + 1).to_string(),
        "statuses": ["new", "enqueued", "retriable_failure"],
    })
}

async fn counted(client: &Client, filter: &Value) -> Result<Count, Error> {
    let row = PREVIEW_OPERATION.row(client, ALL_ROWS, filter).await?;
    let groups: Vec<Value> = serde_json::from_str(row.try_get(0)?).unwrap_or_default();
    Ok(Count::of_groups(&groups))
}

impl Count {
    fn of_groups(groups: &[Value]) -> Self {
        let mut count =
            Self { tasks: 0, and_more: false, by_status: Vec::new(), first: Vec::new() };
        for group in groups {
            let tasks = group["tasks"].as_i64().unwrap_or_default();
            count.add(&text(&group["status"]), tasks);
            let ids = group["first_ids"].as_array().into_iter().flatten();
            count.first.extend(ids.filter_map(Value::as_i64));
        }
        count.first.sort_unstable();
        count.first.truncate(SAMPLE);
        count.and_more = count.tasks > MOST;
        count.tasks = count.tasks.min(MOST);
        count
    }

    fn of_rows(rows: &[Value]) -> Self {
        let mut count =
            Self { tasks: 0, and_more: false, by_status: Vec::new(), first: Vec::new() };
        for row in rows {
            count.add(&text(&row["status"]), 1);
        }
        count
    }

    fn add(&mut self, status: &str, tasks: i64) {
        self.tasks += tasks;
        match self.by_status.iter_mut().find(|(one, _)| one == status) {
            Some((_, sum)) => *sum += tasks,
            None => self.by_status.push((status.to_owned(), tasks)),
        }
    }
}

/// Where an act leads: the page of what it changed.
pub fn page_of(given: &Given, rows: &[Value], outcome: &str) -> String {
    let lambda = rows.first().map(|row| text(&row["lambda"]));
    let of =
        |path: &str, name: Option<&str>| format!("{path}/{}", encoded(name.unwrap_or_default()));
    match given.act.of {
        Of::Task => of("tasks", given.text("task")),
        Of::Chain => of("chains", given.text("task")),
        Of::Lambda | Of::Key | Of::Gate | Of::Limit => of("lambdas", lambda.as_deref()),
        Of::Periodic if given.act.name == "run_periodic" && !outcome.is_empty() => {
            of("tasks", Some(outcome))
        }
        Of::Periodic => of("periodic", given.text("name")),
        Of::Operation => of("operations", given.text("operation")),
        Of::Tasks if outcome.is_empty() => "tasks".to_owned(),
        Of::Tasks => of("operations", Some(outcome)),
    }
}
