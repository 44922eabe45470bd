//! Runs a built program as a shell would, in an environment that holds nothing of ours.
//!
//! Every address carries a password, and every output is searched for it and for control
//! characters: no test has to remember that.

// The file of a guarantee takes what it needs.
#![allow(dead_code)]

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// The password in every address; a server that trusts its socket does not look at it.
pub const PASSWORD: &str = "s3cret-pa55";

/// Longest a run may take. A demo takes some ten seconds on a machine that rests.
pub const RUN_LIMIT: Duration = Duration::from_secs(120);

/// A call of a program.
pub struct Call(Command);

/// Result of a call.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// A call under way.
pub struct Running {
    child: Child,
    out: Receiver<String>,
    err: Receiver<String>,
    said: String,
}

impl Call {
    /// A call with these arguments.
    pub fn of(binary: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(binary);
        command.args(arguments).env_clear().stdin(Stdio::null()).current_dir("/");
        for kept in ["PATH", "TUSKLINE_PG_BIN", "TMPDIR", "LLVM_PROFILE_FILE"] {
            command.envs(std::env::var_os(kept).map(|value| (kept, value)));
        }
        command.env("COLUMNS", "80").env("HOME", "/nonexistent");
        Self(command).env("TUSKLINE_DATA_DIR", "/nonexistent/tuskline")
    }

    pub fn database(self, url: &str) -> Self {
        self.env("TUSKLINE_DATABASE_URL", url)
    }

    pub fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.0.env(name, value);
        self
    }

    pub fn arg(mut self, argument: &str) -> Self {
        self.0.arg(argument);
        self
    }

    /// Changes the command by the means of the standard library.
    pub fn with(mut self, change: impl FnOnce(&mut Command)) -> Self {
        change(&mut self.0);
        self
    }

    /// Runs it to its end.
    pub fn run(self) -> Ran {
        self.start().end()
    }

    /// As [`Call::run`], with a text on its standard input.
    pub fn run_with_input(mut self, input: &str) -> Ran {
        self.0.stdin(Stdio::piped());
        let mut running = self.start();
        // It may refuse before it has read everything.
        let _ = running.child.stdin.take().unwrap().write_all(input.as_bytes());
        running.end()
    }

    /// Starts it with the standard output that [`Call::with`] gave it.
    pub fn spawn_as_is(mut self, stderr: Stdio) -> Child {
        self.0.stderr(stderr).spawn().unwrap()
    }

    /// Starts it and leaves it running.
    pub fn start(mut self) -> Running {
        let mut child = self.0.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = read(child.stdout.take().unwrap());
        let err = read(child.stderr.take().unwrap());
        Running { child, out, err, said: String::new() }
    }
}

/// Sends what is read, as it comes.
fn read(mut from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let (mut bytes, mut kept) = ([0; 4096], Vec::new());
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            kept.extend_from_slice(&bytes[..read]);
            // A character that is not complete waits for the rest of it.
            let whole = match std::str::from_utf8(&kept) {
                Ok(text) => text.len(),
                Err(error) => error.valid_up_to(),
            };
            let rest = kept.split_off(whole);
            let _ = sender.send(String::from_utf8(std::mem::replace(&mut kept, rest)).unwrap());
        }
        assert!(kept.is_empty(), "it writes text");
    });
    receiver
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until it has written a text to standard error.
    pub fn until_said(&mut self, text: &str) {
        let deadline = Instant::now() + RUN_LIMIT;
        while !self.said.contains(text) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.err.recv_timeout(left) {
                Ok(more) => self.said.push_str(&more),
                Err(_) => panic!("it never said {text:?}: {}", self.said),
            }
        }
    }

    /// Waits until it has written a line to standard output; all that it has written there.
    pub fn line(&mut self) -> String {
        let (deadline, mut line) = (Instant::now() + RUN_LIMIT, String::new());
        while !line.ends_with('\n') {
            let left = deadline.saturating_duration_since(Instant::now());
            line += &self.out.recv_timeout(left).unwrap_or_else(|_| {
                panic!("no line: {line}{}", self.err.try_iter().collect::<String>())
            });
        }
        line
    }

    /// Waits for its end.
    pub fn end(mut self) -> Ran {
        let status = self.wait();
        // The channels close when no writer is left.
        let rest = |from: &Receiver<String>| {
            let (deadline, mut text) = (Instant::now() + RUN_LIMIT, String::new());
            while let Ok(more) =
                from.recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                text += &more;
            }
            text
        };
        let (out, err) = (rest(&self.out), std::mem::take(&mut self.said) + &rest(&self.err));
        let code = status.code().unwrap_or(-1);
        Ran { code, out, err }.checked()
    }

    fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + RUN_LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            if Instant::now() > deadline {
                let said: String = self.err.try_iter().collect();
                panic!("it did not end: {}{said}", self.said);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ran {
    fn checked(self) -> Self {
        for text in [&self.out, &self.err] {
            assert!(!text.contains(PASSWORD), "a password is printed: {text}");
            let odd = |c: char| {
                (c.is_control() && c != '\n' && c != '\t')
                    || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{e0000}'..='\u{e007f}')
            };
            assert!(!text.contains(odd), "a control character is printed: {text:?}");
        }
        self
    }

    /// Its standard output, after success with an empty standard error.
    pub fn fine(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "{}", self.out);
        self.out
    }

    /// Its standard output as JSON, after success.
    pub fn json(self) -> Value {
        let out = self.fine();
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }

    /// Exit code, error and hint of a failure that wrote nothing else.
    pub fn refusal(self) -> String {
        assert_eq!(self.out, "", "{}", self.err);
        let lines: Vec<&str> = self.err.lines().collect();
        assert!(matches!(lines.len(), 1..=2), "one line and a hint: {}", self.err);
        assert!(lines[0].starts_with("error: "), "{}", self.err);
        assert!(lines[1..].iter().all(|line| line.starts_with("hint: ")), "{}", self.err);
        format!("{} {}", self.code, self.err.trim_end())
    }
}

/// The address of a database reached through a socket.
pub fn url(config: &Config) -> String {
    let [Host::Unix(dir)] = config.get_hosts() else { panic!("no socket: {config:?}") };
    let (user, database) = (config.get_user().unwrap(), config.get_dbname().unwrap());
    // The socket as the host: each library reads this form.
    let host = dir.to_str().unwrap().replace('/', "%2F");
    format!("postgresql://{user}:{PASSWORD}@{host}/{database}")
}

/// The processes that work in a directory or have it among their arguments.
pub fn processes_in(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&words).replace('\0', " ");
        let works =
            std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(dir));
        if works || line.contains(dir.to_str().unwrap()) {
            found.push(format!("{}: {line}", entry.file_name().display()));
        }
    }
    found
}

/// Copies a program, by another process. If this process had the copy open for writing, a child of
/// another thread could inherit the open file. Then the copy could not be executed.
pub fn copy(program: &Path, to: &Path) {
    let copied = Command::new("cp").arg(program).arg(to).status().unwrap();
    assert!(copied.success(), "{copied}");
}

/// A directory that goes with the test, and that the account of a server can enter.
pub fn open_dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    dir
}
