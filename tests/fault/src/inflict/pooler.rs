//! PgBouncer in transaction mode between all processes and the server.

use std::time::Duration;

use rustix::process::Signal;
use tuskline_history::Role;

use super::{Done, Skipped, word};
use crate::stage::Stage;
use crate::timetable::Planned;
use tuskline_fault::proxy::Upstream;
use tuskline_fault::server::{PoolSize, Pooler};

/// Every process restarts behind the pooler, works there, and restarts without it. A process finds
/// out at its start whether there is a pooler.
pub async fn stand_between(stage: &Stage, fault: Planned) -> Done {
    if stage.site.tools().pgbouncer.is_none() {
        return Ok(Some(Skipped { what: word(fault.kind), why: "pgbouncer is absent".into() }));
    }
    let server = stage.server.read().await;
    let mut pooler = Pooler::create(&stage.site, &server, PoolSize::default()).await?;
    let direct = server.socket_file();
    drop(server);
    let _ongoing = stage.faults.begin(&word(fault.kind), None, "transaction mode");
    move_to(stage, Upstream::Unix(pooler.socket_file())).await;
    tokio::time::sleep(Duration::from_millis(fault.span_ms)).await;
    move_to(stage, Upstream::Unix(direct)).await;
    pooler.stop().await?;
    Ok(None)
}

async fn move_to(stage: &Stage, upstream: Upstream) {
    stage.proxy.redirect(upstream);
    let processes = stage.processes.lock().await;
    let members: Vec<_> = [Role::Worker, Role::StoreConsumer, Role::Client]
        .into_iter()
        .flat_map(|role| processes.of(role))
        .filter_map(|at| processes.member(at))
        .collect();
    drop(processes);
    for member in &members {
        member.signal(Signal::TERM);
    }
    for member in members {
        if !member.ended(Duration::from_secs(10)).await {
            member.signal(Signal::KILL);
        }
    }
}
