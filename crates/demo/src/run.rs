//! The course of the demo: start everything, schedule, kill, wait for the end, judge.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio_postgres::{Client, NoTls};
use tokio_util::sync::CancellationToken;

use super::accounts::{Run, settle};
use super::progress::{Counts, Progress};
use super::record::{self, monotonic_ns};
use super::report::Report;
use super::worker::LAMBDA;
use super::{files, schedule};
use tuskline::{migrate, serve};
use tuskline_postgres::{Cluster, Stop, default_data_dir};

/// Database of the demo in the private cluster; each demo creates it again.
pub const DATABASE: &str = "tuskline_demo";
/// How often it looks at the tables.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often it looks whether it is time for the kill: a thousand small files take a third of a second.
const KILL_LOOK_EVERY: Duration = Duration::from_millis(1);
/// A run that has not ended after this has failed.
const RUN_LIMIT: Duration = Duration::from_secs(600);

/// Database and directory of the run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directory whose files become tasks.
    pub path: PathBuf,
    /// Most files.
    pub limit: usize,
    /// Larger files are left out.
    pub max_bytes: u64,
    /// No progress line.
    pub quiet: bool,
}

/// Runs the demo and judges it. `shutdown` ends it early.
///
/// # Errors
/// Whatever keeps it from running to its end. A run that lost something is a [`Report`], not an
/// error.
pub async fn run(options: &Options, shutdown: CancellationToken) -> anyhow::Result<Report> {
    let files = files::find(&options.path, options.limit, options.max_bytes)?;
    let cluster = start_cluster(options.quiet).await?;
    drop_database(&cluster).await?; // as the superuser: it owns the database
    let mut cluster = cluster.owned();
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

/// The usual data directory, unless a server of another process runs on it: then a throw-away one, so
/// that two demos never share a server that one of them stops.
async fn start_cluster(quiet: bool) -> anyhow::Result<Cluster> {
    let usual = tuskline_postgres::Options::durable(default_data_dir());
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
            .args(["worker", "--url", &self.url, "--record"])
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
        // Beside the watching, or on a large directory the third would pass unobserved. A set,
        // because it ends its tasks when it is dropped.
        let (scheduler, paths) = (self.scheduler.clone(), files.to_vec());
        let mut scheduling = tokio::task::JoinSet::new();
        scheduling.spawn(async move { schedule::all(&scheduler, &paths).await });
        let mut ids = Vec::new();
        let counts = loop {
            if let Some(scheduled) = scheduling.try_join_next() {
                ids = scheduled??;
            }
            let counts = Counts::read(&self.client).await?;
            progress.show(&counts);
            if counts.ended >= total && !ids.is_empty() {
                break counts;
            }
            anyhow::ensure!(began.elapsed() < RUN_LIMIT, "the tasks did not end in {RUN_LIMIT:?}");
            self.replace_the_fallen(&progress)?;
            self.rest(&progress, total).await?;
        };
        let seconds = began.elapsed().as_secs_f64();
        progress.done();
        self.end_workers()?;
        let run = Run { ids: &ids, files, counts: &counts, seconds, left_out, killed: self.killed };
        settle(&self.client, &self.gone, &run).await
    }

    /// Rests until the next look, and meanwhile kills a worker when a third of the tasks is done. The records of
    /// the workers say so at once.
    async fn rest(&mut self, progress: &Progress, total: u64) -> anyhow::Result<()> {
        let began = Instant::now();
        while self.killed == 0 && began.elapsed() < LOOK_EVERY {
            let records = self.workers.iter().map(|worker| record::ends(&worker.record));
            let done: u64 = records.sum();
            if done * 3 >= total {
                self.kill_one(progress, done)?;
            }
            tokio::time::sleep(KILL_LOOK_EVERY).await;
        }
        tokio::time::sleep(LOOK_EVERY.saturating_sub(began.elapsed())).await;
        Ok(())
    }

    /// SIGKILL, no warning, in the middle of its tasks.
    fn kill_one(&mut self, progress: &Progress, done: u64) -> anyhow::Result<()> {
        let mut worker = self.workers.remove(0);
        worker.child.kill()?;
        worker.child.wait()?;
        self.killed += 1;
        progress.say(&format!("killed worker {} (SIGKILL), {done} tasks done", worker.child.id()));
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

async fn drop_database(cluster: &Cluster) -> anyhow::Result<()> {
    let (client, connection) = cluster.config("postgres").connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(tuskline_postgres::drop_database(&client, DATABASE).await?)
}

fn terminate(child: &Child) {
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended by itself already.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}
