//! Sends, on purpose and all the time, the calls of a worker whose attempts are long over. They
//! carry old fences, or the numbers of ended executors. None of them may change a row.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Client;
use tuskline_history::{Event, Verb};

use crate::stage::Stage;

/// Time between two rounds.
const ROUND: Duration = Duration::from_millis(150);
/// Old attempts in one call.
const BATCH: usize = 20;
/// Old attempts that are known, at most.
const MOST_KNOWN: usize = 4_000;

/// Attempts that are over: another fence has come since.
const OLD_ATTEMPTS: &str = "
select f.task_id, f.fence from tuskline.task_failure f join tuskline.task t on t.id = f.task_id
 where t.fence > f.fence and f.failed_at > clock_timestamp() - interval '10 s'
 order by f.failed_at desc limit 500";

const ENDED_EXECUTORS: &str =
    "select executor_id from tuskline.executor where ended_at is not null order by 1 desc limit 50";

/// Sends until it is aborted, on a new session whenever the last one broke.
pub async fn send(stage: Arc<Stage>) {
    let mut known = Vec::new();
    loop {
        if let Ok(client) = stage.connect().await {
            // An error ends the session and the round: verbs without an answer do not count.
            let _ = rounds(&stage, &client, &mut known).await;
        }
        tokio::time::sleep(ROUND).await;
    }
}

async fn rounds(
    stage: &Stage,
    client: &Client,
    known: &mut Vec<(i64, i64)>,
) -> Result<(), tokio_postgres::Error> {
    let mut rng = fastrand::Rng::new();
    *known = still_over(client, known).await?;
    for round in 0_u64.. {
        if round.is_multiple_of(10) {
            let rows = client.query(OLD_ATTEMPTS, &[]).await?;
            known.extend(rows.iter().map(|row| (row.get::<_, i64>(0), row.get::<_, i64>(1))));
            known.sort_unstable();
            known.dedup();
            rng.shuffle(known);
            known.truncate(MOST_KNOWN);
        }
        let executors = client.query(ENDED_EXECUTORS, &[]).await?;
        let executor = rng.choice(executors.iter()).map(|row| row.get::<_, i64>(0));
        if let Some(executor) = executor {
            let mut batch = rng.choose_multiple(known.iter().copied(), BATCH);
            batch.sort_unstable();
            batch.dedup_by_key(|old| old.0);
            as_a_zombie(stage, client, executor, &batch).await?;
            as_the_dead(stage, client, executor).await?;
        }
        tokio::time::sleep(ROUND).await;
    }
    Ok(())
}

/// The known attempts that are over in this database, too. It may be an earlier copy of the
/// database that reported them over.
async fn still_over(
    client: &Client,
    known: &[(i64, i64)],
) -> Result<Vec<(i64, i64)>, tokio_postgres::Error> {
    let (tasks, fences): (Vec<i64>, Vec<i64>) = known.iter().copied().unzip();
    let sql = "select k.id, k.fence from unnest($1::bigint[], $2::bigint[]) as k (id, fence) \
               join tuskline.task t on t.id = k.id and t.fence > k.fence";
    let rows = client.query(sql, &[&tasks, &fences]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// Every verb that takes fences, with fences that are over.
pub async fn as_a_zombie(
    stage: &Stage,
    client: &Client,
    executor: i64,
    batch: &[(i64, i64)],
) -> Result<(), tokio_postgres::Error> {
    let (tasks, fences): (Vec<i64>, Vec<i64>) = batch.iter().copied().unzip();
    let tried = tasks.len() as u64;
    if tried == 0 {
        return Ok(());
    }
    let sql = "select coalesce(cardinality(tuskline.start($1, $2, $3)), 0)";
    let moved: i32 = client.query_one(sql, &[&executor, &tasks, &fences]).await?.get(0);
    note(stage, Verb::Start, tried, u64::from(moved.unsigned_abs()));
    let sql = "select coalesce(cardinality(r.released), 0) from tuskline.release($1, $2, $3) r";
    let moved: i32 = client.query_one(sql, &[&executor, &tasks, &fences]).await?.get(0);
    note(stage, Verb::Release, tried, u64::from(moved.unsigned_abs()));
    let sql = "select cardinality(tuskline.set_results($1, $2, $3))";
    let refused: i32 = client.query_one(sql, &[&executor, &tasks, &fences]).await?.get(0);
    note(stage, Verb::SetResults, tried, tried - u64::from(refused.unsigned_abs()));
    let notes: Vec<_> = batch
        .iter()
        .map(|(task, fence)| {
            serde_json::json!({"task": task, "fence": fence, "status": "fatal_failure",
                "error_class": "stale", "message": "from an attempt that is over"})
        })
        .collect();
    let notes = serde_json::Value::Array(notes).to_string();
    let sql = "select cardinality(tuskline.set_results($1, '{}', '{}', ($2::text)::json))";
    let refused: i32 = client.query_one(sql, &[&executor, &notes]).await?.get(0);
    note(stage, Verb::SetResultsNote, tried, tried - u64::from(refused.unsigned_abs()));
    Ok(())
}

/// A heartbeat and a claim by an executor that has ended.
async fn as_the_dead(
    stage: &Stage,
    client: &Client,
    executor: i64,
) -> Result<(), tokio_postgres::Error> {
    let sql = "select alive::int from tuskline.heartbeat($1)";
    let alive: i32 = client.query_one(sql, &[&executor]).await?.get(0);
    note(stage, Verb::Heartbeat, 1, u64::from(alive.unsigned_abs()));
    let sql = "select alive::int from tuskline.claim($1, \
      array(select queue_id from tuskline.queue order by queue_id), \
      array(select 0::bigint from tuskline.queue), array(select 1::smallint from tuskline.queue), array[5])";
    match client.query_one(sql, &[&executor]).await {
        Ok(row) => note(stage, Verb::Claim, 1, u64::from(row.get::<_, i32>(0).unsigned_abs())),
        // The queues are not rebuilt yet: refused for another reason, which proves nothing.
        Err(error) if error.code().is_some_and(|code| code.code() == "TK011") => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

fn note(stage: &Stage, verb: Verb, tried: u64, applied: u64) {
    let refused = tried - applied;
    stage.faults.writer().note(Event::Stale { verb, tried, refused, applied });
}
