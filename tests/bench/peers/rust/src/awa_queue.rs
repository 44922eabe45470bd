//! awa with its queue-storage engine and its receipt short path: no deadline by task.

use std::sync::Arc;
use std::time::Duration;

use awa::{
    Client, InsertOpts, InsertParams, JobArgs, JobResult, QueueConfig, QueueStorage,
    QueueStorageConfig, insert_with, migrations,
};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::task::JoinSet;

use crate::pace::Pace;
use crate::tally::{Payload, Tally, until_told_to_end};

const QUEUE: &str = "bench";
const MAX_WORKERS: u32 = 1024;
const CLAIM_BATCH: usize = 512;
const POLL: Duration = Duration::from_millis(50);
const CONNECTIONS: u32 = 30;
const BULK: usize = 1000;
const GRACE: Duration = Duration::from_secs(10);

#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct Noop(Payload);

impl JobArgs for Noop {
    fn kind() -> &'static str {
        "noop"
    }
}

/// Makes the schema, and chooses the engine that a fresh installation chooses at its first start.
pub async fn setup(url: &str) -> anyhow::Result<()> {
    let pool = connect(url, 2).await?;
    migrations::run(&pool).await?;
    let chosen: bool = sqlx::query_scalar("select awa.storage_auto_finalize_if_fresh('awa')")
        .fetch_one(&pool)
        .await?;
    anyhow::ensure!(chosen, "queue storage was not activated");
    Ok(())
}

/// Inserts by its COPY call.
pub async fn preload(url: &str, tasks: usize) -> anyhow::Result<()> {
    let pool = connect(url, 2).await?;
    let store = QueueStorage::new(QueueStorageConfig::default())?;
    let job = InsertParams {
        kind: Noop::kind().to_owned(),
        args: serde_json::to_value(Payload::plain())?,
        opts: options(),
    };
    let jobs = vec![job; BULK.min(tasks)];
    let mut left = tasks;
    while left > 0 {
        let batch = left.min(BULK);
        store.enqueue_params_copy(&pool, &jobs[..batch]).await?;
        left -= batch;
    }
    Ok(())
}

/// Inserts one by one.
pub async fn send(url: &str, pace: Pace) -> anyhow::Result<()> {
    let pool = connect(url, u32::try_from(pace.connections)?).await?;
    let mut senders = JoinSet::new();
    for number in 0..pace.connections {
        let pool = pool.clone();
        senders.spawn(async move {
            let mut beat = pace.beat(number);
            while let Some(payload) = beat.next().await {
                insert_with(&pool, &Noop(payload), options()).await?;
            }
            Ok(())
        });
    }
    pace.end(senders).await
}

/// Executes tasks until it is asked to end.
pub async fn work(url: &str, tally: Arc<Tally>) -> anyhow::Result<()> {
    let config = QueueConfig {
        max_workers: MAX_WORKERS,
        claim_batch_size: CLAIM_BATCH,
        poll_interval: POLL,
        deadline_duration: Duration::ZERO,
        ..QueueConfig::default()
    };
    let starts = Arc::clone(&tally);
    let client = Client::builder(connect(url, CONNECTIONS).await?)
        .queue(QUEUE, config)
        .register::<Noop, _, _>(move |task: Noop, _| {
            starts.start(&task.0);
            async { Ok(JobResult::Completed) }
        })
        .build()?;
    client.start().await?;
    until_told_to_end().await?;
    client.shutdown(GRACE).await;
    tally.end();
    Ok(())
}

fn options() -> InsertOpts {
    InsertOpts { queue: QUEUE.to_owned(), ..InsertOpts::default() }
}

async fn connect(url: &str, connections: u32) -> anyhow::Result<PgPool> {
    Ok(PgPoolOptions::new().max_connections(connections).connect(url).await?)
}
