//! Hosts: `tuskline controller` with executors in Python, tasks for them, and faults of each of their processes.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tuskline_history::{Event, Role};
use tuskline_sdk::{Client, ErrorKind, NewTask};

use super::{Done, Skipped, of_our_own, word};
use crate::families::{Child, Part};
use crate::role::{EXECUTED, EXECUTED_ALONE, EXECUTED_LONG, HOSTED, host_environment, python};
use crate::stage::{Scale, Stage};
use crate::timetable::{Kind, Planned};
use crate::workers::Member;

/// Hosts. The last one starts each executor afresh; those of the others are forks of a zygote.
const HOSTS: usize = 3;
/// Between two looks at the processes.
const LOOK: Duration = Duration::from_millis(5);
/// Between two batches of tasks.
const ROUND: Duration = Duration::from_millis(50);
/// Longest wait for a process to injure, as when all of its kind were killed just before.
const PATIENCE: Duration = Duration::from_secs(20);

/// Rounds between two counts of the open tasks.
const COUNT: u32 = 5;
/// Most open tasks, in seconds of scheduling: a slow machine gets fewer tasks, and not one that waits for minutes.
const MOST_OPEN_S: f64 = 2.0;
/// A process that stood still is left alone for so long: the record shall tell what it does then.
const REST: Duration = Duration::from_millis(300);

/// Effects of bodies on their process, in so many of 1,200 tasks.
const DEEDS: [(&str, &str, u32); 6] = [
    (EXECUTED, "hold", 2),
    (EXECUTED, "exit", 3),
    (EXECUTED, "signal", 3),
    (EXECUTED, "leave", 2),
    (EXECUTED, "fail", 40),
    (EXECUTED_ALONE, "eat", 3),
];
const OF: u32 = 1_200;
/// Tasks that have a process to themselves, likewise.
const ALONE: u32 = 12;

/// Runs hosts and schedules tasks for them; then waits until all of these have ended, and ends the hosts in order.
pub async fn run(stage: &Stage, fault: Planned) -> Done {
    if python().is_none() {
        return Ok(Some(skipped(fault)));
    }
    let ongoing = of_our_own(stage, fault);
    for n in 0..HOSTS {
        let door = stage.proxy.open_door(&format!("Host-{n}")).await?;
        let environment = host_environment(stage.locks(), n + 1 < HOSTS);
        stage.processes.lock().await.post(Role::Host, door, environment)?;
    }
    let all = async {
        schedule_all(stage, fault).await?;
        drop(ongoing);
        until_ended(stage).await
    };
    let looking = async {
        loop {
            look(stage).await;
            sleep(LOOK).await;
        }
    };
    let left = tokio::select! {
        left = all => left?,
        () = looking => 0,
    };
    let in_order = stage.processes.lock().await.end(Role::Host, PATIENCE).await;
    anyhow::ensure!(left == 0, "{left} tasks of executors have not ended");
    anyhow::ensure!(in_order, "a host did not end in order");
    Ok(None)
}

async fn look(stage: &Stage) {
    let guardians = guardians(stage).await;
    stage.families.lock().await.look(&guardians);
}

async fn guardians(stage: &Stage) -> Vec<Member> {
    let processes = stage.processes.lock().await;
    processes.of(Role::Host).into_iter().filter_map(|at| processes.member(at)).collect()
}

/// Half as many tasks a second as all clients schedule, and no more than are executed.
async fn schedule_all(stage: &Stage, fault: Planned) -> anyhow::Result<()> {
    let config = stage.server.read().await.config("postgres");
    let user = config.get_user().unwrap_or("postgres");
    let port = stage.own_door.port();
    let url = format!("postgresql://{user}@127.0.0.1:{port}/{}", crate::stage::DATABASE);
    let client = Client::connect(&url).await?;
    let mut rng = fastrand::Rng::with_seed(fault.choice);
    let end = Instant::now() + Duration::from_millis(fault.span_ms);
    let mut clock = tokio::time::interval(ROUND);
    let counting = stage.session().await?;
    let per_second = f64::from(stage.scale.tasks_per_second) / 2.0;
    let (mut owed, mut op, mut open, mut rounds) = (0.0, 0, 0.0, 0);
    while Instant::now() < end {
        clock.tick().await;
        if rounds % COUNT == 0 {
            open = f64::from(i32::try_from(count_open(&counting).await?)?);
        }
        rounds += 1;
        owed = if open > MOST_OPEN_S * per_second {
            0.0
        } else {
            owed + per_second * ROUND.as_secs_f64()
        };
        while owed >= 1.0 {
            op += 1;
            owed -= 1.0;
            schedule(stage, &client, op, &mut rng).await?;
        }
    }
    Ok(())
}

/// Schedules a task. Clients have no op so small.
async fn schedule(
    stage: &Stage,
    client: &Client,
    op: u64,
    rng: &mut fastrand::Rng,
) -> anyhow::Result<()> {
    let writer = stage.faults.writer();
    let (lambda, payload) = draw(&stage.scale, op, rng);
    writer.note(Event::Schedule {
        op,
        lambda: lambda.into(),
        tasks: 1,
        delay_ms: 0,
        key: None,
        ordering_key: None,
        chain: false,
    });
    match client.schedule(&NewTask::new(lambda, &payload)).await {
        Ok(id) => writer.note(Event::ScheduleOk { op, ids: vec![id.0] }),
        Err(error) if error.kind() == ErrorKind::Unknown => {
            writer.note(Event::ScheduleInfo { op, why: error.to_string() });
        }
        Err(error) => writer.note(Event::ScheduleFail { op, why: error.to_string() }),
    }
    Ok(())
}

fn draw(scale: &Scale, op: u64, rng: &mut fastrand::Rng) -> (&'static str, Value) {
    if rng.u32(0..scale.long_one_in) == 0 {
        let ms = rng.u64(2_200..scale.long_most_ms);
        return (EXECUTED_LONG, json!({"op": op, "n": 0, "ms": ms}));
    }
    if scale.pill_one_in > 0 && rng.u32(0..scale.pill_one_in) == 0 {
        return (EXECUTED, json!({"op": op, "n": 0, "ms": 1, "what": "hold"}));
    }
    let mut lot = rng.u32(0..OF);
    for (lambda, what, share) in DEEDS {
        if lot < share {
            return (lambda, json!({"op": op, "n": 0, "ms": rng.u32(1..20), "what": what}));
        }
        lot -= share;
    }
    let lambda = if lot < ALONE { EXECUTED_ALONE } else { EXECUTED };
    (lambda, json!({"op": op, "n": 0, "ms": rng.u32(1..20)}))
}

/// Waits until no task of a host is open. Returns how many are, after the longest wait.
async fn until_ended(stage: &Stage) -> anyhow::Result<i64> {
    let client = stage.session().await?;
    let began = Instant::now();
    loop {
        let left = count_open(&client).await?;
        if left == 0 || began.elapsed() > stage.scale.patience {
            return Ok(left);
        }
        sleep(Duration::from_millis(100)).await;
    }
}

async fn count_open(client: &tokio_postgres::Client) -> anyhow::Result<i64> {
    let sql = "select count(*) from tuskline.task where lambda = any ($1) and finished_at is null";
    Ok(client.query_one(sql, &[&HOSTED.as_slice()]).await?.get(0))
}

fn skipped(fault: Planned) -> Skipped {
    Skipped { what: word(fault.kind), why: "python3 (3.10 or newer) is absent".into() }
}

fn part_of(kind: Kind) -> Part {
    match kind {
        Kind::ControllerKill | Kind::ControllerFreeze => Part::Controller,
        Kind::ZygoteKill | Kind::ZygoteFreeze => Part::Zygote,
        Kind::GuardianKill | Kind::GuardianFreeze => Part::Guardian,
        _ => Part::Executor,
    }
}

/// Whether the guarantee assumes that guardian and controller do not stand still together.
fn is_guarded(kind: Kind) -> bool {
    matches!(kind, Kind::ControllerKill | Kind::ControllerFreeze | Kind::GuardianFreeze)
}

/// The target that the plan draws: a running process of the kind.
async fn target(stage: &Stage, fault: Planned) -> anyhow::Result<Child> {
    let part = part_of(fault.kind);
    let began = Instant::now();
    loop {
        let guardians = guardians(stage).await;
        let mut families = stage.families.lock().await;
        let running: Vec<Child> = match part {
            Part::Guardian => {
                guardians.into_iter().map(|member| Child { guardian: member.pid, member }).collect()
            }
            _ => families.of(part),
        };
        if !running.is_empty() {
            let at = usize::try_from(fault.choice % running.len() as u64)?;
            let child = running[at].clone();
            if !is_guarded(fault.kind) || families.stands_still(child.guardian) {
                return Ok(child);
            }
        }
        drop(families);
        anyhow::ensure!(began.elapsed() < PATIENCE, "no process is there for {}", word(fault.kind));
        sleep(LOOK).await;
    }
}

/// SIGKILL.
pub async fn kill(stage: &Stage, fault: Planned) -> Done {
    if python().is_none() {
        return Ok(Some(skipped(fault)));
    }
    let child = target(stage, fault).await?;
    let _ongoing = stage.faults.begin(&word(fault.kind), Some(child.member.pid), "");
    child.member.signal(Signal::KILL);
    let ended = child.member.ended(PATIENCE).await;
    if is_guarded(fault.kind) {
        stage.families.lock().await.goes_on(child.guardian);
    }
    anyhow::ensure!(ended, "{} survived SIGKILL", child.member.pid);
    Ok(None)
}

/// SIGSTOP, and SIGCONT after a while.
pub async fn freeze(stage: &Stage, fault: Planned) -> Done {
    if python().is_none() {
        return Ok(Some(skipped(fault)));
    }
    let child = target(stage, fault).await?;
    let writer = stage.faults.writer();
    let detail = format!("{} ms", fault.span_ms);
    let _ongoing = stage.faults.begin(&word(fault.kind), Some(child.member.pid), detail);
    if child.member.freeze(writer).await {
        sleep(Duration::from_millis(fault.span_ms)).await;
        child.member.thaw(writer);
        sleep(REST).await;
    }
    if is_guarded(fault.kind) {
        stage.families.lock().await.goes_on(child.guardian);
    }
    Ok(None)
}
