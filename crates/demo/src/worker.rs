//! The demo's worker process: serves `checksum_file` and writes down what it executes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tuskline_sdk::{Context, Lambda, Outcome, Worker, WorkerConfig};

use super::checksum;
use super::record::{Recorder, What};

/// Name of the lambda.
pub(super) const LAMBDA: &str = "checksum_file";
/// Heartbeat period: a tenth of the default, so that the rescue of a killed worker's tasks fits into
/// the seconds a demo lasts. Self-termination after 2 s, lease 2.6 s.
pub(super) const HEARTBEAT: Duration = Duration::from_millis(500);
/// Executions at once in one worker: reading files keeps a thread each.
const SLOTS: usize = 4;

#[derive(Deserialize)]
struct ChecksumFile {
    path: PathBuf,
}

/// Works until SIGTERM; ends with the process that started it.
///
/// # Errors
/// The record cannot be opened, or those of [`Worker::run`].
pub async fn work(url: &str, record: &Path) -> anyhow::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let recorder = Arc::new(Recorder::open(record)?);
    let lambda = Lambda::blocking_named(LAMBDA, move |file: ChecksumFile, context: Context| {
        recorder.note(&context, What::Begin);
        let outcome = checksum_file(&file.path, &context);
        let ended = match outcome {
            Outcome::Success(_) => What::Success,
            _ => What::Failure,
        };
        recorder.note(&context, ended);
        outcome
    });
    let config = WorkerConfig::with_heartbeat(HEARTBEAT);
    Worker::builder(url).config(config).serve(lambda.slots(SLOTS)).run().await?;
    Ok(())
}

fn checksum_file(path: &Path, context: &Context) -> Outcome {
    match checksum::of_file(path, || !context.is_cancelled()) {
        Ok((sha256, bytes)) => Outcome::Success(Some(json!({ "sha256": sha256, "bytes": bytes }))),
        Err(error) => Outcome::retriable(format!("{}: {error}", path.display())),
    }
}
