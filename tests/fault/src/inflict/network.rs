//! Faults of the network, at one process's door.

use std::time::Duration;

use super::{Done, word};
use crate::stage::{DATABASE, Stage};
use crate::timetable::{Kind, Planned};
use tuskline_fault::proxy::{Cut, CutWhen, Door, Mode, Way};
use tuskline_history::Role;

/// A door of the plan's choice, and the process behind it.
async fn door(stage: &Stage, choice: u64, roles: &[Role]) -> anyhow::Result<(Door, Option<u32>)> {
    let processes = stage.processes.lock().await;
    let posts: Vec<usize> = roles.iter().flat_map(|role| processes.of(*role)).collect();
    anyhow::ensure!(!posts.is_empty(), "no door");
    let at = posts[usize::try_from(choice % posts.len() as u64)?];
    Ok((processes.posts[at].door.clone(), processes.member(at).map(|member| member.pid)))
}

const EVERYBODY: [Role; 3] = [Role::Worker, Role::StoreConsumer, Role::Client];

/// A mode for a while.
pub async fn disturb(stage: &Stage, fault: Planned) -> Done {
    let roles: &[Role] = match fault.kind {
        // Workers must end themselves in a partition; other processes merely wait.
        Kind::Partition if !fault.choice.is_multiple_of(4) => &[Role::Worker],
        _ => &EVERYBODY,
    };
    let (door, pid) = door(stage, fault.choice >> 8, roles).await?;
    let mode = match fault.kind {
        Kind::Partition => Mode::Blackhole(Way::Both),
        Kind::OneWayPartition if fault.choice & 1 == 0 => Mode::Blackhole(Way::ToServer),
        Kind::OneWayPartition => Mode::Blackhole(Way::ToClient),
        Kind::HalfOpen => Mode::HalfOpen,
        _ => Mode::Delay { base: Duration::from_millis(40), jitter: Duration::from_millis(40) },
    };
    let _ongoing = stage.faults.begin(&word(fault.kind), pid, format!("{} ms", fault.span_ms));
    door.set(mode);
    if fault.kind == Kind::HalfOpen {
        // Something must end for one side not to learn of it.
        let server = stage.server.read().await;
        server.terminate_backends(DATABASE, 8, fault.choice).await?;
    }
    tokio::time::sleep(Duration::from_millis(fault.span_ms)).await;
    door.set(Mode::Pass);
    Ok(None)
}

/// How late an answer is that is late.
const LATE: Duration = Duration::from_millis(2_400);

/// Every answer takes 2.4 s, for a while; then the server hears nothing more, and what it answered last
/// arrives still. Between that and the end of a lease lies all that T leaves as a margin.
pub async fn fall_silent(stage: &Stage, fault: Planned) -> Done {
    let (door, pid) = door(stage, fault.choice, &[Role::Worker]).await?;
    let _ongoing = stage.faults.begin(&word(fault.kind), pid, format!("{} ms", fault.span_ms));
    door.set(Mode::LateAnswers { by: LATE, deaf: false });
    tokio::time::sleep(Duration::from_millis(6_000)).await;
    door.set(Mode::LateAnswers { by: LATE, deaf: true });
    tokio::time::sleep(Duration::from_millis(fault.span_ms)).await;
    door.set(Mode::Pass);
    Ok(None)
}

/// RST on every connection.
pub async fn reset(stage: &Stage, fault: Planned) -> Done {
    let (door, pid) = door(stage, fault.choice, &EVERYBODY).await?;
    let _ongoing = stage.faults.begin(&word(fault.kind), pid, "");
    door.reset();
    Ok(None)
}

/// The next call of a kind never arrives, or is never answered.
pub async fn cut(stage: &Stage, fault: Planned) -> Done {
    let (role, holding) = match fault.choice % 4 {
        0 => (Role::Worker, "exchange"),
        1 => (Role::Client, "schedule_many"),
        2 => (Role::Client, "COMMIT"),
        _ => (Role::Client, "tuskline.schedule("),
    };
    let (door, pid) = door(stage, fault.choice >> 8, &[role]).await?;
    let when = match fault.kind {
        Kind::CutBefore => CutWhen::BeforeServer,
        _ => CutWhen::AfterServer,
    };
    let ongoing = stage.faults.begin(&word(fault.kind), pid, holding);
    door.cut_next(Cut { holding: holding.into(), when }, 1);
    used(&door, Duration::from_millis(1_500)).await;
    // A cut that found no call is taken back: it must not happen after its time.
    door.disarm();
    drop(ongoing);
    Ok(None)
}

/// A worker's watch connection gets no more answers, from its next watch or peek on, and no notice
/// of an end. Behind a door that another fault holds shut no worker watches: the next door is tried
/// then.
pub async fn deafen(stage: &Stage, fault: Planned) -> Done {
    for (holding, turn) in ["tuskline.watch", "tuskline.peek"].into_iter().cycle().zip(0..8) {
        let (door, pid) = door(stage, fault.choice.wrapping_add(turn / 2), &[Role::Worker]).await?;
        door.cut_next(Cut { holding: holding.into(), when: CutWhen::Silence }, 1);
        let silent = used(&door, Duration::from_secs(6)).await;
        door.disarm();
        if silent {
            drop(stage.faults.begin(&word(fault.kind), pid, holding));
            return Ok(None);
        }
    }
    anyhow::bail!("no worker listens behind any of four doors")
}

/// Waits until the cut is made; false: it was not.
async fn used(door: &Door, limit: Duration) -> bool {
    let began = std::time::Instant::now();
    while began.elapsed() < limit {
        tokio::time::sleep(Duration::from_millis(25)).await;
        if door.counts().cuts_armed == 0 {
            return true;
        }
    }
    false
}
