//! The messages between controller and guardian: JSON lines on a socket pair, which is the controller's
//! standard input.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncBufReadExt;
use tokio::sync::{mpsc, oneshot};

/// To the guardian.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromController {
    /// Executors may run until then, on [`tuskline_sdk::Host::clock_ns`]. None: as long as they like; they have
    /// no task.
    Until(Option<u64>),
    /// Start a command.
    Spawn {
        /// Of the request.
        number: u64,
        command: Vec<String>,
        /// Added to the guardian's own.
        environment: Vec<(String, String)>,
    },
}

/// To the controller.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromGuardian {
    Spawned {
        number: u64,
        pid: u32,
    },
    NotSpawned {
        number: u64,
        error: String,
    },
    /// A child has ended: a process that was spawned, a fork of the zygote, or one that an executor left behind.
    Ended {
        pid: u32,
        how: Ended,
    },
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    pub signal: Option<i32>,
    pub code: Option<i32>,
}

/// A child of the guardian that began, or how it ended.
pub type Child = (u32, Option<Ended>);

/// The controller's end.
#[derive(Debug)]
pub struct Link {
    socket: OwnedSocket,
    numbers: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<io::Result<u32>>>>,
}

type OwnedSocket = std::os::unix::net::UnixStream;

impl Link {
    /// The link of this process, and what becomes of the guardian's children. Reads until dropped.
    ///
    /// # Errors
    /// Standard input is no socket: the process was not started by a guardian.
    pub fn open() -> io::Result<(Arc<Self>, mpsc::UnboundedReceiver<Child>)> {
        let fd = io::stdin().as_fd().try_clone_to_owned()?;
        let socket = OwnedSocket::from(fd);
        let reading = socket.try_clone()?;
        reading.set_nonblocking(true)?;
        let reading = tokio::net::UnixStream::from_std(reading)?;
        let (numbers, waiting) = (AtomicU64::new(0), Mutex::default());
        let link = Arc::new(Self { socket, numbers, waiting });
        let (ends, ended) = mpsc::unbounded_channel();
        tokio::spawn(Arc::clone(&link).read(reading, ends));
        Ok((link, ended))
    }

    async fn read(
        self: Arc<Self>,
        from: tokio::net::UnixStream,
        ends: mpsc::UnboundedSender<Child>,
    ) {
        let mut lines = tokio::io::BufReader::new(from).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let answer = match serde_json::from_str(&line) {
                Ok(FromGuardian::Ended { pid, how }) => {
                    let _ = ends.send((pid, Some(how)));
                    continue;
                }
                Ok(FromGuardian::Spawned { number, pid }) => {
                    let _ = ends.send((pid, None));
                    (number, Ok(pid))
                }
                Ok(FromGuardian::NotSpawned { number, error }) => {
                    (number, Err(io::Error::other(error)))
                }
                Err(error) => {
                    tracing::error!(%error, "a message of the guardian is unreadable");
                    continue;
                }
            };
            if let Some(asker) = self.waiting().remove(&answer.0) {
                let _ = asker.send(answer.1);
            }
        }
    }

    /// Starts a command below the guardian.
    ///
    /// # Errors
    /// It cannot be started, or the guardian has ended.
    pub async fn spawn(
        &self,
        command: Vec<String>,
        environment: Vec<(String, String)>,
    ) -> io::Result<u32> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (asker, answer) = oneshot::channel();
        self.waiting().insert(number, asker);
        self.say(&FromController::Spawn { number, command, environment });
        answer.await.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
    }

    /// Until when executors may run.
    pub fn until(&self, until_ns: Option<u64>) {
        self.say(&FromController::Until(until_ns));
    }

    /// Some bytes each few seconds. Where the guardian stands still and the pipe is full, the message is lost,
    /// and the guardian ends executors early.
    fn say(&self, message: &FromController) {
        let mut line = serde_json::to_vec(message).unwrap_or_default();
        line.push(b'\n');
        let mut rest = line.as_slice();
        while !rest.is_empty() {
            match rustix::net::send(&self.socket, rest, rustix::net::SendFlags::NOSIGNAL) {
                Ok(sent) => rest = &rest[sent..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => std::thread::yield_now(),
                Err(_) => return,
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<io::Result<u32>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
