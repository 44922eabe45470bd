//! rebuild: the server crashes under a full queue; how long the queues take to be filled again.

use std::time::Instant;

use clap::{Args, value_parser};

use super::load::{PAYLOAD_BYTES, Preload, define_noop, payload_bytes, settle};
use super::meter::round;
use super::report::Outcome;
use super::site::Site;

/// Options of `rebuild`.
#[derive(Debug, Clone, Args)]
pub struct Rebuild {
    /// Tasks in the queue.
    #[arg(long, default_value_t = 1_000_000, value_parser = value_parser!(u64).range(1..=50_000_000))]
    tasks: u64,
    /// Size of each payload.
    #[arg(long, default_value_t = PAYLOAD_BYTES, value_parser = payload_bytes)]
    payload_bytes: usize,
}

impl Rebuild {
    pub(super) async fn run(&self, site: &mut Site) -> anyhow::Result<Outcome> {
        self.fill(site).await?;
        let crashed = Instant::now();
        site.crash().await?;
        let restart_s = crashed.elapsed().as_secs_f64();
        let observer = site.observer().await?;
        let before = observer.read().await?;
        let client = site.connect().await?;
        let began = Instant::now();
        let rebuilt = "select rebuilt, tasks from tuskline.rebuild_queues()";
        let rows = client.query_typed(rebuilt, &[]).await?;
        let seconds = began.elapsed().as_secs_f64();
        drop(client);
        observer.alone().await?;
        let after = observer.read().await?;
        let rebuilt = rows.first().map(|row| (row.get::<_, bool>(0), row.get::<_, i64>(1)));
        anyhow::ensure!(
            rebuilt == Some((true, i64::try_from(self.tasks)?)),
            "of {} tasks in the queue a rebuild found {rebuilt:?}",
            self.tasks
        );
        Ok(Outcome::new("rebuild", self.tasks, seconds, before.until(after, self.tasks))
            .with("restart_s", round(restart_s))
            .with("payload_bytes", self.payload_bytes))
    }

    async fn fill(&self, site: &Site) -> anyhow::Result<()> {
        let observer = site.observer().await?;
        define_noop(&observer).await?;
        Preload::noop(self.tasks, self.payload_bytes).insert("preload", site, &observer).await?;
        settle(&observer).await
    }
}
