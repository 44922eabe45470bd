//! The course of the demo: start everything, schedule, kill, wait for the end, judge.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::json;
use tokio_postgres::{Client, NoTls};
use tokio_util::sync::CancellationToken;
use tuskline_sdk::{NewTask, Priority};

use super::progress::{Counts, Progress};
use super::record::{self, monotonic_ns};
use super::report::Report;
use super::verdict::{Testimony, judge, percentiles};
use super::worker::LAMBDA;
use super::{checksum, files};
use crate::embedded::{self, Cluster, Stop};
use crate::{migrate, serve};

/// Database of the demo in the embedded cluster; made anew each time.
pub const DATABASE: &str = "tuskline_demo";
/// One file in so many is scheduled for a few seconds later.
const LATER_ONE_IN: usize = 10;
/// Tasks per schedule_many.
const BATCH: usize = 500;
/// A run that has not ended after this has failed.
const RUN_LIMIT: Duration = Duration::from_secs(600);

/// What to run on.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directory whose files become tasks.
    pub path: PathBuf,
    /// Most files.
    pub limit: usize,
    /// No progress line.
    pub quiet: bool,
    /// Arguments with which this binary becomes a demo worker; url and record file are added.
    pub worker_args: Vec<String>,
}

/// Runs the demo and judges it. `shutdown` ends it early.
///
/// # Errors
/// Whatever keeps it from running to its end. A run that lost something is a [`Report`], not an
/// error.
pub async fn run(options: &Options, shutdown: CancellationToken) -> anyhow::Result<Report> {
    let files = files::find(&options.path, options.limit)?;
    let mut cluster = start_cluster(options.quiet).await?;
    let stage = Stage::set(&cluster, options).await;
    let outcome = match stage {
        Ok(mut stage) => {
            let outcome = tokio::select! {
                played = stage.play(&files.chosen, files.left_out) => played,
                () = shutdown.cancelled() => Err(anyhow::anyhow!("interrupted")),
            };
            stage.strike().await;
            outcome
        }
        Err(error) => Err(error),
    };
    let stays = !cluster.is_temporary();
    cluster.stop(Stop::Fast).await?;
    if outcome.is_ok() && !options.quiet && stays {
        eprintln!("{LOOK_HINT}");
    }
    outcome
}

/// The usual data directory, unless somebody else's server runs on it: then a throw-away one, so
/// that two demos never share a server that one of them stops.
async fn start_cluster(quiet: bool) -> anyhow::Result<Cluster> {
    let usual = embedded::Options::durable(embedded::default_data_dir());
    let cluster = Cluster::start(usual).await?;
    if !cluster.attached() {
        return Ok(cluster);
    }
    if !quiet {
        eprintln!("another Tuskline runs on the usual data directory; using a throw-away one");
    }
    Ok(Cluster::temporary(vec![("fsync".into(), "on".into())]).await?)
}

const LOOK_HINT: &str = "\
Nothing is left running. To look at what is in the tables:
  ./x psql --demo
  select status, count(*) from tuskline.tasks group by 1;
  select * from tuskline.tasks order by crashes desc limit 5;
  select * from tuskline.task_failure limit 5;";

/// Everything that runs, and where it writes.
struct Stage {
    client: Client,
    scheduler: tuskline_sdk::Client,
    url: String,
    dir: tempfile::TempDir,
    worker_args: Vec<String>,
    workers: Vec<RunningWorker>,
    gone: Vec<(PathBuf, u64)>,
    serving: tokio::task::JoinHandle<Result<(), serve::Error>>,
    stop_serving: CancellationToken,
    quiet: bool,
    killed: u64,
}

struct RunningWorker {
    child: Child,
    record: PathBuf,
}

impl Stage {
    async fn set(cluster: &Cluster, options: &Options) -> anyhow::Result<Self> {
        drop_database(cluster).await?;
        cluster.create_database(DATABASE, None).await?;
        migrate::migrate(&cluster.config(DATABASE)).await?;
        let (client, connection) = cluster.config(DATABASE).connect(NoTls).await?;
        tokio::spawn(connection);
        client
            .execute(
                "select tuskline.define_lambda($1, p_max_attempts => 3, p_retry_base => '500 ms')",
                &[&LAMBDA],
            )
            .await?;
        let stop_serving = CancellationToken::new();
        let serving = tokio::spawn(serve::run(
            cluster.config(DATABASE),
            serve::Options::default(),
            stop_serving.clone(),
        ));
        let url = cluster.url(DATABASE);
        let mut stage = Self {
            client,
            scheduler: tuskline_sdk::Client::connect(&url).await?,
            url,
            dir: tempfile::tempdir()?,
            worker_args: options.worker_args.clone(),
            workers: Vec::new(),
            gone: Vec::new(),
            serving,
            stop_serving,
            quiet: options.quiet,
            killed: 0,
        };
        stage.start_worker()?;
        stage.start_worker()?;
        Ok(stage)
    }

    fn start_worker(&mut self) -> anyhow::Result<()> {
        let number = self.workers.len() + self.gone.len();
        let record = self.dir.path().join(format!("worker-{number}.jsonl"));
        let child = Command::new(std::env::current_exe()?)
            .args(&self.worker_args)
            .args(["--url", &self.url, "--record"])
            .arg(&record)
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start a worker")?;
        self.workers.push(RunningWorker { child, record });
        Ok(())
    }

    async fn play(&mut self, files: &[PathBuf], left_out: u64) -> anyhow::Result<Report> {
        let began = Instant::now();
        let total = files.len() as u64;
        let mut progress = Progress::new(total, self.quiet);
        let ids = schedule(&self.scheduler, files).await?;
        let counts = loop {
            let counts = Counts::read(&self.client).await?;
            progress.show(&counts);
            if self.killed == 0 && counts.ended * 3 >= total {
                self.kill_one(&progress)?;
            }
            if counts.ended >= total {
                break counts;
            }
            anyhow::ensure!(began.elapsed() < RUN_LIMIT, "the tasks did not end in {RUN_LIMIT:?}");
            self.replace_the_fallen(&progress)?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let seconds = began.elapsed().as_secs_f64();
        progress.done();
        self.end_workers()?;
        self.report(&ids, files, &counts, seconds, left_out).await
    }

    /// SIGKILL, no warning, in the middle of its tasks.
    fn kill_one(&mut self, progress: &Progress) -> anyhow::Result<()> {
        let mut worker = self.workers.remove(0);
        worker.child.kill()?;
        worker.child.wait()?;
        self.killed += 1;
        progress.say(&format!("killed worker {} (SIGKILL)", worker.child.id()));
        self.gone.push((worker.record, monotonic_ns()));
        Ok(())
    }

    /// A worker that ended by itself (a starved machine may cost it its heartbeats) is replaced, as a
    /// supervisor would.
    fn replace_the_fallen(&mut self, progress: &Progress) -> anyhow::Result<()> {
        let mut at = 0;
        while at < self.workers.len() {
            if self.workers[at].child.try_wait()?.is_none() {
                at += 1;
                continue;
            }
            let fallen = self.workers.remove(at);
            progress.say(&format!("worker {} ended itself; starting another", fallen.child.id()));
            self.gone.push((fallen.record, monotonic_ns()));
            self.start_worker()?;
        }
        Ok(())
    }

    /// SIGTERM: they drain and end in order.
    fn end_workers(&mut self) -> anyhow::Result<()> {
        for worker in &self.workers {
            terminate(&worker.child);
        }
        for mut worker in self.workers.drain(..) {
            worker.child.wait()?;
            self.gone.push((worker.record, monotonic_ns()));
        }
        Ok(())
    }

    async fn report(
        &self,
        ids: &[i64],
        files: &[PathBuf],
        counts: &Counts,
        seconds: f64,
        left_out: u64,
    ) -> anyhow::Result<Report> {
        let mut testimonies = Vec::new();
        for (record, gone_ns) in &self.gone {
            let lines = record::read(record).unwrap_or_default();
            testimonies.push(Testimony { lines, gone_ns: *gone_ns });
        }
        let verdict = judge(&testimonies);
        let ended = read_ends(&self.client).await?;
        let (mut lost, mut verified, mut wrong) = (0, 0, 0);
        let mut latencies_ms = Vec::with_capacity(ids.len());
        for (id, path) in ids.iter().zip(files) {
            let Some(end) = ended.get(id) else {
                lost += 1;
                continue;
            };
            let witnessed = match end.succeeded {
                true => verdict.succeeded.contains(id),
                false => verdict.ended.contains(id),
            };
            lost += u64::from(!witnessed);
            if end.succeeded {
                let (sha256, _) = checksum::of_file(path, || true).unwrap_or_default();
                match end.sha256.as_deref() == Some(sha256.as_str()) {
                    true => verified += 1,
                    false => wrong += 1,
                }
            }
            if let Some(start_us) = verdict.first_start_us.get(id) {
                #[allow(clippy::cast_precision_loss)]
                latencies_ms.push((start_us - end.due_us) as f64 / 1000.0);
            }
        }
        #[allow(clippy::cast_precision_loss)]
        Ok(Report {
            scheduled: ids.len() as u64,
            succeeded: counts.succeeded,
            dead: counts.dead,
            lost,
            overlaps: verdict.overlaps,
            killed_workers: self.killed,
            rescued: counts.rescued,
            retried: counts.retried,
            checksums_verified: verified,
            checksums_wrong: wrong,
            left_out,
            seconds,
            tasks_per_s: ids.len() as f64 / seconds,
            start_latency_ms: percentiles(latencies_ms),
        })
    }

    /// Ends what still runs.
    async fn strike(mut self) {
        for worker in &mut self.workers {
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
        self.stop_serving.cancel();
        let _ = tokio::time::timeout(Duration::from_secs(10), &mut self.serving).await;
    }
}

/// How a task ended, as the database has it.
struct End {
    succeeded: bool,
    sha256: Option<String>,
    due_us: i64,
}

async fn read_ends(client: &Client) -> anyhow::Result<HashMap<i64, End>> {
    let rows = client
        .query(
            "select t.id, t.status = 'success', o.output->>'sha256', t.due_at \
             from tuskline.tasks t left join tuskline.task_output o on o.task_id = t.id \
             where t.status in ('success', 'dead', 'fatal_failure', 'cancelled', 'dropped')",
            &[],
        )
        .await?;
    Ok(rows
        .iter()
        .map(|row| {
            let due: chrono::DateTime<chrono::Utc> = row.get(3);
            let end =
                End { succeeded: row.get(1), sha256: row.get(2), due_us: due.timestamp_micros() };
            (row.get(0), end)
        })
        .collect())
}

/// One task per file; every tenth is due two to four seconds later, and some go first.
async fn schedule(client: &tuskline_sdk::Client, files: &[PathBuf]) -> anyhow::Result<Vec<i64>> {
    let mut ids = Vec::with_capacity(files.len());
    for (batch, paths) in files.chunks(BATCH).enumerate() {
        let tasks: Vec<NewTask> = paths
            .iter()
            .enumerate()
            .map(|(at, path)| new_task(batch * BATCH + at, path))
            .collect::<anyhow::Result<_>>()?;
        ids.extend(client.schedule_many(&tasks).await?.iter().map(|id| id.0));
    }
    Ok(ids)
}

fn new_task(number: usize, path: &Path) -> anyhow::Result<NewTask> {
    let mut task = NewTask::new(LAMBDA, &json!({ "path": path }))?;
    if number % LATER_ONE_IN == 0 {
        let later_ms = 2000 + (number as u64 * 37) % 2000;
        task = task.after(Duration::from_millis(later_ms)).collection("later")?;
    } else if number % 7 == 0 {
        task = task.priority(Priority::High);
    }
    Ok(task)
}

async fn drop_database(cluster: &Cluster) -> anyhow::Result<()> {
    let (client, connection) = cluster.config("postgres").connect(NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute(&format!("drop database if exists {DATABASE} with (force)")).await?;
    Ok(())
}

fn terminate(child: &Child) {
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended by itself already.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}
