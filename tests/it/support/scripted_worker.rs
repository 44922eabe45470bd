//! A scripted worker: it calls the verbs by SQL, each at the moment when the test asks for it.

use std::time::Duration;

use tokio_postgres::{Client, GenericClient, Row};

use super::{Db, refusal};

/// Lease of a scripted worker, unless it gets another.
pub const LEASE: Duration = Duration::from_secs(20);

/// The server's answer to a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It stands, now or since it was first sent.
    Accepted,
    /// The attempt is no longer the sender's.
    Refused,
}

/// A claimed task.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Its id.
    pub id: i64,
    /// The fence under which it was claimed.
    pub fence: i64,
    /// Which attempt this is.
    pub attempt: i16,
    /// Worker deaths so far.
    pub crashes: i16,
    /// From due to claimed; if it was claimed before, since it was queued again.
    pub queued_ms: i32,
    /// It was claimed before.
    pub claimed_before: bool,
    /// Which of the queues it came from, from 0.
    pub queue: usize,
}

impl Task {
    /// A task that no worker has claimed.
    pub fn unclaimed(id: i64) -> Self {
        Self { id, fence: 0, attempt: 0, crashes: 0, queued_ms: 0, claimed_before: false, queue: 0 }
    }
}

/// A worker process, as the task store sees it.
pub struct ScriptedWorker {
    /// Its session.
    pub client: Client,
    /// Its number.
    pub executor: i64,
    /// Its queues, highest priority first.
    pub queues: Vec<i32>,
}

impl Db {
    /// Registers a worker for a lambda, with a lease of 20 s.
    pub async fn worker(&self, lambda: &str) -> ScriptedWorker {
        self.worker_with(&[lambda], LEASE).await
    }

    /// Registers a worker for several lambdas.
    pub async fn worker_with(&self, lambdas: &[&str], lease: Duration) -> ScriptedWorker {
        let client = self.connect().await;
        let executor = client
            .query_one(
                "select tuskline.register_executor('host', 4711, $1, '0.1.0', $2::float8 * interval '1 second')",
                &[&lambdas, &lease.as_secs_f64()],
            )
            .await
            .unwrap()
            .get(0);
        let mut queues = Vec::new();
        for lambda in lambdas {
            let rows = client
                .query(
                    "select queue_id from tuskline.queue where lambda = $1 order by priority",
                    &[lambda],
                )
                .await
                .unwrap();
            queues.extend(rows.iter().map(|row| row.get::<_, i32>(0)));
        }
        ScriptedWorker { client, executor, queues }
    }
}

impl ScriptedWorker {
    /// Claims up to so many tasks; panics when the executor has ended.
    pub async fn claim(&self, limit: i32) -> Vec<Task> {
        let row = self.claim_by(&self.client, limit, 0).await.unwrap();
        assert!(row.get::<_, bool>("alive"), "the executor has ended");
        tasks(&row)
    }

    /// Claims one task that must be there.
    pub async fn take(&self) -> Task {
        let [task] = self.claim(1).await.try_into().expect("one task to claim");
        task
    }

    /// Claims by a session of the test's choice, an open transaction for one, above a mark; the
    /// whole answer.
    pub async fn claim_by(
        &self,
        session: &impl GenericClient,
        limit: i32,
        mark: i64,
    ) -> Result<Row, tokio_postgres::Error> {
        let marks = vec![mark; self.queues.len()];
        let groups = vec![1_i16; self.queues.len()];
        session
            .query_one(
                "select * from tuskline.claim($1, $2, $3, $4, array[$5]::integer[])",
                &[&self.executor, &self.queues, &marks, &groups, &limit],
            )
            .await
    }

    /// Reports that a task's body has begun; false: the attempt is no longer ours.
    pub async fn start(&self, task: &Task) -> bool {
        let sql = "select tuskline.start($1, array[$2]::bigint[], array[$3]::bigint[])";
        let row =
            self.client.query_one(sql, &[&self.executor, &task.id, &task.fence]).await.unwrap();
        !row.get::<_, Vec<i64>>(0).is_empty()
    }

    /// Reports a success.
    pub async fn succeed(&self, task: &Task) -> Answer {
        let sql = "select tuskline.set_results($1, array[$2]::bigint[], array[$3]::bigint[])";
        let row =
            self.client.query_one(sql, &[&self.executor, &task.id, &task.fence]).await.unwrap();
        answer(&row)
    }

    /// Reports successes; the ids that were refused.
    pub async fn succeed_all(&self, tasks: &[Task]) -> Vec<i64> {
        let (ids, fences) = ids_and_fences(tasks);
        let sql = "select tuskline.set_results($1, $2, $3)";
        self.client.query_one(sql, &[&self.executor, &ids, &fences]).await.unwrap().get(0)
    }

    /// Reports a failure that is worth another attempt.
    pub async fn fail(&self, task: &Task) -> Answer {
        self.note(
            task,
            r#""status": "retriable_failure", "error_class": "error", "message": "boom 1""#,
        )
        .await
    }

    /// Reports that it is to run again in a minute.
    pub async fn snooze(&self, task: &Task) -> Answer {
        self.note(task, r#""status": "snoozed", "after_ms": 60000"#).await
    }

    /// Reports that it can never succeed.
    pub async fn fail_for_good(&self, task: &Task) -> Answer {
        self.note(task, r#""status": "fatal_failure", "error_class": "fatal", "message": "no""#)
            .await
    }

    /// Reports that the process that ran the task has ended. False: the attempt is over.
    pub async fn crash(&self, task: &Task) -> bool {
        let sql = "select cardinality(returned) = 1 from tuskline.report_crashes(
            $1, array[$2::bigint], array[$3::bigint], '{signal 11}', '{process 7 ended}',
            array[$3::bigint])";
        let row = self.client.query_one(sql, &[&self.executor, &task.id, &task.fence]).await;
        row.unwrap().get(0)
    }

    /// Reports that a task was stopped on request.
    pub async fn stopped(&self, task: &Task) -> Answer {
        self.note(task, r#""status": "cancelled""#).await
    }

    /// Reports a success with the lambda's output, as JSON.
    pub async fn succeed_with(&self, task: &Task, output: &str) -> Answer {
        self.note(task, &format!(r#""status": "success", "output": {output}"#)).await
    }

    /// Reports a note with these fields, beside task and fence.
    pub async fn note(&self, task: &Task, fields: &str) -> Answer {
        let note = format!(r#"[{{"task": {}, "fence": {}, {fields}}}]"#, task.id, task.fence);
        let sql = "select tuskline.set_results($1, '{}', '{}', $2::text::json)";
        answer(&self.client.query_one(sql, &[&self.executor, &note]).await.unwrap())
    }

    /// Gives a claimed task back; false: the attempt is no longer ours.
    pub async fn release(&self, task: &Task) -> bool {
        let sql =
            "select released from tuskline.release($1, array[$2]::bigint[], array[$3]::bigint[])";
        let row =
            self.client.query_one(sql, &[&self.executor, &task.id, &task.fence]).await.unwrap();
        !row.get::<_, Vec<i64>>(0).is_empty()
    }

    /// Lambda code's guard, in a transaction of its own; false: the attempt is over.
    pub async fn assert_current(&self, task: &Task) -> bool {
        self.fenced("select tuskline.assert_current($1, $2)", task).await
    }

    /// Lambda code's success, in a transaction of its own; false: the attempt is over.
    pub async fn complete(&self, task: &Task) -> bool {
        self.fenced("select tuskline.complete($1, $2)", task).await
    }

    async fn fenced(&self, sql: &str, task: &Task) -> bool {
        match self.client.query_one(sql, &[&task.id, &task.fence]).await {
            Ok(_) => true,
            Err(error) => {
                let said = refusal(&error);
                assert!(said.starts_with("TK014: TK014 not_current: "), "{said}");
                false
            }
        }
    }

    /// Sends a heartbeat; tells whether the task store counts the worker as alive.
    pub async fn heartbeat(&self) -> bool {
        let sql = "select alive from tuskline.heartbeat($1)";
        self.client.query_one(sql, &[&self.executor]).await.unwrap().get(0)
    }
}

/// The tasks in the answer of a claim.
pub fn tasks(row: &Row) -> Vec<Task> {
    let Some(ids) = row.get::<_, Option<Vec<i64>>>("task_id") else { return Vec::new() };
    let fence: i64 = row.get("lease_id");
    let attempts: Vec<i16> = row.get("attempt");
    let crashes: Vec<i16> = row.get("crashes");
    let queued: Vec<i32> = row.get("queued_ms");
    let before: Vec<bool> = row.get("claimed_before");
    // A worker of function set 2 reads both from one number.
    let both = |(ms, before): (&i32, &bool)| if *before { -1 - ms } else { *ms };
    let both: Vec<i32> = queued.iter().zip(&before).map(both).collect();
    assert_eq!(row.get::<_, Vec<i32>>("waited_ms"), both);
    let queues: Vec<i16> = row.get("queue_index");
    let task = |(at, id)| Task {
        id,
        fence,
        attempt: attempts[at],
        crashes: crashes[at],
        queued_ms: queued[at],
        claimed_before: before[at],
        queue: usize::try_from(queues[at] - 1).unwrap(),
    };
    ids.into_iter().enumerate().map(task).collect()
}

/// The two arrays that most verbs take.
pub fn ids_and_fences(tasks: &[Task]) -> (Vec<i64>, Vec<i64>) {
    tasks.iter().map(|task| (task.id, task.fence)).unzip()
}

fn answer(row: &Row) -> Answer {
    match row.get::<_, Vec<i64>>(0).is_empty() {
        true => Answer::Accepted,
        false => Answer::Refused,
    }
}
