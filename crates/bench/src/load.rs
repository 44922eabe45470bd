//! Tasks for the workloads: payloads, set-based preloads, and single inserts at a fixed rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use clap::{Args, value_parser};
use tokio_util::sync::CancellationToken;

use super::meter::Observer;
use super::proc::monotonic_ns;
use super::progress::Progress;
use super::site::Site;

/// The lambda of most workloads.
pub(super) const NOOP: &str = "noop";
/// Rows in one statement of a preload.
const PRELOAD_BATCH: u64 = 10_000;
/// Bytes of `{"pad":""}`.
const FRAME_BYTES: usize = 10;

/// Default size of a payload in bytes.
pub(super) const PAYLOAD_BYTES: usize = 150;
/// Largest payload in bytes; a lambda takes 256 KiB unless it is told otherwise.
pub(super) const PAYLOAD_MAX: usize = 200_000;

/// A JSON payload of so many bytes, or the smallest.
pub(super) fn payload(bytes: usize) -> String {
    format!("{{\"pad\":\"{}\"}}", pad(bytes))
}

fn pad(bytes: usize) -> String {
    "x".repeat(bytes.saturating_sub(FRAME_BYTES))
}

/// Reads the size of a payload, for the command line.
pub(super) fn payload_bytes(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(bytes) if (FRAME_BYTES..=PAYLOAD_MAX).contains(&bytes) => Ok(bytes),
        _ => Err(format!("must be a whole number from {FRAME_BYTES} to {PAYLOAD_MAX}")),
    }
}

/// Makes lambdas known.
pub(super) async fn define(observer: &Observer, names: &[String]) -> anyhow::Result<()> {
    for name in names {
        observer.row(&format!("select tuskline.define_lambda('{name}')")).await?;
    }
    Ok(())
}

/// Makes the usual lambda known.
pub(super) async fn define_noop(observer: &Observer) -> anyhow::Result<Vec<String>> {
    let names = vec![NOOP.to_owned()];
    define(observer, &names).await?;
    Ok(names)
}

/// A set-based preload.
#[derive(Debug, Clone, Copy)]
pub(super) struct Preload<'a> {
    pub lambda: &'a str,
    pub tasks: u64,
    pub payload_bytes: usize,
    /// Due so many seconds from now, a ms apart; none: at once.
    pub ahead_s: Option<u64>,
}

impl Preload<'_> {
    /// Tasks of the usual lambda, due at once.
    pub(super) const fn noop(tasks: u64, payload_bytes: usize) -> Self {
        Self { lambda: NOOP, tasks, payload_bytes, ahead_s: None }
    }

    /// Inserts them, some thousands in a statement, under a live line that begins with `what`.
    pub(super) async fn insert(
        self,
        what: &'static str,
        site: &Site,
        observer: &Observer,
    ) -> anyhow::Result<()> {
        let progress = Progress::new(what, self.tasks, site.quiet());
        let (lambda, payload) = (self.lambda, payload(self.payload_bytes));
        let mut left = self.tasks;
        while left > 0 {
            let batch = left.min(PRELOAD_BATCH);
            let statement = match self.ahead_s {
                None => format!(
                    "insert into tuskline.task (lambda, payload) \
                     select '{lambda}', '{payload}' from generate_series(1, {batch})"
                ),
                // Not a plain insert: tasks for later get numbers from a range of their own.
                Some(seconds) => format!(
                    "select cardinality(tuskline.schedule_many(array_fill('{lambda}'::text, array[{batch}]), \
                       array_fill('{payload}'::json, array[{batch}]), p_delays => \
                       array(select interval '{seconds} seconds' + i * interval '1 ms' from generate_series(1, {batch}) i)))"
                ),
            };
            observer.execute(&statement).await?;
            left -= batch;
            progress.further(batch);
        }
        Ok(())
    }
}

/// Brings the store to rest, so that a window does not pay for what came before it.
pub(super) async fn settle(observer: &Observer) -> anyhow::Result<()> {
    observer.execute("vacuum analyze tuskline.task").await?;
    checkpoint(observer).await;
    Ok(())
}

/// Writes a checkpoint, so that every run has the same page images to write. On a given server the role may
/// lack the right; there they depend on when its last one was.
pub(super) async fn checkpoint(observer: &Observer) {
    let _ = observer.execute("checkpoint").await;
}

/// How single inserts are made, and by how many processes executed, for the command line.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Singles {
    /// Connections that insert.
    #[arg(long, default_value_t = 8, value_parser = value_parser!(u64).range(1..=64))]
    pub connections: u64,
    /// Worker processes.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u64).range(1..=64))]
    pub workers: u64,
    /// Size of each payload, besides a stamp of some 40 bytes.
    #[arg(long, default_value_t = PAYLOAD_BYTES, value_parser = payload_bytes)]
    pub payload_bytes: usize,
}

impl Singles {
    pub(super) fn pace(self, rate: u64, seconds: u64, lambdas: &[String]) -> Pace {
        let pace = Pace::new(rate, self.connections, seconds, lambdas);
        Pace { payload_bytes: self.payload_bytes, ..pace }
    }
}

/// Single inserts at a fixed rate, each with the moment of its call.
#[derive(Debug, Clone)]
pub(super) struct Pace {
    /// Inserts a second, over all connections.
    pub rate: u64,
    /// Connections that insert.
    pub connections: u64,
    /// For how long, unless stopped before.
    pub seconds: u64,
    /// Size of a payload.
    pub payload_bytes: usize,
    /// Lambdas to go round.
    pub lambdas: Arc<[String]>,
    /// Priorities to go round.
    pub priorities: &'static [&'static str],
    /// Number that goes into the payload, so that starts are told apart.
    pub phase: Arc<AtomicU8>,
    /// Ends it early.
    pub stop: CancellationToken,
}

impl Pace {
    /// Normal priority, one phase.
    pub(super) fn new(rate: u64, connections: u64, seconds: u64, lambdas: &[String]) -> Self {
        Self {
            rate,
            connections,
            seconds,
            payload_bytes: PAYLOAD_BYTES,
            lambdas: lambdas.into(),
            priorities: &["normal"],
            phase: Arc::default(),
            stop: CancellationToken::new(),
        }
    }

    /// Sends, and gives back how many were sent in each of the 256 phases.
    pub(super) async fn send(self, site: &Site) -> anyhow::Result<Vec<u64>> {
        let sent: Arc<[AtomicU64]> = (0..=u8::MAX).map(|_| AtomicU64::new(0)).collect();
        let mut senders = tokio::task::JoinSet::new();
        for number in 0..self.connections {
            let (client, pace) = (site.connect().await?, self.clone());
            senders.spawn(pace.send_on(client, number, Arc::clone(&sent)));
        }
        while let Some(ended) = senders.join_next().await {
            ended??;
        }
        Ok(sent.iter().map(|phase| phase.load(Ordering::Relaxed)).collect())
    }

    /// One connection's share, on a beat of its own.
    #[allow(clippy::cast_precision_loss)]
    async fn send_on(
        self,
        client: tokio_postgres::Client,
        number: u64,
        sent: Arc<[AtomicU64]>,
    ) -> anyhow::Result<()> {
        let insert = client
            .prepare(
                "insert into tuskline.task (lambda, payload, priority) \
                 values ($1::text, $2::text::json, $3::text::tuskline.priority)",
            )
            .await?;
        let gap = Duration::from_secs_f64(self.connections as f64 / self.rate as f64);
        let offset = gap.mul_f64(number as f64 / self.connections as f64);
        let mut beat = tokio::time::interval_at(tokio::time::Instant::now() + offset, gap);
        let pad = pad(self.payload_bytes);
        let share = self.rate * self.seconds / self.connections
            + u64::from(number < self.rate * self.seconds % self.connections);
        for turn in
            (number..).step_by(usize::try_from(self.connections)?).take(usize::try_from(share)?)
        {
            tokio::select! { _ = beat.tick() => {} () = self.stop.cancelled() => break }
            let lambda = &self.lambdas[usize::try_from(turn)? % self.lambdas.len()];
            let round = usize::try_from(turn)? / self.lambdas.len();
            let priority = self.priorities[round % self.priorities.len()];
            let phase = self.phase.load(Ordering::Relaxed);
            let text =
                format!("{{\"at_ns\":{},\"phase\":{phase},\"pad\":\"{pad}\"}}", monotonic_ns());
            client.execute(&insert, &[&lambda, &text, &priority]).await?;
            sent[usize::from(phase)].fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_has_the_size_that_was_asked_for() {
        assert_eq!(payload(150).len(), 150);
        assert!(serde_json::from_str::<serde_json::Value>(&payload(10)).is_ok());
        assert!(payload_bytes("9").is_err() && payload_bytes("10").is_ok());
    }
}
