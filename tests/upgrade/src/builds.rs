//! The programs of a build, as processes.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use tuskline_postgres::OWNER;

/// The roles of the clients and the workers.
pub const CLIENT: &str = "step_client";
pub const WORKER: &str = "step_worker";

/// Longest time that a process may take to end.
const END: Duration = Duration::from_secs(60);

/// The programs of one build.
pub struct Build {
    name: &'static str,
    directory: PathBuf,
    url: String,
}

/// A process of a build.
pub struct Running {
    name: String,
    child: Child,
}

impl Build {
    pub fn new(name: &'static str, directory: &Path, url: &str) -> Self {
        Self { name, directory: directory.to_owned(), url: url.to_owned() }
    }

    /// Runs `tuskline migrate` to its end.
    pub async fn migrate(&self) -> Result<()> {
        let mut command = self.tuskline("migrate");
        let status = command.status().await.context("tuskline migrate")?;
        if !status.success() {
            bail!("migrate of the {} build: {status}", self.name);
        }
        Ok(())
    }

    pub fn serve(&self) -> Result<Running> {
        self.start("serve", self.tuskline("serve"))
    }

    pub fn work(&self) -> Result<Running> {
        self.work_as(WORKER)
    }

    /// A worker of another role.
    pub fn work_as(&self, role: &str) -> Result<Running> {
        self.start("worker", self.load(role, "work"))
    }

    pub fn schedule(&self) -> Result<Running> {
        self.start("client", self.load(CLIENT, "schedule"))
    }

    fn tuskline(&self, command: &str) -> Command {
        let mut program = Command::new(self.directory.join("tuskline"));
        program.arg(command).args(["--database-url", &self.url]).stdout(Stdio::null());
        program
    }

    fn load(&self, role: &str, act: &str) -> Command {
        let url = self.url.replacen(OWNER, role, 1);
        let mut program = Command::new(self.directory.join("upgrade-load"));
        program.args(["--url", &url, "--build", self.name, act]).stdout(Stdio::piped());
        program
    }

    fn start(&self, role: &str, mut command: Command) -> Result<Running> {
        let name = format!("{} of the {} build", role, self.name);
        let spawned = command.env("RUST_LOG", "warn").kill_on_drop(true).spawn();
        let child = spawned.with_context(|| format!("starting the {name}"))?;
        Ok(Running { name, child })
    }
}

impl Running {
    /// Fails if it has ended by itself.
    pub fn assert_running(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the {} ended by itself: {status}", self.name),
        }
    }

    /// Ends it by SIGTERM. Returns its standard output; fails unless it exits with 0.
    pub async fn stop(mut self) -> Result<String> {
        self.assert_running()?;
        let pid = self.child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        kill_process(pid.context("it has no pid")?, Signal::TERM)?;
        let ended = timeout(END, self.child.wait_with_output()).await;
        let output = ended.with_context(|| format!("the {} does not end", self.name))??;
        if !output.status.success() {
            bail!("the {} ended with {}", self.name, output.status);
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}
