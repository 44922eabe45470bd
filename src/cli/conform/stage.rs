//! The stage of the kit: a throw-away PostgreSQL with the server's roles, and a directory. All of it goes at the end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tokio::task::JoinHandle;
use tokio_postgres::Config;
use tokio_util::sync::CancellationToken;
use tuskline_postgres::Cluster;

use super::case::{Case, Settings};
use crate::serve;
use crate::session::{Deadlines, Session};

/// The database of the cases, and one in which nothing is defined.
const DATABASE: &str = "conform";
const EMPTY: &str = "conform_empty";

/// The lambdas that a subject serves; docs/conformance.md says what each does.
pub const LAMBDAS: [&str; 8] =
    ["busy", "crash", "echo", "hold", "memory", "outcome", "run", "save"];

/// A task as the database has it.
#[derive(Debug, Default)]
pub struct Task {
    pub status: String,
    pub attempt: i16,
    pub crashes: i16,
    pub output: Option<String>,
    pub failures: Vec<Failed>,
    pub due_in_ms: i64,
}

/// A failure of a task.
#[derive(Debug)]
pub struct Failed {
    pub outcome: String,
    pub class: Option<String>,
    pub message: Option<String>,
}

/// See the module.
pub struct Stage {
    session: Session,
    cluster: Cluster,
    /// Files of the cases.
    pub dir: PathBuf,
    keep: bool,
    has_empty: bool,
    end: CancellationToken,
    server: JoinHandle<()>,
}

impl Stage {
    /// Builds it. `keep`: the directory stays.
    ///
    /// # Errors
    /// There is no PostgreSQL here, or no place for the directory.
    pub async fn build(keep: bool) -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("tuskline-conform-{}", std::process::id()));
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let cluster = Cluster::temporary(vec![("timezone".into(), "UTC".into())]).await?;
        let config = migrated(&cluster, DATABASE).await?;
        let session = Session::open(config.clone(), "conform", Deadlines::USUAL).await?;
        let end = CancellationToken::new();
        let server = serve::run(config, serve::Options::default(), end.clone());
        let server = tokio::spawn(async move {
            if let Err(error) = server.await {
                tracing::error!(%error, "the server has ended");
            }
        });
        let stage = Self { session, cluster, dir, keep, has_empty: false, end, server };
        for lambda in LAMBDAS {
            stage.define(lambda).await?;
        }
        Ok(stage)
    }

    /// Ends the server. PostgreSQL ends when this is dropped.
    pub async fn end(&mut self) {
        self.end.cancel();
        let _ = (&mut self.server).await;
    }

    async fn define(&self, lambda: &str) -> Result<()> {
        let define = "select tuskline.define_lambda($1, p_retry_base => '100 ms', \
                      p_retry_cap => '1 s', p_max_payload_bytes => 1048576)";
        self.session.client().query(define, &[&lambda]).await?;
        self.alter(lambda, &Settings::default()).await
    }

    async fn alter(&self, lambda: &str, settings: &Settings) -> Result<()> {
        let Settings { attempt_timeout_ms, max_attempts, max_crashes } = settings;
        let alter = "select tuskline.alter_lambda($1, \
                     p_attempt_timeout => $2::bigint * interval '1 ms', \
                     p_max_attempts => $3, p_max_crashes => $4)";
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [&lambda, attempt_timeout_ms, max_attempts, max_crashes];
        self.session.client().query(alter, &values).await?;
        Ok(())
    }

    /// The address of the database for a case, with its settings. Tasks of earlier cases are cancelled.
    ///
    /// # Errors
    /// The database says.
    pub async fn set(&mut self, case: &Case) -> Result<String> {
        if case.nothing_defined {
            if !self.has_empty {
                migrated(&self.cluster, EMPTY).await?;
                self.has_empty = true;
            }
            return Ok(self.cluster.url(EMPTY));
        }
        let cancel = "select tuskline.cancel(id) from tuskline.tasks
                       where status in ('new', 'enqueued', 'claimed', 'processing', 'retriable_failure')";
        self.session.client().query(cancel, &[]).await?;
        self.settle(&case.settings).await?;
        Ok(self.cluster.url(DATABASE))
    }

    async fn settle(&self, settings: &BTreeMap<String, Settings>) -> Result<()> {
        for lambda in LAMBDAS {
            self.alter(lambda, &settings.get(lambda).copied().unwrap_or_default()).await?;
        }
        Ok(())
    }

    /// Schedules a task; its id.
    ///
    /// # Errors
    /// The database says.
    pub async fn schedule(&self, lambda: &str, payload: Option<&str>) -> Result<i64> {
        let schedule = "select tuskline.schedule($1, $2)";
        Ok(self.session.client().query_one(schedule, &[&lambda, &payload]).await?.get(0))
    }

    /// Cancels a task.
    ///
    /// # Errors
    /// The database says.
    pub async fn cancel(&self, task: i64) -> Result<()> {
        self.session.client().query("select tuskline.cancel($1)", &[&task]).await?;
        Ok(())
    }

    /// Ends an attempt with success, as a business transaction does.
    ///
    /// # Errors
    /// It is over.
    pub async fn complete(&self, task: i64, fence: i64, output: &str) -> Result<()> {
        let complete = "select tuskline.complete($1, $2, $3::text::json)";
        self.session.client().query(complete, &[&task, &fence, &output]).await?;
        Ok(())
    }

    /// The progress of a task: percent and text.
    ///
    /// # Errors
    /// The database says.
    pub async fn progress(&self, task: i64) -> Result<Option<(Option<f32>, Option<String>)>> {
        let progress = "select percent, message from tuskline.progress where task_id = $1";
        let row = self.session.client().query_opt(progress, &[&task]).await?;
        Ok(row.map(|row| (row.get(0), row.get(1))))
    }

    /// Registrations that still claim.
    ///
    /// # Errors
    /// The database says.
    pub async fn workers_that_claim(&self) -> Result<i64> {
        let count = "select count(*) from tuskline.executors where state = 'alive'";
        Ok(self.session.client().query_one(count, &[]).await?.get(0))
    }

    /// A task as it is now.
    ///
    /// # Errors
    /// The database says.
    pub async fn task(&self, task: i64) -> Result<Task> {
        let read = "select t.status::text, t.attempt, t.crashes, o.output::text,
                           coalesce(extract(epoch from coalesce(t.next_trigger_at, t.due_at)
                                    - tuskline.clock()) * 1000, 0)::bigint
                      from tuskline.tasks t left join tuskline.task_output o on o.task_id = t.id
                     where t.id = $1";
        let client = self.session.client();
        let row = client.query_one(read, &[&task]).await?;
        let read = "select outcome, error_class, message from tuskline.attempts a
                     where task_id = $1 and exists (select from tuskline.task_failure f
                                                     where f.task_id = $1 and f.fence = a.fence)
                     order by fence";
        let failures = client.query(read, &[&task]).await?;
        let failed = |row: &tokio_postgres::Row| Failed {
            outcome: row.get(0),
            class: row.get(1),
            message: row.get(2),
        };
        Ok(Task {
            status: row.get(0),
            attempt: row.get(1),
            crashes: row.get(2),
            output: row.get(3),
            due_in_ms: row.get(4),
            failures: failures.iter().map(failed).collect(),
        })
    }

    /// A directory for one case.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn dir_of(&self, case: &str) -> Result<PathBuf> {
        let dir = self.dir.join(case);
        std::fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(dir)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

async fn migrated(cluster: &Cluster, database: &str) -> Result<Config> {
    cluster.create_database(database, None).await?;
    let config = cluster.config(database);
    crate::migrate::migrate(&config).await?;
    Ok(config)
}

/// Processes of this machine with a text among their arguments.
pub fn processes_with(argument: &str) -> usize {
    let Ok(entries) = std::fs::read_dir("/proc") else { return 0 };
    let lines = entries.filter_map(|entry| {
        let path: &Path = &entry.ok()?.path();
        path.file_name()?.to_str()?.parse::<u32>().ok()?;
        std::fs::read(path.join("cmdline")).ok()
    });
    lines.filter(|line| line.split(|byte| *byte == 0).any(|one| one == argument.as_bytes())).count()
}
