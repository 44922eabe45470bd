//! No space left.

use std::time::Duration;

use tuskline_history::{Edge, Event};

use super::{Done, Skipped, word};
use crate::stage::Stage;
use crate::timetable::{Kind, Planned};

/// Fills a disk, and frees it after a while. Without space for tables the server stays up, and
/// every write that needs a new page fails. Without space for WAL the server goes down until there
/// is some.
pub async fn fill(stage: &Stage, fault: Planned) -> Done {
    let server = stage.server.read().await;
    let volume = match fault.kind {
        Kind::DataDiskFull => server.data_volume(),
        _ => server.wal_volume(),
    };
    let Some(volume) = volume else {
        let why = "no small disk can be made here".into();
        return Ok(Some(Skipped { what: word(fault.kind), why }));
    };
    let _ongoing = stage.faults.begin(&word(fault.kind), None, format!("{} ms", fault.span_ms));
    let writer = stage.faults.writer();
    let why = word(fault.kind);
    writer.note(Event::Database { edge: Edge::Begin, why: why.clone() });
    volume.fill()?;
    tokio::time::sleep(Duration::from_millis(fault.span_ms)).await;
    volume.free()?;
    drop(server);
    let mut server = stage.server.write().await;
    if server.wait_until_answering(Duration::from_secs(3)).await.is_err() {
        server.start().await?;
    }
    server.wait_until_answering(Duration::from_secs(60)).await?;
    drop(server);
    writer.note(Event::Database { edge: Edge::End, why });
    Ok(None)
}
