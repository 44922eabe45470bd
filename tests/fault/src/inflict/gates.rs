//! An owner pauses a lambda, and lets it go on.

use std::time::Duration;

use tokio_postgres::Client;
use tuskline_history::{Edge, Event};

use super::{Done, Skipped, word};
use crate::role::GATED;
use crate::stage::Stage;
use crate::timetable::Planned;

/// Sets a gate, waits, and opens it. Only one gate is set at a time: another is refused.
pub async fn pause(stage: &Stage, fault: Planned) -> Done {
    let writer = stage.faults.writer();
    let _ongoing = stage.faults.begin(&word(fault.kind), None, format!("{} ms", fault.span_ms));
    let mut unknown = false;
    let gate = loop {
        let client = stage.session().await?;
        match set(&client).await {
            Ok(Some(gate)) => break gate,
            // It was ours, and its answer was lost.
            Ok(None) if unknown => break set_before(&client).await?,
            Ok(None) => {
                let why = "the lambda is paused already".into();
                return Ok(Some(Skipped { what: word(fault.kind), why }));
            }
            Err(_) => {
                unknown = true;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    };
    writer.note(Event::Gate { lambda: GATED.into(), edge: Edge::Begin });
    tokio::time::sleep(Duration::from_millis(fault.span_ms)).await;
    writer.note(Event::Gate { lambda: GATED.into(), edge: Edge::End });
    loop {
        let client = stage.session().await?;
        match client.query_one("select tuskline.ungate($1)", &[&gate]).await {
            Ok(_) => return Ok(None),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// The number of the gate; none: another fault's gate is set.
async fn set(client: &Client) -> Result<Option<i64>, tokio_postgres::Error> {
    let sql = "select tuskline.gate($1, 'pause', p_reason => 'a fault')";
    match client.query_one(sql, &[&GATED]).await {
        Ok(row) => Ok(Some(row.get(0))),
        Err(error) if error.code().is_some_and(|code| code.code() == "TK015") => Ok(None),
        Err(error) => Err(error),
    }
}

async fn set_before(client: &Client) -> Result<i64, tokio_postgres::Error> {
    let sql = "select gate_id from tuskline.gate where lambda = $1 and opened_at is null";
    Ok(client.query_one(sql, &[&GATED]).await?.get(0))
}
