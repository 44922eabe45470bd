//! The processes that work beside the bench: started from the same binary, ended with it.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use clap::ValueEnum as _;

use super::latencies::Latencies;
use super::meter::Observer;
use super::proc::cpu_us;
use super::producer::Load;
use super::site::Site;
use super::worker::{Done, Part};

/// After a worker has registered, until it listens and sleeps.
const CALM: Duration = Duration::from_millis(500);

/// Worker and server processes. Dropping it kills what still runs.
#[derive(Default)]
pub(super) struct Workers(Vec<Child>);

/// The processes to start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order<'a> {
    pub part: Part,
    pub lambdas: &'a [String],
    pub heartbeat_ms: Option<u64>,
    pub limit: Option<u64>,
    pub max_batch: Option<u64>,
    /// The tasks that producers schedule.
    pub load: Option<&'a Load>,
}

impl<'a> Order<'a> {
    /// A part with the lambdas it serves and the usual timings.
    pub(super) fn of(part: Part, lambdas: &'a [String]) -> Self {
        Self { part, lambdas, heartbeat_ms: None, limit: None, max_batch: None, load: None }
    }
}

/// Results of all processes of the workers, together.
#[derive(Debug)]
pub(super) struct Work {
    pub executed: u64,
    phases: BTreeMap<u8, Latencies>,
}

impl Workers {
    /// So many processes of one kind.
    pub(super) fn start(site: &Site, order: Order<'_>, processes: u64) -> anyhow::Result<Self> {
        let mut workers = Self::default();
        for _ in 0..processes {
            workers.0.push(spawn(site, order).context("cannot start a worker")?);
        }
        Ok(workers)
    }

    /// Worker processes that have registered, listen and sleep.
    pub(super) async fn asleep(
        site: &Site,
        observer: &Observer,
        order: Order<'_>,
        processes: u64,
    ) -> anyhow::Result<Self> {
        let workers = Self::start(site, order, processes)?;
        observer.until_workers(processes).await?;
        tokio::time::sleep(CALM).await;
        Ok(workers)
    }

    /// SIGKILL to the first, no warning; its process id.
    pub(super) fn kill_one(&mut self) -> anyhow::Result<u32> {
        anyhow::ensure!(!self.0.is_empty(), "no process is left to kill");
        let mut victim = self.0.remove(0);
        let killed = victim.kill();
        victim.wait()?;
        killed?;
        Ok(victim.id())
    }

    /// CPU of all of them so far, in µs.
    pub(super) fn cpu_us(&self) -> Option<u64> {
        self.0.iter().map(|child| cpu_us(child.id())).sum()
    }

    /// Lets them end in order, and gathers what they did.
    ///
    /// # Errors
    /// One of them had failed.
    pub(super) async fn end(mut self) -> anyhow::Result<Work> {
        for child in &mut self.0 {
            drop(child.stdin.take());
        }
        self.gather().await
    }

    /// Waits until they have ended by themselves, at the limit of their order.
    ///
    /// # Errors
    /// As [`Workers::end`], and it takes longer than `limit`.
    pub(super) async fn until_enough(mut self, limit: Duration) -> anyhow::Result<Work> {
        // Waiting for a child would close its standard input.
        let _open: Vec<_> = self.0.iter_mut().map(|child| child.stdin.take()).collect();
        tokio::time::timeout(limit, self.gather())
            .await
            .context("the workers did not end in time")?
    }

    async fn gather(&mut self) -> anyhow::Result<Work> {
        let mut work = Work { executed: 0, phases: BTreeMap::new() };
        for child in std::mem::take(&mut self.0) {
            let output = tokio::task::spawn_blocking(|| child.wait_with_output()).await??;
            anyhow::ensure!(output.status.success(), "a worker failed: {}", output.status);
            if !output.stdout.is_empty() {
                work.add(&serde_json::from_slice(&output.stdout)?)?;
            }
        }
        Ok(work)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Work {
    fn add(&mut self, done: &Done) -> anyhow::Result<()> {
        self.executed += done.executed;
        for (phase, pairs) in &done.phases {
            let more = Latencies::from_pairs(pairs)?;
            match self.phases.get_mut(phase) {
                Some(known) => known.add(&more)?,
                None => drop(self.phases.insert(*phase, more)),
            }
        }
        Ok(())
    }

    /// From the insert call to the start of the body, in one phase.
    pub(super) fn latencies(&self, phase: u8) -> anyhow::Result<Latencies> {
        self.phases.get(&phase).cloned().map_or_else(Latencies::none, Ok)
    }
}

/// The address goes by the environment: it may hold a password, and arguments are public.
fn spawn(site: &Site, order: Order<'_>) -> anyhow::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["worker", "--database", site.database()]);
    let part = order.part.to_possible_value().context("a part without a name")?;
    command.args(["--part", part.get_name()]);
    if let Some(load) = order.load {
        command.args(["--load", &serde_json::to_string(load)?]);
    }
    for name in order.lambdas {
        command.args(["--lambda", name]);
    }
    for (option, value) in [
        ("--heartbeat-ms", order.heartbeat_ms),
        ("--limit", order.limit),
        ("--max-batch", order.max_batch),
    ] {
        if let Some(value) = value {
            command.args([option, &value.to_string()]);
        }
    }
    command.env("TUSKLINE_DATABASE_URL", site.url());
    // Some tasks fail on purpose.
    if std::env::var_os("TUSKLINE_LOG").is_none() {
        command.env("TUSKLINE_LOG", "error");
    }
    Ok(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?)
}
