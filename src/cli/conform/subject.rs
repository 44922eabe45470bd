//! The subject in a case: `tuskline controller` with its command, and the wire log that it writes.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use super::wire::Wire;

/// Between two looks.
pub const LOOK: Duration = Duration::from_millis(10);
/// How long a controller may take to end after SIGTERM: its drain grace, and the kill behind it.
const END: Duration = Duration::from_secs(20);

/// The command of a subject.
#[derive(Debug, Clone)]
pub struct Program {
    pub command: Vec<String>,
    pub is_zygote: bool,
    /// How long one step, or the tasks at the end, may take.
    pub patience: Duration,
}

/// See the module.
#[derive(Debug)]
pub struct Subject {
    guardian: Child,
    log: PathBuf,
    read_to: u64,
    unread: Vec<u8>,
    stderr: PathBuf,
    pub wire: Wire,
}

impl Subject {
    /// Starts it on a database. Its files stand in `dir`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(program: &Program, url: &str, dir: &Path, lose: Option<u64>) -> Result<Self> {
        let (log, stderr) = (dir.join("wire.jsonl"), dir.join("controller.log"));
        File::create(&log)?;
        let mut command = Command::new(std::env::current_exe()?);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TUSKLINE_") {
                command.env_remove(name);
            }
        }
        command.env("TUSKLINE_DATABASE_URL", url).arg("controller");
        command.args(["--heartbeat", "1s", "--cancel-grace", "1s", "--drain-grace", "10s"]);
        command.arg("--wire-log").arg(&log);
        if let Some(each) = lose {
            command.args(["--lose-answers", &each.to_string()]);
        }
        if program.is_zygote {
            command.arg("--zygote");
        }
        command.arg("--").args(&program.command);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&stderr)?);
        // It takes all below it along.
        tuskline_postgres::die_with_parent(&mut command, Signal::KILL);
        let guardian = command.spawn().context("the controller cannot be started")?;
        let (unread, wire) = (Vec::new(), Wire::default());
        Ok(Self { guardian, log, read_to: 0, unread, stderr, wire })
    }

    /// Reads what has come to the wire log.
    ///
    /// # Errors
    /// It cannot be read, or a line is none of ours.
    pub fn look(&mut self) -> Result<()> {
        let mut file = File::open(&self.log)?;
        file.seek(SeekFrom::Start(self.read_to))?;
        self.read_to += u64::try_from(file.read_to_end(&mut self.unread)?).unwrap_or(0);
        while let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.unread.drain(..=end).collect();
            self.wire.lines.push(serde_json::from_slice(&line).context("a line of the wire log")?);
        }
        Ok(())
    }

    /// The executor that joined last gets a signal.
    ///
    /// # Errors
    /// There is none.
    pub fn signal_executor(&mut self, signal: i32) -> Result<()> {
        self.look()?;
        let last = self.wire.joined().pop().context("no executor has joined")?;
        let pid = i32::try_from(last.pid).ok().and_then(Pid::from_raw);
        let signal = Signal::from_named_raw(signal).context("there is no such signal")?;
        Ok(kill_process(pid.context("the executor has no pid")?, signal)?)
    }

    /// Tells the controller to drain.
    pub fn drain(&self) {
        let _ = kill_process(Pid::from_child(&self.guardian), Signal::TERM);
    }

    /// It has ended.
    ///
    /// # Errors
    /// The system says.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.guardian.try_wait()?)
    }

    /// Waits for its end. None: it did not end in time, and was killed.
    ///
    /// # Errors
    /// The system says.
    pub async fn until_ended(&mut self) -> Result<Option<i32>> {
        let deadline = Instant::now() + END;
        while Instant::now() < deadline {
            if let Some(status) = self.ended()? {
                self.look()?;
                return Ok(status.code());
            }
            tokio::time::sleep(LOOK).await;
        }
        self.end();
        self.look()?;
        Ok(None)
    }

    /// The controller's log.
    pub fn said(&self) -> String {
        std::fs::read(&self.stderr)
            .map_or_else(|_| String::new(), |text| String::from_utf8_lossy(&text).into_owned())
    }

    /// Ends all of it at once.
    pub fn end(&mut self) {
        // The first one drains, the second one ends all; the guardian itself must live to do it.
        for _ in 0..2 {
            let _ = kill_process(Pid::from_child(&self.guardian), Signal::TERM);
            std::thread::sleep(LOOK * 5);
        }
        let deadline = Instant::now() + Duration::from_secs(12);
        while Instant::now() < deadline && matches!(self.guardian.try_wait(), Ok(None)) {
            std::thread::sleep(LOOK);
        }
        let _ = self.guardian.kill();
        let _ = self.guardian.wait();
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        if matches!(self.guardian.try_wait(), Ok(None)) {
            self.end();
        }
    }
}
