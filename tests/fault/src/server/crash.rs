//! Deaths of a server and of its parts, and standing still.

use rustix::process::{Pid, Signal};

use super::{OURS, Server, Stop, process};
use anyhow::{Context, Result, ensure};

impl Server {
    /// `kill -9` of the postmaster. Its children notice and end, which takes a moment longer; a
    /// [`start`](Self::start) waits for them.
    pub async fn kill_postmaster(&mut self) {
        let Some(postmaster) = self.postmaster.take() else { return };
        let end = move || postmaster.stop(&Self::kill_steps());
        // The thread only fails with the runtime.
        let _ = tokio::task::spawn_blocking(end).await;
    }

    /// `kill -9` of one client's backend, chosen by `choice` among those there are. The instance
    /// ends every session and recovers by itself: see
    /// [`wait_until_answering`](Self::wait_until_answering). Returns the backend's number.
    ///
    /// # Errors
    /// When there is no client.
    pub async fn kill_backend(&mut self, choice: u64) -> Result<u32> {
        let session = self.session("postgres").await?;
        let query = "select pid from pg_stat_activity
             where backend_type = 'client backend' and application_name <> $1 order by pid";
        let rows = session.query(query, &[&OURS]).await?;
        ensure!(!rows.is_empty(), "{} has no client to kill the backend of", self.name);
        let chosen = usize::try_from(choice % rows.len() as u64)?;
        let pid: i32 = rows[chosen].get(0);
        let backend = Pid::from_raw(pid).context("a backend without a number")?;
        let killed = process::signal(backend, &self.data, Signal::KILL);
        ensure!(killed, "backend {pid} ended before it was killed");
        Ok(pid.unsigned_abs())
    }

    /// Stops the postmaster, then every process of the server: it keeps its sockets and locks and
    /// says nothing.
    pub fn freeze(&self) {
        if let Some(postmaster) = self.postmaster.as_ref().filter(|child| child.running()) {
            let number = i32::try_from(postmaster.pid()).ok().and_then(Pid::from_raw);
            number.into_iter().for_each(|pid| process::stop_all(pid, &self.data));
        }
    }

    /// Lets a frozen server go on.
    pub fn thaw(&self) {
        process::continue_all(&self.data);
    }

    /// Ends every process of the server as in a crash, and leaves no shared memory. Blocks for a
    /// moment.
    pub(super) fn abandon(&mut self) {
        self.thaw();
        if let Some(postmaster) = self.postmaster.take() {
            postmaster.stop(&Stop::Immediate.steps());
        }
        if !process::kill_all(&self.data) {
            tracing::warn!(server = self.name, "some of its processes will not end");
        }
        self.remove_shared_memory();
    }

    /// Removes the shared memory of a killed postmaster. Its pid file stays, and has on the seventh
    /// line, after the key, the number of a small segment. The next start would have removed it.
    fn remove_shared_memory(&self) {
        let pid_file = std::fs::read_to_string(self.data_seen_from_here().join("postmaster.pid"));
        let segment = pid_file
            .ok()
            .and_then(|text| text.lines().nth(6)?.split_whitespace().nth(1)?.parse::<u32>().ok());
        if let Some(segment) = segment {
            let mut ipcrm = std::process::Command::new("ipcrm");
            // Where there is no ipcrm a few bytes stay until the machine's next start.
            let _ = ipcrm.args(["-m", &segment.to_string()]).output();
        }
    }

    fn kill_steps() -> [(Signal, std::time::Duration); 1] {
        [(Signal::KILL, std::time::Duration::from_secs(10))]
    }
}
