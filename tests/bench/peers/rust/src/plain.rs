//! A plain SKIP LOCKED table, our own reference: claim 100 by an update, delete when done. Two
//! loops, no notification: an empty look is repeated after 10 ms.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};

use crate::pace::Pace;
use crate::tally::{Payload, Tally, until_told_to_end};

const LOOPS: usize = 2;
const NAP: Duration = Duration::from_millis(10);

const SCHEMA: &str = "\
create table job (
    id bigint generated always as identity primary key,
    payload json not null,
    claimed_at timestamptz
);
create index job_ready on job (id) where claimed_at is null;";

const PRELOAD: &str = "\
insert into job (payload) select $1::text::json from generate_series(1, $2::bigint)";

const CLAIM: &str = "\
update job set claimed_at = clock_timestamp()
 where id = any(array(
    select id from job where claimed_at is null order by id limit 100 for update skip locked))
returning id, payload::text";

/// Makes the table.
pub async fn setup(url: &str) -> anyhow::Result<()> {
    Ok(connect(url).await?.batch_execute(SCHEMA).await?)
}

/// Inserts in one statement.
pub async fn preload(url: &str, tasks: usize) -> anyhow::Result<()> {
    let payload = serde_json::to_string(&Payload::plain())?;
    connect(url).await?.execute(PRELOAD, &[&payload, &i64::try_from(tasks)?]).await?;
    Ok(())
}

/// Inserts one by one.
pub async fn send(url: &str, pace: Pace) -> anyhow::Result<()> {
    let mut senders = JoinSet::new();
    for number in 0..pace.connections {
        let client = connect(url).await?;
        let insert = client.prepare("insert into job (payload) values ($1::text::json)").await?;
        senders.spawn(async move {
            let mut beat = pace.beat(number);
            while let Some(payload) = beat.next().await {
                client.execute(&insert, &[&serde_json::to_string(&payload)?]).await?;
            }
            Ok(())
        });
    }
    pace.end(senders).await
}

/// Executes tasks until it is asked to end.
pub async fn work(url: &str, tally: Arc<Tally>) -> anyhow::Result<()> {
    let mut loops = JoinSet::new();
    for _ in 0..LOOPS {
        let (client, tally) = (connect(url).await?, Arc::clone(&tally));
        loops.spawn(claim_and_delete(client, tally));
    }
    tokio::select! {
        ended = until_told_to_end() => ended?,
        Some(failed) = loops.join_next() => failed??,
    }
    tally.end();
    Ok(())
}

async fn claim_and_delete(client: Client, tally: Arc<Tally>) -> anyhow::Result<()> {
    let claim = client.prepare(CLAIM).await?;
    let delete = client.prepare("delete from job where id = any($1)").await?;
    loop {
        let rows = client.query(&claim, &[]).await?;
        if rows.is_empty() {
            tokio::time::sleep(NAP).await;
            continue;
        }
        let mut ids: Vec<i64> = Vec::with_capacity(rows.len());
        for row in &rows {
            tally.start(&serde_json::from_str(row.get(1))?);
            ids.push(row.get(0));
        }
        client.execute(&delete, &[&ids]).await?;
    }
}

async fn connect(url: &str) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
