//! Writes a history of about so many events, to measure `check-history` with:
//! `cargo run --release -p tuskline-history --example long_history -- DIR EVENTS`.
//!
//! Every task is scheduled in batches of 100, claimed in batches of 50, and succeeds; each lives 20 ms.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use tuskline_history::{Actor, Ended, Event, Line, LockAnswer, Settings, Status};

const BATCH: u32 = 100;
const CLAIM: i64 = 50;
const WORKERS: u32 = 8;

/// Body's start, tick and end, three changes, a row.
const EVENTS_A_TASK: u64 = 7;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().context("which directory?")?;
    let events: u64 = args.next().context("how many events?")?.parse()?;
    let tasks = i64::try_from(events / EVENTS_A_TASK)?;
    let dir = Path::new(&dir);
    client(&mut Page::open(dir, Actor::Client, 10)?, tasks)?;
    injector(&mut Page::open(dir, Actor::Injector, 1)?)?;
    for worker in 0..WORKERS {
        executor(&mut Page::open(dir, Actor::Executor, 20 + worker)?, tasks, worker)?;
    }
    database(&mut Page::open(dir, Actor::Database, 2)?, tasks)
}

struct Page(BufWriter<File>);

impl Page {
    fn open(dir: &Path, actor: Actor, pid: u32) -> Result<Self> {
        let file = File::create_new(dir.join(format!("{pid}.jsonl")))?;
        let mut page = Self(BufWriter::with_capacity(1 << 20, file));
        page.note(0, Event::Opened { actor, pid })?;
        Ok(page)
    }

    fn note(&mut self, at_ms: u64, event: Event) -> Result<()> {
        serde_json::to_writer(&mut self.0, &Line { at: at_ms * 1_000_000, event })?;
        Ok(self.0.write_all(b"\n")?)
    }
}

/// When a task is scheduled: five in a millisecond.
fn born_ms(task: i64) -> u64 {
    1000 + task.unsigned_abs() / 5
}

fn op(task: i64) -> (u64, u32) {
    let index = task.unsigned_abs() - 1;
    (index / u64::from(BATCH), u32::try_from(index % u64::from(BATCH)).unwrap_or(0))
}

fn client(page: &mut Page, tasks: i64) -> Result<()> {
    let ids: Vec<i64> = (1..=tasks).collect();
    for ids in ids.chunks(BATCH as usize) {
        let (op, at) = (op(ids[0]).0, born_ms(ids[0]));
        let (lambda, tasks) = ("mail".to_owned(), u32::try_from(ids.len())?);
        let (key, ordering_key) = (None, None);
        page.note(
            at,
            Event::Schedule { op, lambda, tasks, delay_ms: 0, key, ordering_key, chain: false },
        )?;
        page.note(at + 1, Event::ScheduleOk { op, ids: ids.to_vec() })?;
    }
    Ok(())
}

fn injector(page: &mut Page) -> Result<()> {
    page.note(
        0,
        Event::Settings(Settings {
            seed: 1,
            heartbeat_ms: 5000,
            self_termination_ms: 15_000,
            margin_ms: 5000,
            lease_ms: 20_000,
            poll_ms: 1000,
            limits: Vec::new(),
            rates: Vec::new(),
            versions: Vec::new(),
        }),
    )
}

fn fence(task: i64) -> i64 {
    (task - 1) / CLAIM + 1
}

fn executor(page: &mut Page, tasks: i64, worker: u32) -> Result<()> {
    page.note(0, Event::Registered { executor: i64::from(worker), answered: None })?;
    let mut beat = 0;
    let mine = (1..=fence(tasks))
        .filter(|fence| fence.unsigned_abs() % u64::from(WORKERS) == u64::from(worker));
    for fence in mine {
        let first = (fence - 1) * CLAIM + 1;
        let batch: Vec<i64> = (first..first + CLAIM).filter(|task| *task <= tasks).collect();
        let at = born_ms(first + CLAIM) + 5;
        while beat * 5000 < at {
            page.note(beat * 5000, Event::BeatSent { beat })?;
            page.note(beat * 5000 + 2, Event::BeatAck { beat })?;
            beat += 1;
        }
        page.note(at, Event::Claimed { fence, tasks: batch.clone() })?;
        for task in batch {
            let (op, n) = op(task);
            let lock = LockAnswer::Free;
            page.note(at + 1, Event::BodyStart { task, fence, attempt: 1, op, n, lock })?;
            page.note(at + 11, Event::BodyTick { task, fence })?;
            page.note(at + 21, Event::BodyEnd { task, fence, ended: Ended::Success })?;
        }
    }
    page.note(born_ms(tasks) + 1000, Event::Exit)
}

fn database(page: &mut Page, tasks: i64) -> Result<()> {
    let end = born_ms(tasks) + 2000;
    for task in 1..=tasks {
        let claimed = born_ms((fence(task) - 1) * CLAIM + 1 + CLAIM) + 4;
        let changes = [
            (None, Status::Enqueued, 0, born_ms(task)),
            (Some(Status::Enqueued), Status::Claimed, fence(task), claimed),
            (Some(Status::Claimed), Status::Success, fence(task), claimed + 30),
        ];
        for (step, (from, to, fence, at)) in (1..).zip(changes) {
            let (attempt, db_us, xid) = (i16::from(fence > 0), i64::try_from(at * 1000)?, 1);
            let (crashes, due_us) = (0, None);
            page.note(
                end,
                Event::Transition {
                    task,
                    step,
                    from,
                    to,
                    fence,
                    attempt,
                    crashes,
                    db_us,
                    due_us,
                    xid,
                },
            )?;
        }
        let ((op, n), lambda, fence) = (op(task), "mail".to_owned(), fence(task));
        let (status, max_attempts, max_crashes) = (Status::Success, 5, 3);
        let (ordering_key, tick) = (None, None);
        page.note(
            end,
            Event::Row {
                task,
                op,
                n,
                lambda,
                status,
                fence,
                attempt: 1,
                max_attempts,
                crashes: 0,
                max_crashes,
                ordering_key,
                tick,
            },
        )?;
    }
    Ok(())
}
