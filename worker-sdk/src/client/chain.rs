//! Chains: tasks that wait for each other, scheduled in one call and one transaction.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::client::new_task::{Due, NewTask};
use crate::client::payload::IntoTask;
use crate::client::session::Row;
use crate::client::status::json;
use crate::error::{Code, Error};
use crate::task::{Status, TaskId};

/// For what end of another task one waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum On {
    /// It succeeded.
    Success,
    /// It ended otherwise: failed, dead, cancelled or dropped.
    Failure,
    /// It ended.
    Always,
}

/// The effect on a task when a parent ends without success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnParentFailure {
    /// It is cancelled, and so are those that wait for its success.
    #[default]
    Cancel,
    /// It is held until that one is retried.
    Hold,
    /// It runs all the same, once all have ended.
    Run,
}

/// Tasks that wait for each other, to be scheduled together; see [`Client::schedule_chain`].
///
/// # Example
/// ```no_run
/// # use tuskline_sdk::{Chain, Client, Error, NewTask, On};
/// # async fn publish(client: &Client) -> Result<(), Error> {
/// let mut chain = Chain::new();
/// let fetch = chain.task(NewTask::new("fetch", &"https://example.org/feed"));
/// let parts = [1, 2, 3].map(|part| NewTask::new("parse", &part));
/// let mut parsed = Vec::new();
/// for part in parts {
///     let part = chain.task(part);
///     chain.after(part, fetch);
///     parsed.push(part);
/// }
/// let publish = chain.task(NewTask::new("publish", &"feed"));
/// for part in parsed {
///     chain.after(publish, part);
/// }
/// let clean = chain.task(NewTask::new("clean_up", &"feed"));
/// chain.after_end(clean, publish, On::Always);
/// let scheduled = client.schedule_chain(&chain).await?;
/// println!("chain {}, published by task {}", scheduled.chain, scheduled.id(publish));
/// # Ok(())
/// # }
/// ```
///
/// [`Client::schedule_chain`]: crate::Client::schedule_chain
#[derive(Debug, Clone, Default)]
pub struct Chain {
    links: Vec<Link>,
}

/// A task of a [`Chain`] that is being put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Node(usize);

/// A task to wait for: one of the same chain, or one that was scheduled before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Parent {
    /// A task of the chain that is being put together.
    Node(Node),
    /// A task that there is already: of another chain, of none, or the one that is running.
    Task(TaskId),
}

impl From<Node> for Parent {
    fn from(node: Node) -> Self {
        Self::Node(node)
    }
}

impl From<TaskId> for Parent {
    fn from(task: TaskId) -> Self {
        Self::Task(task)
    }
}

#[derive(Debug, Clone)]
struct Link {
    task: NewTask,
    name: Option<String>,
    on_parent_failure: OnParentFailure,
    after: Vec<(Parent, On)>,
}

/// A chain that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scheduled {
    /// Number of the chain: of the task that began it.
    pub chain: TaskId,
    /// Its tasks, in the order in which they were added.
    pub ids: Vec<TaskId>,
}

/// A batch that was accepted, with the task that runs after it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduledBatch {
    /// The tasks of the batch, in their order.
    pub ids: Vec<TaskId>,
    /// The task that runs when all of them have ended.
    pub then: TaskId,
}

/// The effect of cancelling a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CancelledChain {
    /// Tasks that were cancelled.
    pub cancelled: u32,
    /// Tasks that run and were asked to stop.
    pub requested: u32,
}

impl Scheduled {
    /// The task that a node became.
    ///
    /// # Panics
    /// For a node of another chain that is longer than this one.
    pub fn id(&self, node: Node) -> TaskId {
        self.ids[node.0]
    }
}

/// A task that another waits or waited for, as [`Context::parents`](crate::Context::parents) tells.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ParentTask {
    /// The task.
    pub id: TaskId,
    /// Its name in the chain.
    pub name: String,
    /// Its lambda; none: past its retention.
    pub lambda: Option<String>,
    /// Its status; none: the database no longer knows.
    pub status: Option<Status>,
    /// The value that it returned.
    pub output: Option<serde_json::Value>,
}

impl Chain {
    /// A chain of no tasks yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a task that waits for no other task so far.
    pub fn task(&mut self, task: impl IntoTask) -> Node {
        let task = task.into_task();
        let (name, on_parent_failure, after) = (None, OnParentFailure::Cancel, Vec::new());
        self.links.push(Link { task, name, on_parent_failure, after });
        Node(self.links.len() - 1)
    }

    /// Names a task within the chain, for people; else it is called after its lambda and place.
    pub fn name(&mut self, node: Node, name: &str) -> &mut Self {
        self.links[node.0].name = Some(name.to_owned());
        self
    }

    /// `node` waits for the success of `parent`.
    pub fn after(&mut self, node: Node, parent: impl Into<Parent>) -> &mut Self {
        self.after_end(node, parent, On::Success)
    }

    /// `node` waits for an end of `parent`.
    pub fn after_end(&mut self, node: Node, parent: impl Into<Parent>, on: On) -> &mut Self {
        self.links[node.0].after.push((parent.into(), on));
        self
    }

    /// The effect on `node` when a parent fails; [`OnParentFailure::Cancel`] unless set.
    pub fn on_parent_failure(&mut self, node: Node, then: OnParentFailure) -> &mut Self {
        self.links[node.0].on_parent_failure = then;
        self
    }

    /// One task after all of these.
    pub(super) fn after_all(ids: &[TaskId], on: On, then: impl IntoTask) -> Self {
        let mut chain = Self::new();
        let node = chain.task(then);
        for id in ids {
            chain.after_end(node, *id, on);
        }
        chain
    }

    /// As `tuskline.schedule_chain` reads it.
    pub(crate) fn to_json(&self) -> Result<String, Error> {
        let tasks: Result<Vec<_>, Error> =
            (0..self.links.len()).map(|place| self.link(place)).collect();
        serde_json::to_string(&tasks?).map_err(broken)
    }

    fn link(&self, place: usize) -> Result<LinkJson<'_>, Error> {
        let Link { task, on_parent_failure, after, .. } = &self.links[place];
        if task.keys.unique.is_some() {
            let name = self.name_of(Node(place));
            let text = format!(
                "a task with a parent or a child in the chain has no unique key (task {name})"
            );
            return Err(Error::refused(Code::InvalidChain, text));
        }
        let (scheduled_at, delay_ms) = match task.due {
            Due::Now => (None, None),
            Due::At(at) => (Some(at), None),
            Due::In(delay) => (None, Some(delay.as_millis())),
        };
        let arrow = |(parent, on): &(Parent, On)| ArrowJson {
            task: match parent {
                Parent::Node(node) => NameOrId::Name(self.name_of(*node)),
                Parent::Task(id) => NameOrId::Id(id.0),
            },
            on: *on,
        };
        Ok(LinkJson {
            name: self.name_of(Node(place)),
            lambda: &task.lambda,
            payload: serde_json::from_str(self.checked(place)?).map_err(broken)?,
            priority: task.priority.as_str(),
            collection: task.collection.as_deref(),
            ordering_key: task.keys.ordering.as_deref(),
            limit_key: task.keys.limit.as_deref(),
            fairness_key: task.keys.fairness.as_deref(),
            traceparent: task.traceparent.as_deref(),
            scheduled_at,
            delay_ms,
            on_parent_failure: *on_parent_failure,
            after: after.iter().map(arrow).collect(),
        })
    }

    fn checked(&self, place: usize) -> Result<&str, Error> {
        let (number, all) = (place + 1, self.links.len());
        let place_of = || format!("task {}, {number} of {all}", self.name_of(Node(place)));
        self.links[place].task.checked().map_err(|error| error.at(place_of()))
    }

    fn name_of(&self, node: Node) -> String {
        let Some(link) = self.links.get(node.0) else { return format!("node_{}", node.0) };
        link.name.clone().unwrap_or_else(|| format!("{}_{}", link.task.lambda, node.0 + 1))
    }
}

fn broken(error: serde_json::Error) -> Error {
    Error::refused(Code::InvalidPayload, error)
}

#[derive(Serialize)]
struct LinkJson<'a> {
    name: String,
    lambda: &'a str,
    payload: &'a RawValue,
    priority: &'static str,
    collection: Option<&'a str>,
    ordering_key: Option<&'a str>,
    limit_key: Option<&'a str>,
    fairness_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
    scheduled_at: Option<chrono::DateTime<chrono::Utc>>,
    delay_ms: Option<u128>,
    on_parent_failure: OnParentFailure,
    after: Vec<ArrowJson>,
}

#[derive(Serialize)]
struct ArrowJson {
    task: NameOrId,
    on: On,
}

#[derive(Serialize)]
#[serde(untagged)]
enum NameOrId {
    Name(String),
    Id(i64),
}

impl ParentTask {
    pub(super) fn read(row: &Row) -> Result<Self, Error> {
        let status: Option<&str> = row.get(3);
        Ok(Self {
            id: TaskId(row.get(0)),
            name: row.get(1),
            lambda: row.get(2),
            status: status.map(str::parse).transpose()?,
            output: json(row, 4),
        })
    }
}
