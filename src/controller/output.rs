//! What executors write to standard output and error: lines of the controller's log, with the task that runs.

use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use super::hand_out::HandOut;

/// Longest line that is kept whole, in bytes.
const LINE: usize = 8192;

/// Logs until dropped.
pub async fn log(listener: UnixListener, hand_out: Arc<HandOut>) {
    let mut writers = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    writers.spawn(log_lines(stream, Arc::clone(&hand_out)));
                }
            }
            Some(_) = writers.join_next() => {}
        }
    }
}

async fn log_lines(stream: UnixStream, hand_out: Arc<HandOut>) {
    let pid = stream.peer_cred().ok().and_then(|peer| u32::try_from(peer.pid()?).ok()).unwrap_or(0);
    let mut reader = BufReader::with_capacity(LINE, stream);
    let mut line = Vec::new();
    loop {
        let is_open = read_line(&mut reader, &mut line).await;
        if !line.is_empty() {
            say(&hand_out, pid, &clean(&line));
            line.clear();
        }
        if !is_open {
            return;
        }
    }
}

/// Reads a line, or the first [`LINE`] bytes of a longer one. False: it was the last one.
async fn read_line(reader: &mut BufReader<UnixStream>, line: &mut Vec<u8>) -> bool {
    loop {
        let (is_done, used) = match reader.fill_buf().await {
            Ok([]) | Err(_) => return false,
            Ok(read) => {
                let read = &read[..read.len().min(LINE - line.len())];
                let end = read.iter().position(|byte| *byte == b'\n');
                line.extend_from_slice(&read[..end.unwrap_or(read.len())]);
                (end.is_some() || line.len() >= LINE, end.map_or(read.len(), |end| end + 1))
            }
        };
        reader.consume(used);
        if is_done {
            return true;
        }
    }
}

fn say(hand_out: &HandOut, pid: u32, line: &str) {
    match hand_out.only_attempt(pid) {
        Some((lambda, task, attempt)) => {
            tracing::info!(target: "tuskline::executor", pid, %lambda, task, attempt, "{line}");
        }
        None => tracing::info!(target: "tuskline::executor", pid, "{line}"),
    }
}

/// Without characters that a terminal would act on.
fn clean(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    text.trim_end()
        .chars()
        .map(|one| if one.is_control() && one != '\t' { '\u{fffd}' } else { one })
        .collect()
}
