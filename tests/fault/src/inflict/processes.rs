//! Faults of processes: killed, frozen, asked to end, or run at another time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use tokio::time::{Instant, sleep};
use tuskline_history::Role;

use super::{Done, Skipped, word};
use crate::stage::{Stage, shifted};
use crate::timetable::{Kind, Planned};
use crate::workers::Member;

/// Longest wait for a process to injure.
const PATIENCE: Duration = Duration::from_secs(10);

fn role_of(kind: Kind) -> Role {
    match kind {
        Kind::StoreConsumerKill | Kind::StoreConsumerFreeze => Role::StoreConsumer,
        _ => Role::Worker,
    }
}

/// The target that the plan draws: a running process of the role.
async fn target(stage: &Stage, fault: Planned) -> anyhow::Result<Member> {
    let began = Instant::now();
    loop {
        let running = running(stage, role_of(fault.kind)).await;
        if !running.is_empty() {
            let at = fault.choice % running.len() as u64;
            return Ok(running[usize::try_from(at)?].clone());
        }
        anyhow::ensure!(began.elapsed() < PATIENCE, "no process is there for {}", word(fault.kind));
        sleep(Duration::from_millis(5)).await;
    }
}

async fn running(stage: &Stage, role: Role) -> Vec<Member> {
    let processes = stage.processes.lock().await;
    processes.of(role).into_iter().filter_map(|at| processes.member(at)).collect()
}

/// SIGKILL.
pub async fn kill(stage: &Stage, fault: Planned) -> Done {
    let member = target(stage, fault).await?;
    let _ongoing = stage.faults.begin(&word(fault.kind), Some(member.pid), "");
    member.signal(Signal::KILL);
    anyhow::ensure!(member.ended(PATIENCE).await, "{} survived SIGKILL", member.pid);
    Ok(None)
}

/// Exhausts the memory of a worker. On a signal the worker allocates all it may, and ends as Rust
/// does then. A worker that does not end is killed, as the kernel would do.
pub async fn starve(stage: &Stage, fault: Planned) -> Done {
    let member = target(stage, fault).await?;
    let _ongoing = stage.faults.begin(&word(fault.kind), Some(member.pid), "");
    member.signal(Signal::USR1);
    if !member.ended(PATIENCE).await {
        member.signal(Signal::KILL);
        anyhow::ensure!(member.ended(PATIENCE).await, "{} survived SIGKILL", member.pid);
    }
    Ok(None)
}

/// SIGSTOP, and SIGCONT after a while. Store consumers are frozen one at a time: while all are
/// frozen no task is rescued, and recovery takes longer by that time. (`be_gone` freezes all, as
/// long as its bound allows.)
pub async fn freeze(stage: &Stage, fault: Planned) -> Done {
    let _alone = match fault.kind {
        Kind::StoreConsumerFreeze => Some(stage.one_consumer_still.lock().await),
        _ => None,
    };
    let member = target(stage, fault).await?;
    let writer = stage.faults.writer();
    let detail = format!("{} ms", fault.span_ms);
    let _ongoing = stage.faults.begin(&word(fault.kind), Some(member.pid), detail);
    if member.freeze(writer).await {
        sleep(Duration::from_millis(fault.span_ms)).await;
        member.thaw(writer);
    }
    Ok(None)
}

/// SIGSTOP of all store consumers, just before a whole second, so that they miss a tick for nearly
/// all of the time. A store consumer that restarts meanwhile is frozen as well.
pub async fn be_gone(stage: &Stage, fault: Planned) -> Done {
    let since_second = SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_millis();
    sleep(Duration::from_millis(u64::from(1_900 - since_second) % 1_000)).await;
    let writer = stage.faults.writer();
    let detail = format!("{} ms", fault.span_ms);
    let _ongoing = stage.faults.begin(&word(fault.kind), None, detail);
    let end = Instant::now() + Duration::from_millis(fault.span_ms);
    let mut still: Vec<Member> = Vec::new();
    while Instant::now() < end {
        for member in running(stage, Role::StoreConsumer).await {
            if still.iter().all(|one| one.pid != member.pid) && member.freeze(writer).await {
                still.push(member);
            }
        }
        sleep(Duration::from_millis(5)).await;
    }
    still.iter().for_each(|member| member.thaw(writer));
    Ok(None)
}

/// SIGUSR1 to every client, and SIGUSR2 after a while.
pub async fn schedule_large_payloads(stage: &Stage, fault: Planned) -> Done {
    let detail = format!("{} ms", fault.span_ms);
    let _ongoing = stage.faults.begin(&word(fault.kind), None, detail);
    let clients = running(stage, Role::Client).await;
    anyhow::ensure!(!clients.is_empty(), "no client is there");
    clients.iter().for_each(|client| client.signal(Signal::USR1));
    sleep(Duration::from_millis(fault.span_ms)).await;
    clients.iter().for_each(|client| client.signal(Signal::USR2));
    Ok(None)
}

/// SIGTERM; it must end by itself within its grace.
pub async fn drain(stage: &Stage, fault: Planned) -> Done {
    let member = target(stage, fault).await?;
    let timings = stage.scale.timings;
    let _ongoing = stage.faults.begin(&word(fault.kind), Some(member.pid), "");
    member.signal(Signal::TERM);
    let limit = timings.self_termination_ms + timings.request_timeout_ms + 5_000;
    if !member.ended(Duration::from_millis(limit)).await {
        anyhow::bail!("worker {} did not drain within {limit} ms", member.pid);
    }
    Ok(None)
}

/// Two workers start anew with clocks that are an hour off, one each way.
pub async fn shift_clocks(stage: &Stage, fault: Planned) -> Done {
    let Some(library) = stage.site.tools().faketime.clone() else {
        return Ok(Some(Skipped { what: word(fault.kind), why: "libfaketime is absent".into() }));
    };
    let posts: Vec<usize> =
        stage.processes.lock().await.of(Role::Worker).into_iter().take(2).collect();
    let _ongoing = stage.faults.begin(&word(fault.kind), None, "+1 h and -1 h");
    for (at, offset) in posts.iter().zip(["+3600s", "-3600s"]) {
        restart(stage, *at, shifted(&library, offset)).await;
    }
    sleep(Duration::from_millis(fault.span_ms)).await;
    for at in posts {
        restart(stage, at, Vec::new()).await;
    }
    Ok(None)
}

/// The post's process ends in order; the supervisor starts the next with these variables.
async fn restart(stage: &Stage, at: usize, environment: Vec<(String, String)>) {
    let mut processes = stage.processes.lock().await;
    processes.posts[at].environment = environment;
    let member = processes.member(at);
    drop(processes);
    if let Some(member) = member {
        member.signal(Signal::TERM);
        member.ended(PATIENCE).await;
    }
}
