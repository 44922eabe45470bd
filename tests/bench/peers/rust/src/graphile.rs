//! graphile_worker, the Rust crate: local queue with a refetch delay, completions in batches.

use std::sync::Arc;
use std::time::Duration;

use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, RefetchDelayConfig, TaskHandler,
    Worker, WorkerContext, WorkerOptions,
};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::pace::Pace;
use crate::tally::{Payload, Tally, until_told_to_end};

const CONCURRENCY: usize = 24;
const LOCAL_QUEUE: usize = 500;
const COMPLETION_DELAY: Duration = Duration::from_millis(5);
/// Without one an idle worker asks without a pause.
const REFETCH_DELAY: Duration = Duration::from_millis(20);
const CONNECTIONS: u32 = 30;
const BULK: usize = 1000;

#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct Noop(Payload);

/// The state that a worker shares with its tasks.
#[derive(Clone)]
struct Shared(Arc<Tally>);

impl std::fmt::Debug for Shared {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Shared")
    }
}

impl TaskHandler for Noop {
    const IDENTIFIER: &'static str = "noop";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        if let Some(Shared(tally)) = context.get_ext::<Shared>() {
            tally.start(&self.0);
        }
        Ok::<(), String>(())
    }
}

/// Makes the schema.
pub async fn setup(url: &str) -> anyhow::Result<()> {
    options(url, 2).init().await?;
    Ok(())
}

/// Inserts some thousands a call.
pub async fn preload(url: &str, tasks: usize) -> anyhow::Result<()> {
    let utils = options(url, 2).init().await?.create_utils();
    let job = RawJobSpec {
        identifier: Noop::IDENTIFIER.to_owned(),
        payload: serde_json::to_value(Payload::plain())?,
        spec: JobSpec::default(),
    };
    let jobs = vec![job; BULK.min(tasks)];
    let mut left = tasks;
    while left > 0 {
        let batch = left.min(BULK);
        utils.add_raw_jobs(&jobs[..batch]).await?;
        left -= batch;
    }
    Ok(())
}

/// Inserts one by one.
pub async fn send(url: &str, pace: Pace) -> anyhow::Result<()> {
    let worker = options(url, u32::try_from(pace.connections)?).init().await?;
    let mut senders = JoinSet::new();
    for number in 0..pace.connections {
        let utils = worker.create_utils();
        senders.spawn(async move {
            let mut beat = pace.beat(number);
            while let Some(payload) = beat.next().await {
                utils.add_job(Noop(payload), JobSpec::default()).await?;
            }
            Ok(())
        });
    }
    pace.end(senders).await
}

/// Executes tasks until it is asked to end.
pub async fn work(url: &str, tally: Arc<Tally>) -> anyhow::Result<()> {
    let refetch = RefetchDelayConfig::default().with_duration(REFETCH_DELAY);
    let worker: Worker = options(url, CONNECTIONS)
        .concurrency(CONCURRENCY)
        .complete_job_batch_delay(COMPLETION_DELAY)
        .local_queue(LocalQueueConfig::default().with_size(LOCAL_QUEUE).with_refetch_delay(refetch))
        .add_extension(Shared(Arc::clone(&tally)))
        .listen_os_shutdown_signals(false)
        .init()
        .await?;
    let worker = Arc::new(worker);
    let running = tokio::spawn({
        let worker = Arc::clone(&worker);
        async move { worker.run().await }
    });
    until_told_to_end().await?;
    worker.request_shutdown();
    running.await??;
    tally.end();
    Ok(())
}

fn options(url: &str, connections: u32) -> WorkerOptions {
    WorkerOptions::default().database_url(url).max_pg_conn(connections).define_job::<Noop>()
}
