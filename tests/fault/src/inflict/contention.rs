//! Neighbours in the database: sessions that take all connections, hold locks or hold a snapshot. A
//! database without notifications is a fault of this kind, too.

use std::time::Duration;

use super::{Done, word};
use crate::stage::{DATABASE, Stage};
use crate::timetable::Planned;

/// Takes connection slots until the server refuses more.
pub async fn use_up_connections(stage: &Stage, fault: Planned) -> Done {
    let _ongoing = stage.faults.begin(&word(fault.kind), None, format!("{} ms", fault.span_ms));
    let server = stage.server.read().await;
    server.use_up_connections(DATABASE, 10_000, Duration::from_millis(fault.span_ms)).await?;
    Ok(None)
}

/// Tasks that are under way.
const SOME_TASKS: &str = "select id from tuskline.task where finished_at is null order by id \
    limit 100 for update skip locked";

/// Sits idle in a transaction on the locks of up to 100 tasks.
pub async fn lock_rows(stage: &Stage, fault: Planned) -> Done {
    let ongoing = stage.faults.begin(&word(fault.kind), None, format!("{} ms", fault.span_ms));
    let server = stage.server.read().await;
    let locked = server.lock_rows(DATABASE, SOME_TASKS).await?;
    ongoing.holds(locked.ids.clone());
    locked.hold(Duration::from_millis(fault.span_ms)).await?;
    Ok(None)
}

/// Sits on a snapshot, so that no dead row can be removed.
pub async fn hold_snapshot(stage: &Stage, fault: Planned) -> Done {
    let _ongoing = stage.faults.begin(&word(fault.kind), None, format!("{} ms", fault.span_ms));
    let server = stage.server.read().await;
    server.hold_snapshot(DATABASE, Duration::from_millis(fault.span_ms)).await?;
    Ok(None)
}

/// Dead rows stay where they are.
pub async fn stop_autovacuum(stage: &Stage, fault: Planned) -> Done {
    let _ongoing = stage.faults.begin(&word(fault.kind), None, format!("{} ms", fault.span_ms));
    let client = stage.session().await?;
    client.batch_execute("alter system set autovacuum = off").await?;
    client.batch_execute("select pg_reload_conf()").await?;
    tokio::time::sleep(Duration::from_millis(fault.span_ms)).await;
    drop(client);
    let client = stage.session().await?;
    client.batch_execute("alter system reset autovacuum").await?;
    client.batch_execute("select pg_reload_conf()").await?;
    Ok(None)
}

/// The function that tells whether a queue is watched answers no for a while, so nothing is
/// notified.
pub async fn silence_notify(stage: &Stage, fault: Planned) -> Done {
    let client = stage.session().await?;
    let loud = "select pg_get_functiondef('tuskline_core.is_watched(integer)'::regprocedure)";
    let loud: String = client.query_one(loud, &[]).await?.get(0);
    let _ongoing = stage.faults.begin(&word(fault.kind), None, format!("{} ms", fault.span_ms));
    let silent =
        "create or replace function tuskline_core.is_watched(p_queue integer) returns boolean
                    language sql as 'select false'";
    client.batch_execute(silent).await?;
    tokio::time::sleep(Duration::from_millis(fault.span_ms)).await;
    client.batch_execute(&loud).await?;
    Ok(None)
}
