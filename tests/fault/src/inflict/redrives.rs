//! Breaks and repairs a part that tasks need, so that they die and can return. Redrives return
//! them, and a neighbour locks some of them.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tokio_postgres::Client;

use super::{Done, of_our_own};
use crate::role::{BRITTLE, PARTS};
use crate::stage::{DATABASE, Stage};
use crate::timetable::Planned;

/// Time between two looks at what breaks.
const BEAT: Duration = Duration::from_secs(1);
/// Each part is broken for so many beats of so many; the next one two beats later.
const BROKEN_BEATS: u64 = 4;
const CYCLE_BEATS: u64 = 6;

/// Breaks and repairs parts. At the end all but the last are whole, and the tasks that died of
/// those return.
pub async fn break_parts(stage: &Stage, fault: Planned) -> Done {
    let end = Instant::now() + Duration::from_millis(fault.span_ms);
    drop(of_our_own(stage, fault));
    for beat in 0_u64.. {
        for (at, part) in (0_u64..).zip(PARTS) {
            stage.set_part(part, (beat + 2 * at) % CYCLE_BEATS < BROKEN_BEATS)?;
        }
        sleep_until(end.min(Instant::now() + BEAT)).await;
        if Instant::now() >= end {
            break;
        }
    }
    let client = stage.session().await?;
    for (at, part) in (1..).zip(PARTS) {
        stage.set_part(part, at == PARTS.len())?;
        if at < PARTS.len() {
            let cause = cause(&client, part).await?;
            let sql = "select tuskline.start_operation('redrive', $1, p_fingerprint => $2, p_reason => 'it is whole')";
            client.execute(sql, &[&BRITTLE, &cause]).await?;
        }
    }
    see_them_end(&client, stage.scale.patience).await
}

/// Waits until every redrive has ended. A redrive that does not end is stopped, and the history
/// records it.
async fn see_them_end(client: &Client, patience: Duration) -> Done {
    let began = Instant::now();
    let under_way = "select count(*) from tuskline.operation where ended_at is null";
    while client.query_one(under_way, &[]).await?.get::<_, i64>(0) > 0 {
        if began.elapsed() > patience {
            let stop = "select tuskline.stop_operation(operation_id) from tuskline.operation where ended_at is null";
            client.execute(stop, &[]).await?;
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(None)
}

/// The cause of death of tasks that needed a part; none: no such task has died.
async fn cause(client: &Client, part: &str) -> anyhow::Result<Option<String>> {
    let sql =
        "select d.fingerprint from tuskline.dead_letter d join tuskline.tasks t on t.id = d.task_id
                where d.lambda = $1 and t.payload->>'part' = $2 limit 1";
    Ok(client.query_opt(sql, &[&BRITTLE, &part]).await?.map(|row| row.get(0)))
}

const REDRIVE: &str = "
select tuskline.start_operation('redrive', $1, p_fingerprint => $2, p_limit => $4, p_per_second => $5, p_canary => $6, p_reason => 'drawn by lot',
  p_ids => case when $3 then (select array_agg(d.task_id) from (
    select task_id from tuskline.dead_letter where lambda = $1 order by random() limit 50) d) end)";

/// Sets a redrive: of one cause or all, of some tasks, limited, at a pace, with a canary, or none of it.
pub async fn set(stage: &Stage, fault: Planned) -> Done {
    let _ongoing = of_our_own(stage, fault);
    let client = stage.session().await?;
    let mut rng = fastrand::Rng::with_seed(fault.choice);
    let (by_cause, by_ids, limited) = (rng.u8(0..3) > 0, rng.u8(0..4) == 0, rng.u8(0..4) == 0);
    let cause = match by_cause {
        true => cause(&client, PARTS[rng.usize(0..PARTS.len())]).await?,
        false => None,
    };
    let most: Option<i64> = limited.then(|| rng.i64(1..60));
    let per_second: Option<f64> = [None, Some(20.0), Some(100.0)][rng.usize(0..3)];
    let canary = rng.u8(0..5) < 2;
    client.execute(REDRIVE, &[&BRITTLE, &cause, &by_ids, &most, &per_second, &canary]).await?;
    Ok(None)
}

const SOME_DEAD: &str = "select t.id from tuskline.task t join (
    select task_id from tuskline.dead_letter where lambda = 'brittle' order by task_id limit 50) d on d.task_id = t.id
  order by t.id for update of t skip locked";

/// Sits idle in a transaction on the locks of up to 50 dead tasks, those that a redrive takes first.
pub async fn lock_dead(stage: &Stage, fault: Planned) -> Done {
    let _ongoing = of_our_own(stage, fault);
    let server = stage.server.read().await;
    let locked = server.lock_rows(DATABASE, SOME_DEAD).await?;
    locked.hold(Duration::from_millis(fault.span_ms)).await?;
    Ok(None)
}
