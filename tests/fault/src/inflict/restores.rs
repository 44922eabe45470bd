//! Earlier copies take the database's place, under load. Workers live on with numbers and fences
//! that the copy never issued. The injector reports attempts claimed after the copy, and the copy
//! must refuse them.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::sleep;
use tokio_postgres::{Client, NoTls};
use tuskline_history::{Event, now_ns};

use super::{Done, Skipped, word};
use crate::stage::{DATABASE, Stage};
use crate::stale;
use crate::timetable::{Kind, Planned};
use tuskline_fault::server::{OURS, Server, Stop};

/// The name of a copy until it replaces the database, and the name of the replaced database after
/// that.
const COPY: &str = "fault_copy";
const PAST: &str = "fault_past";
/// Between the end of the last session of the old and the first of the new one: answers on their way are
/// written down.
const SETTLE: Duration = Duration::from_millis(200);
/// Rounds of reports from the lost future, and the time between two.
const ROUNDS: u32 = 20;
const ROUND: Duration = Duration::from_millis(150);

/// Attempts that began after the copy was taken, with the executors that hold them.
const ATTEMPTS: &str = "
select l.executor_id, t.id, t.fence from tuskline.task t join tuskline.lease l on l.lease_id = t.fence
 where t.status in ('claimed', 'processing') and t.fence > $1 order by l.executor_id, t.id";

/// An executor, a task, a fence.
type Attempt = (i64, i64, i64);

/// A copy, and when it was taken.
struct Copy {
    taken: u64,
    /// No fence that it knows is greater.
    newest: i64,
}

impl Copy {
    /// Once it was taken.
    async fn since(taken: u64, stage: &Stage) -> anyhow::Result<Self> {
        let client = stage.session().await?;
        let newest =
            client.query_one("select last_value from tuskline.fence_seq", &[]).await?.get(0);
        Ok(Self { taken, newest })
    }

    /// Notes that the copy has replaced the database, before any session connects to it.
    fn note(&self, stage: &Stage, kind: Kind) {
        let (how, taken) = (word(kind), self.taken);
        // After a clean stop, nothing in the data directory tells the copy from the original.
        let ids_again = kind == Kind::ColdCopy;
        stage.faults.writer().note(Event::Restored { how, taken, ids_again });
    }
}

/// A dump, or a database made from this one, takes its place by its name.
pub async fn swap_databases(stage: &Stage, fault: Planned) -> Done {
    let kind = word(fault.kind);
    let _ongoing = stage.faults.begin(&kind, None, format!("{} ms", fault.span_ms));
    let copy = match fault.kind {
        Kind::DumpRestore => match dump(stage).await? {
            Some(copy) => copy,
            None => return Ok(Some(Skipped { what: kind, why: "pg_dump is absent".into() })),
        },
        _ => {
            let taken = stage.outage(&kind, async |server| copy_database(server).await).await?;
            Copy::since(taken, stage).await?
        }
    };
    sleep(Duration::from_millis(fault.span_ms)).await;
    let attempts = stage
        .outage(&kind, async |server| {
            server.close(DATABASE).await?;
            server.close(COPY).await?;
            sleep(SETTLE).await;
            server.swap(DATABASE, COPY, PAST).await?;
            server.open(PAST).await?;
            let attempts = attempts(&session(server, PAST).await?, &copy).await?;
            server.drop_database(PAST).await?;
            copy.note(stage, fault.kind);
            server.open(DATABASE).await?;
            Ok(attempts)
        })
        .await?;
    report(stage, &attempts).await;
    Ok(None)
}

/// Dumps the database while all work in it, and restores the dump beside it; none: with no `pg_dump`.
async fn dump(stage: &Stage) -> anyhow::Result<Option<Copy>> {
    let binaries = stage.site.binaries();
    if !["pg_dump", "pg_restore"].iter().all(|tool| binaries.program(tool).is_file()) {
        return Ok(None);
    }
    let server = stage.server.read().await;
    let file = server.dir().join("dump");
    let taken = now_ns();
    server.dump(DATABASE, &file).await?;
    let copy = Copy::since(taken, stage).await?;
    server.restore(&file, COPY).await?;
    std::fs::remove_file(file)?;
    Ok(Some(copy))
}

/// Makes a database of this one; when that was.
async fn copy_database(server: &Server) -> anyhow::Result<u64> {
    server.close(DATABASE).await?;
    let taken = now_ns();
    server.copy_database(DATABASE, COPY).await?;
    server.open(DATABASE).await?;
    Ok(taken)
}

/// A copy of the data directory takes its place: one of a clean stop, or a base backup that is recovered to
/// a point.
pub async fn put_directories_back(stage: &Stage, fault: Planned) -> Done {
    let kind = word(fault.kind);
    let _ongoing = stage.faults.begin(&kind, None, format!("{} ms", fault.span_ms));
    let name = format!("{kind}_{}", stage.faults.count(&kind));
    let cold = fault.kind == Kind::ColdCopy;
    let (kept, taken) = match fault.kind {
        Kind::ColdCopy => {
            stage.outage(&kind, async |server| copy_directories(server, &name).await).await?
        }
        _ => {
            let server = stage.server.read().await;
            let kept = server.keep_base_backup(&name).await?;
            let taken = now_ns();
            server.mark_point().await?;
            (kept, taken)
        }
    };
    let copy = Copy::since(taken, stage).await?;
    sleep(Duration::from_millis(fault.span_ms)).await;
    let attempts = attempts(&stage.session().await?, &copy).await?;
    stage
        .outage(&kind, async |server| {
            server.stop(Stop::Fast).await?;
            match cold {
                true => server.put_cold_copy_back(&kept).await?,
                false => server.put_base_backup_back(&kept).await?,
            }
            sleep(SETTLE).await;
            copy.note(stage, fault.kind);
            server.start().await?;
            match cold {
                true => Ok(()),
                false => server.forget_recovery(&kept),
            }
        })
        .await?;
    report(stage, &attempts).await;
    Ok(None)
}

/// Copies the directories at a clean stop; where they are, and when that was.
async fn copy_directories(server: &mut Server, name: &str) -> anyhow::Result<(PathBuf, u64)> {
    server.stop(Stop::Fast).await?;
    let taken = now_ns();
    let kept = server.keep_cold_copy(name).await?;
    server.start().await?;
    Ok((kept, taken))
}

async fn session(server: &Server, database: &str) -> anyhow::Result<Client> {
    let mut config = server.config(database);
    config.application_name(OURS);
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn attempts(client: &Client, copy: &Copy) -> anyhow::Result<Vec<Attempt>> {
    let rows = client.query(ATTEMPTS, &[&copy.newest]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect())
}

/// Sends the results of the lost future's workers, again and again while the copy issues numbers of
/// its own.
async fn report(stage: &Stage, attempts: &[Attempt]) {
    for _ in 0..ROUNDS {
        if let Ok(client) = stage.connect().await {
            for of_one in attempts.chunk_by(|one, next| one.0 == next.0) {
                let batch: Vec<_> = of_one.iter().map(|(_, task, fence)| (*task, *fence)).collect();
                // A call without an answer does not count.
                let _ = stale::as_a_zombie(stage, &client, of_one[0].0, &batch).await;
            }
        }
        sleep(ROUND).await;
    }
}
