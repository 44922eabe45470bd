//! copy: COPY straight into `tuskline.task`, which is how millions of tasks are scheduled.

use std::io::Cursor;
use std::time::Instant;

use clap::{Args, value_parser};
use futures_util::SinkExt as _;

use super::load::{NOOP, PAYLOAD_BYTES, checkpoint, define_noop, payload, payload_bytes};
use super::progress::Progress;
use super::report::Outcome;
use super::site::Site;

/// Rows in one piece on the wire.
const CHUNK: u64 = 1000;

/// Options of `copy`.
#[derive(Debug, Clone, Args)]
pub struct Copy {
    /// Tasks to schedule.
    #[arg(long, default_value_t = 200_000, value_parser = value_parser!(u64).range(1..=50_000_000))]
    tasks: u64,
    /// Tasks in one COPY, that is, in one commit.
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u64).range(1..=1_000_000))]
    batch: u64,
    /// Size of each payload.
    #[arg(long, default_value_t = PAYLOAD_BYTES, value_parser = payload_bytes)]
    payload_bytes: usize,
}

impl Copy {
    pub(super) async fn run(&self, site: &Site) -> anyhow::Result<Outcome> {
        let observer = site.observer().await?;
        define_noop(&observer).await?;
        let progress = Progress::new("copy", self.tasks, site.quiet());
        checkpoint(&observer).await;
        let before = observer.read().await?;
        let client = site.connect().await?;
        let began = Instant::now();
        let mut left = self.tasks;
        while left > 0 {
            let batch = left.min(self.batch);
            self.copy(&client, batch).await?;
            progress.further(batch);
            left -= batch;
        }
        let seconds = began.elapsed().as_secs_f64();
        drop(client);
        observer.alone().await?;
        let after = observer.read().await?;
        Ok(Outcome::new("copy", self.tasks, seconds, before.until(after, self.tasks))
            .with("batch", self.batch)
            .with("payload_bytes", self.payload_bytes))
    }

    /// One COPY in text, in which these payloads need no escapes.
    async fn copy(&self, client: &tokio_postgres::Client, rows: u64) -> anyhow::Result<()> {
        let line = format!("{NOOP}\t{}\n", payload(self.payload_bytes));
        let sink = client.copy_in("copy tuskline.task (lambda, payload) from stdin").await?;
        let mut sink = std::pin::pin!(sink);
        let mut left = rows;
        while left > 0 {
            let chunk = left.min(CHUNK);
            sink.send(Cursor::new(line.repeat(usize::try_from(chunk)?).into_bytes())).await?;
            left -= chunk;
        }
        let copied = sink.finish().await?;
        anyhow::ensure!(copied == rows, "{copied} of {rows} rows were copied");
        Ok(())
    }
}
