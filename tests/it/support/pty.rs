//! A program on a terminal of 80 columns and 24 lines: a test reads its screen and presses its keys.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

use super::DEADLINE;
use super::program::Call;

const LINES: u16 = 24;
const COLUMNS: u16 = 80;

/// A program on a terminal.
pub struct OnTerminal {
    child: Child,
    keys: File,
    terminal: OwnedFd,
    before: String,
    screen: Arc<Mutex<vt100::Parser>>,
}

impl OnTerminal {
    /// Starts it in a process group of its own.
    pub fn start(call: Call) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let terminal: OwnedFd =
            File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap().into();
        let size = Winsize { ws_row: LINES, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).unwrap();
        let before = modes(&terminal);
        let (stdin, stdout) = (terminal.try_clone().unwrap(), terminal.try_clone().unwrap());
        let stderr = terminal.try_clone().unwrap();
        let call = call.with(|command| {
            command.process_group(0).stdin(Stdio::from(stdin)).stdout(Stdio::from(stdout));
        });
        let child = call.env("TERM", "xterm-256color").spawn_as_is(Stdio::from(stderr));
        let keys = File::from(master);
        let screen = Arc::new(Mutex::new(vt100::Parser::new(LINES, COLUMNS, 0)));
        let (mut output, shown) = (keys.try_clone().unwrap(), Arc::clone(&screen));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().process(&bytes[..read]);
            }
        });
        Self { child, keys, terminal, before, screen }
    }

    /// The screen as text.
    pub fn screen(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Whether the program has the alternate screen or hides the cursor.
    pub fn has_screen(&self) -> bool {
        let parser = self.screen.lock().unwrap();
        parser.screen().alternate_screen() || parser.screen().hide_cursor()
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the screen has a text.
    pub async fn until_shown(&self, text: &str) {
        self.until(&format!("{text:?} is shown"), || self.screen().contains(text)).await;
    }

    /// Waits until the screen has a text no longer.
    pub async fn until_gone(&self, text: &str) {
        self.until(&format!("{text:?} is gone"), || !self.screen().contains(text)).await;
    }

    async fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !is_so() {
            assert!(Instant::now() < deadline, "it never happened that {what}:\n{}", self.screen());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until it has stopped, as by Ctrl-Z.
    pub async fn until_stopped(&self) {
        let pid = Some(Pid::from_child(&self.child));
        let stopped =
            || waitpid(pid, WaitOptions::UNTRACED | WaitOptions::NOHANG).unwrap().is_some();
        self.until("it stops", stopped).await;
    }

    /// Waits for its end.
    pub async fn end(&mut self) -> ExitStatus {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it did not end:\n{}", self.screen());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The terminal has the modes that it had before the program, and the usual screen.
    pub async fn assert_restored(&self) {
        assert_eq!(modes(&self.terminal), self.before);
        self.until("the screen is given back", || !self.has_screen()).await;
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn modes(terminal: &OwnedFd) -> String {
    let Termios { input_modes, output_modes, control_modes, local_modes, .. } =
        tcgetattr(terminal).unwrap();
    format!("{input_modes:?} {output_modes:?} {control_modes:?} {local_modes:?}")
}
