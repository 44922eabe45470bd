//! The output of executors, standard output and error: lines of the controller's log, with the task that runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::{UnixListener, UnixStream};

use super::hand_out::HandOut;

/// Longest line that is kept whole, in bytes.
const LINE: usize = 8192;

/// See the module.
#[derive(Debug)]
pub struct Output {
    hand_out: Arc<HandOut>,
    /// By the process that connected.
    writers: Mutex<HashMap<u32, Arc<Writer>>>,
}

#[derive(Debug)]
struct Writer {
    pid: u32,
    stream: UnixStream,
    /// A line that is not complete yet.
    line: Mutex<Vec<u8>>,
}

impl Output {
    pub fn new(hand_out: Arc<HandOut>) -> Self {
        Self { hand_out, writers: Mutex::default() }
    }

    /// Logs until dropped.
    pub async fn log(self: Arc<Self>, listener: UnixListener) {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // Out of descriptors: some come back.
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                continue;
            };
            let peer = stream.peer_cred().ok().and_then(|peer| u32::try_from(peer.pid()?).ok());
            let pid = peer.unwrap_or(0);
            let writer = Arc::new(Writer { pid, stream, line: Mutex::default() });
            self.writers().insert(pid, Arc::clone(&writer));
            let output = Arc::clone(&self);
            tokio::spawn(async move {
                let stream = &writer.stream;
                let read = || writer.read(&output.hand_out, |buffer| stream.try_read(buffer));
                while stream.readable().await.is_ok() && read() {}
                let mut writers = output.writers();
                if writers.get(&pid).is_some_and(|last| Arc::ptr_eq(last, &writer)) {
                    writers.remove(&pid);
                }
            });
        }
    }

    /// Logs what a process has written so far. It asks the kernel: the stream may not have heard yet that there is
    /// something to read.
    pub fn read_rest(&self, pid: u32) {
        let writer = self.writers().get(&pid).cloned();
        if let Some(writer) = writer {
            let read = |buffer: &mut [u8]| Ok(rustix::io::read(&writer.stream, buffer)?);
            writer.read(&self.hand_out, read);
        }
    }

    fn writers(&self) -> MutexGuard<'_, HashMap<u32, Arc<Writer>>> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writer {
    /// Logs the lines that are there. False: there will be no more.
    fn read(
        &self,
        hand_out: &HandOut,
        receive: impl Fn(&mut [u8]) -> std::io::Result<usize>,
    ) -> bool {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffer = [0; LINE];
        // The rest has its turn: one that writes without an end must not hold up the others.
        for _ in 0..32 {
            match receive(&mut buffer) {
                Ok(0) => {
                    say(hand_out, self.pid, &mut line);
                    return false;
                }
                Ok(read) => {
                    for byte in &buffer[..read] {
                        match byte {
                            b'\n' => say(hand_out, self.pid, &mut line),
                            _ => line.push(*byte),
                        }
                        if line.len() >= LINE {
                            say(hand_out, self.pid, &mut line);
                        }
                    }
                }
                Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
            }
        }
        true
    }
}

fn say(hand_out: &HandOut, pid: u32, line: &mut Vec<u8>) {
    let text = clean(&std::mem::take(line));
    match hand_out.only_attempt(pid) {
        _ if text.is_empty() => {}
        Some((lambda, task, attempt)) => {
            tracing::info!(target: "tuskline::executor", pid, %lambda, task, attempt, "{text}");
        }
        None => tracing::info!(target: "tuskline::executor", pid, "{text}"),
    }
}

/// Without characters that a terminal would act on.
fn clean(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let shown = |one: char| if one.is_control() && one != '\t' { '\u{fffd}' } else { one };
    text.trim_end().chars().map(shown).collect()
}
