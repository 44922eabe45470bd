//! Faults of the server: sessions ended, crashes, a failover, steps of its clock.

use std::time::Duration;

use tuskline::migrate::{Functions, migrate};
use tuskline_history::{Edge, Event};

use super::{Done, Skipped, word};
use crate::stage::{DATABASE, Stage};
use crate::timetable::{Kind, Planned};
use tuskline_fault::proxy::Upstream;
use tuskline_fault::server::{Clock, Stop};

/// Ends, or cancels what is done by, one session of the processes under test.
pub async fn disturb_session(stage: &Stage, fault: Planned) -> Done {
    let _ongoing = stage.faults.begin(&word(fault.kind), None, "");
    let server = stage.server.read().await;
    server.wait_until_answering(Duration::from_secs(30)).await?;
    match fault.kind {
        Kind::TerminateBackend => server.terminate_backends(DATABASE, 1, fault.choice).await?,
        _ => server.cancel_backends(DATABASE, 1, fault.choice).await?,
    };
    Ok(None)
}

/// Takes the server down and up again.
pub async fn crash(stage: &Stage, fault: Planned) -> Done {
    let kind = word(fault.kind);
    let _ongoing = stage.faults.begin(&kind, None, "");
    stage
        .outage(&kind, async |server| {
            match fault.kind {
                Kind::ImmediateStop => server.stop(Stop::Immediate).await?,
                Kind::PostmasterKill => server.kill_postmaster().await,
                _ => {
                    server.kill_backend(fault.choice).await?;
                    return Ok(());
                }
            }
            server.start().await?;
            Ok(())
        })
        .await?;
    Ok(None)
}

/// Replaces every function while they are called, as `tuskline migrate` of the next version does.
pub async fn renew_functions(stage: &Stage, fault: Planned) -> Done {
    let client = stage.session().await?;
    let _ongoing = stage.faults.begin(&word(fault.kind), None, "");
    client.batch_execute("update tuskline_core.stamp set digest = 'of another version'").await?;
    let report = migrate(&stage.server.read().await.config(DATABASE)).await?;
    anyhow::ensure!(report.functions == Functions::Replaced, "{report:?}");
    Ok(None)
}

/// A synchronous standby takes over while the primary is frozen. Then the old primary thaws, with
/// half of the processes still connected to it, and must acknowledge nothing more. A platform may
/// drop the unlogged tables before the first session, or after the database counts as ready.
pub async fn fail_over(stage: &Stage, fault: Planned) -> Done {
    let kind = word(fault.kind);
    let name = format!("{kind}_{}", stage.faults.count(&kind) + 1);
    let standby = stage.server.read().await.standby(&stage.site, &name).await?;
    // Some time as a pair, so that there is something to lose.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let _ongoing = stage.faults.begin(&kind, None, "");
    let writer = stage.faults.writer();
    writer.note(Event::Database { edge: Edge::Begin, why: kind.clone() });
    let mut server = stage.server.write().await;
    server.freeze();
    let mut old = std::mem::replace(&mut *server, standby);
    server.promote().await?;
    let drops = fault.kind == Kind::DroppedTables;
    if drops {
        server.drop_unlogged_tables(DATABASE).await?;
    }
    stage.proxy.redirect(Upstream::Unix(server.socket_file()));
    let processes = stage.processes.lock().await;
    for post in processes.posts.iter().skip(usize::try_from(fault.choice % 2)?).step_by(2) {
        post.door.reset();
    }
    drop(processes);
    stage.own_door.reset();
    server.wait_until_answering(Duration::from_secs(30)).await?;
    drop(server);
    writer.note(Event::Database { edge: Edge::End, why: kind });
    old.thaw();
    old.acknowledge_nothing(Duration::from_millis(2_500)).await?;
    old.stop(Stop::Immediate).await?;
    if drops {
        stage.server.read().await.drop_unlogged_tables(DATABASE).await?;
    }
    Ok(None)
}

/// Steps the server's wall clock by 90 s: forth and back, then back and forth. For these four steps
/// the server runs under libfaketime. It opens a file at each reading of the clock, in signal
/// handlers too. This costs half of a machine and sometimes a server.
pub async fn step_clock(stage: &Stage, fault: Planned) -> Done {
    let kind = word(fault.kind);
    if stage.site.tools().faketime.is_none() {
        return Ok(Some(Skipped { what: kind, why: "libfaketime is absent".into() }));
    }
    let step = usize::try_from(stage.faults.count(&kind) % 4)?;
    if step == 0 {
        change_clock(stage, Clock::Stepped).await?;
    }
    let seconds = [90, -90, -90, 90][step];
    let ongoing = stage.faults.begin(&kind, None, format!("{seconds:+} s"));
    stage.server.read().await.step_clock(seconds)?;
    drop(ongoing);
    if step == 3 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        change_clock(stage, Clock::Machine).await?;
    }
    Ok(None)
}

async fn change_clock(stage: &Stage, clock: Clock) -> anyhow::Result<()> {
    let _ongoing = stage.faults.begin("change_of_clock", None, format!("{clock:?}"));
    stage
        .outage("change of clock", async |server| {
            server.stop(Stop::Fast).await?;
            server.wear(clock)?;
            server.start().await?;
            Ok(())
        })
        .await
}
