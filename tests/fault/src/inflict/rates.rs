//! An owner lowers a rate limit, and raises it again.

use std::time::Duration;

use tokio::sync::Mutex;
use tuskline_history::{Event, Rate};

use super::schedules::now_us;
use super::{Done, of_our_own};
use crate::role::RATED;
use crate::stage::{Stage, rate};
use crate::timetable::Planned;

/// One fault at a time: another would raise the rate too early.
static ONE: Mutex<()> = Mutex::const_new(());
/// How long after the change a claim may end that had begun before it.
const CLAIMS_END_US: i64 = 500_000;

/// Lowers the rate to a fifth, waits, and raises it.
pub async fn lower(stage: &Stage, fault: Planned) -> Done {
    let _alone = ONE.lock().await;
    let _ongoing = of_our_own(stage, fault);
    let usual = rate(stage.scale.tasks_per_second);
    let low = Rate {
        per_second: (usual.per_second / 5.0).ceil(),
        burst: usual.burst.div_ceil(5),
        ..usual.clone()
    };
    let from_us = set(stage, &low).await.1 + CLAIMS_END_US;
    tokio::time::sleep(Duration::from_millis(fault.span_ms)).await;
    let to_us = set(stage, &usual).await.0;
    if from_us < to_us {
        let (from_us, to_us) = (Some(from_us), Some(to_us));
        stage.faults.writer().note(Event::Rate(Rate { from_us, to_us, ..low }));
    }
    Ok(None)
}

/// Sets the rate, as often as its session is ended. Returns the database's time before and after.
async fn set(stage: &Stage, rate: &Rate) -> (i64, i64) {
    let mut before = None;
    loop {
        match try_set(stage, rate, &mut before).await {
            Ok(times) => return times,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

async fn try_set(
    stage: &Stage,
    rate: &Rate,
    before: &mut Option<i64>,
) -> anyhow::Result<(i64, i64)> {
    let client = stage.session().await?;
    let began = now_us(&client).await?;
    let first = *before.get_or_insert(began);
    let sql = "select tuskline.set_limit($1, p_per_second => $2, p_burst => $3)";
    client.execute(sql, &[&RATED, &rate.per_second, &rate.burst.cast_signed()]).await?;
    Ok((first, now_us(&client).await?))
}
