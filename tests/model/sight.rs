//! The contents of the tables, read in one go, and the rules that hold after any step.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tokio_postgres::{Client, Row, Statement};

/// The start of every case; times are milliseconds after it.
pub const BASE: &str = "timestamptz '2031-01-01 00:00:00Z'";

/// A row of `task`.
#[derive(Debug, Clone)]
pub struct SeenTask {
    pub status: String,
    pub fence: i64,
    pub attempt: i16,
    pub crashes: i16,
    pub trigger: Option<f64>,
    pub is_finished: bool,
}

impl SeenTask {
    fn is_held(&self) -> bool {
        matches!(self.status.as_str(), "claimed" | "processing")
    }

    fn waits(&self) -> bool {
        matches!(self.status.as_str(), "new" | "retriable_failure")
    }

    pub fn is_terminal(&self) -> bool {
        !self.is_held() && !self.waits() && self.status != "enqueued"
    }
}

/// All that the verbs keep.
#[derive(Debug, Default)]
pub struct Sight {
    pub booted: bool,
    pub tasks: BTreeMap<i64, SeenTask>,
    /// Lambda, priority, task; oldest row first.
    pub queued: Vec<(String, String, i64)>,
    pub timers: Vec<(f64, i64)>,
    /// Executor, lease, tasks.
    pub leases: Vec<(i64, i64, Vec<i64>)>,
    /// Whether each has ended.
    pub executors: BTreeMap<i64, bool>,
    pub requests: BTreeMap<i64, i64>,
    pub failures: HashMap<i64, i64>,
    pub outputs: BTreeSet<i64>,
}

/// A session that looks.
pub struct Eye {
    looks: Vec<Statement>,
}

impl Eye {
    /// Prepares the questions.
    pub async fn new(client: &Client) -> Self {
        let ms = |of: &str| format!("(1000 * extract(epoch from {of} - {BASE}))::float8");
        let questions = [
            "select exists (select from tuskline_core.queues_complete)".to_owned(),
            format!(
                "select id, status::text, fence, attempt, crashes, {}, finished_at is not null from tuskline.task",
                ms("next_trigger_at")
            ),
            "select q.lambda, q.priority::text, d.task_id from tuskline.queued d join tuskline.queue q using (queue_id) order by d.seq".to_owned(),
            format!("select {}, task_id from tuskline.timer", ms("due")),
            "select executor_id, lease_id, task_ids from tuskline.lease".to_owned(),
            "select executor_id, ended_at is not null from tuskline.executor".to_owned(),
            "select task_id, fence from tuskline.cancellation".to_owned(),
            "select task_id, count(*) from tuskline.task_failure group by 1".to_owned(),
            "select task_id from tuskline.task_output".to_owned(),
        ];
        let mut looks = Vec::new();
        for question in questions {
            looks.push(client.prepare(&question).await.unwrap());
        }
        Self { looks }
    }

    /// Looks at everything.
    pub async fn look(&self, client: &Client) -> Sight {
        let asked = self.looks.iter().map(|look| client.query(look, &[]));
        let said = futures_util::future::try_join_all(asked).await.unwrap();
        Sight {
            booted: said[0][0].get(0),
            tasks: said[1].iter().map(|row| (row.get(0), task(row))).collect(),
            queued: said[2].iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect(),
            timers: said[3].iter().map(|row| (row.get(0), row.get(1))).collect(),
            leases: said[4].iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect(),
            executors: said[5].iter().map(|row| (row.get(0), row.get(1))).collect(),
            requests: said[6].iter().map(|row| (row.get(0), row.get(1))).collect(),
            failures: said[7].iter().map(|row| (row.get(0), row.get(1))).collect(),
            outputs: said[8].iter().map(|row| row.get(0)).collect(),
        }
    }
}

fn task(row: &Row) -> SeenTask {
    SeenTask {
        status: row.get(1),
        fence: row.get(2),
        attempt: row.get(3),
        crashes: row.get(4),
        trigger: row.get(5),
        is_finished: row.get(6),
    }
}

impl Sight {
    /// Tasks that nothing would ever find again, and marks that nothing would ever take away, but for
    /// tasks known to be astray.
    pub fn net(&self, astray: &BTreeSet<i64>) -> Vec<String> {
        let mut torn = Vec::new();
        for (id, task) in self.tasks.iter().filter(|(id, _)| !astray.contains(id)) {
            let holders =
                self.leases.iter().filter(|l| l.1 == task.fence && l.2.contains(id)).count();
            let in_time = |(due, of): &(f64, i64)| of == id && Some(*due) == task.trigger;
            let holds = match task.status.as_str() {
                "enqueued" => !self.booted || self.queued.iter().any(|row| row.2 == *id),
                "claimed" | "processing" => holders == 1 && task.fence > 0,
                _ if task.waits() => self.timers.iter().any(in_time),
                _ => !self.timers.iter().any(|timer| timer.1 == *id) && task.trigger.is_none(),
            };
            if !holds {
                torn.push(format!("nothing points to task {id}, or too much: {task:?}"));
            }
            if task.is_finished != task.is_terminal() || task.attempt < 0 || task.crashes < 0 {
                torn.push(format!("task {id} cannot be: {task:?}"));
            }
        }
        torn.extend(self.strays());
        torn
    }

    /// Rows without an owner.
    fn strays(&self) -> Vec<String> {
        let mut strays = Vec::new();
        for (executor, lease, _) in &self.leases {
            if !self.executors.contains_key(executor) {
                strays.push(format!("lease {lease} of no executor"));
            }
        }
        for (task, fence) in &self.requests {
            if !self.tasks.get(task).is_some_and(|task| task.is_held() && task.fence == *fence) {
                strays.push(format!("task {task} is asked to stop under {fence}, which is over"));
            }
        }
        strays
    }

    /// Tasks that have not ended.
    pub fn open(&self) -> Vec<i64> {
        self.tasks.iter().filter(|(_, task)| !task.is_terminal()).map(|(id, _)| *id).collect()
    }
}
