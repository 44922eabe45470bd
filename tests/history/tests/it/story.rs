//! Builds handmade histories.
//!
//! Times are milliseconds since the story began; the database's clock shows the same milliseconds
//! after another epoch. Two workers (pids 21 and 22) beat from 0 to 10 s, then exit.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tempfile::TempDir;
use tuskline_history::Status::{self, Claimed, Enqueued, Success};
use tuskline_history::{Actor, Edge, Ended, Event, Line, LockAnswer, Report, Settings, check};

pub const CLIENT: u32 = 11;
pub const WORKER: u32 = 21;
pub const OTHER: u32 = 22;
pub const INJECTOR: u32 = 1;
pub const DATABASE: u32 = 2;

/// The end of every story.
pub const END: u64 = 10_000;

const EPOCH_MS: u64 = 5_000_000;
const DB_EPOCH_US: i64 = 1_700_000_000_000_000;

/// The records of all processes, by pid.
#[derive(Clone)]
pub struct Story {
    pages: BTreeMap<u32, Vec<Line>>,
    steps: i64,
}

/// Fence, attempt and crashes after a change.
pub type Numbers = (i64, i16, i16);

impl Story {
    /// Two workers live and exit in order; no task is scheduled.
    pub fn idle() -> Self {
        let mut story = Self { pages: BTreeMap::new(), steps: 0 };
        story.opens(CLIENT, Actor::Client, 0);
        story.opens(INJECTOR, Actor::Injector, 0);
        story.opens(DATABASE, Actor::Database, END + 500);
        story.note(INJECTOR, 0, Event::Settings(settings()));
        for pid in [WORKER, OTHER] {
            story.opens(pid, Actor::Executor, 0);
            story.note(pid, 0, Event::Registered { executor: i64::from(pid), answered: None });
            story.beats(pid, 0, END);
            story.note(pid, END, Event::Exit);
            story.reaped(pid, END + 10);
        }
        story
    }

    /// The same with one task, 1, which succeeds on `WORKER` at once.
    pub fn one_task() -> Self {
        let mut story = Self::idle();
        story.succeeds(1);
        story
    }

    /// A task, alone in its batch, is executed by `WORKER` under its own id as fence.
    pub fn succeeds(&mut self, task: i64) {
        self.scheduled(task, 100);
        self.claims(WORKER, task, task, 1, 110);
        self.body(WORKER, task, task, 120, Some((Ended::Success, 200)));
        self.becomes(task, Some(Claimed), Success, (task, 1, 0), 210);
        self.row(task, Success, (task, 1, 0));
    }

    pub fn scheduled(&mut self, task: i64, at: u64) {
        let op = task.unsigned_abs();
        let lambda = "mail".to_owned();
        let (tasks, delay_ms, key, ordering_key, chain) = (1, 0, None, None, false);
        let event = Event::Schedule { op, lambda, tasks, delay_ms, key, ordering_key, chain };
        self.note(CLIENT, at, event);
        self.note(CLIENT, at + 5, Event::ScheduleOk { op, ids: vec![task] });
        self.becomes(task, None, Enqueued, (0, 0, 0), at + 2);
    }

    pub fn claims(&mut self, pid: u32, task: i64, fence: i64, attempt: i16, at: u64) {
        self.claims_after(pid, task, (fence, attempt, 0), at);
    }

    pub fn claims_after(&mut self, pid: u32, task: i64, numbers: Numbers, at: u64) {
        self.becomes(task, Some(Enqueued), Claimed, numbers, at);
        self.note(pid, at + 2, Event::Claimed { fence: numbers.0, tasks: vec![task] });
    }

    pub fn body(&mut self, pid: u32, task: i64, fence: i64, at: u64, end: Option<(Ended, u64)>) {
        let (op, lock) = (task.unsigned_abs(), LockAnswer::Free);
        self.note(pid, at, Event::BodyStart { task, fence, attempt: 1, op, n: 0, lock });
        self.note(pid, at + 50, Event::BodyTick { task, fence });
        if let Some((ended, at)) = end {
            self.note(pid, at, Event::BodyEnd { task, fence, ended });
        }
    }

    pub fn becomes(
        &mut self,
        task: i64,
        from: Option<Status>,
        to: Status,
        numbers: Numbers,
        at: u64,
    ) {
        self.becomes_due(task, from, to, numbers, at, None);
    }

    pub fn becomes_due(
        &mut self,
        task: i64,
        from: Option<Status>,
        to: Status,
        (fence, attempt, crashes): Numbers,
        at: u64,
        due: Option<u64>,
    ) {
        self.steps += 1;
        let (step, db_us, due_us) = (self.steps, db_us(at), due.map(db_us));
        let xid = step.unsigned_abs();
        let event =
            Event::Transition { task, step, from, to, fence, attempt, crashes, db_us, due_us, xid };
        self.note(DATABASE, END + 1000, event);
    }

    pub fn row(&mut self, task: i64, status: Status, (fence, attempt, crashes): Numbers) {
        let row = Event::Row {
            task,
            op: task.unsigned_abs(),
            n: 0,
            lambda: "mail".to_owned(),
            status,
            fence,
            attempt,
            max_attempts: 5,
            crashes,
            max_crashes: 3,
            ordering_key: None,
            tick: None,
        };
        self.note(DATABASE, END + 1000, row);
        if matches!(status, Status::Dead | Status::FatalFailure) {
            self.note(DATABASE, END + 1000, Event::DeadLetter { task, shown: true });
        }
    }

    pub fn failed(&mut self, task: i64, fence: i64) {
        self.failed_of(task, fence, "crash");
    }

    pub fn failed_of(&mut self, task: i64, fence: i64, cause: &str) {
        let (class, fingerprint) = ("crash".to_owned(), cause.to_owned());
        self.note(DATABASE, END + 1000, Event::Failure { task, fence, class, fingerprint });
    }

    /// The number of the last change, and of its transaction.
    pub fn last_step(&self) -> i64 {
        self.steps
    }

    pub fn opens(&mut self, pid: u32, actor: Actor, at: u64) {
        self.note(pid, at, Event::Opened { actor, pid });
    }

    /// A heartbeat each 250 ms, acknowledged 5 ms later.
    pub fn beats(&mut self, pid: u32, from: u64, to: u64) {
        for at in (from..to).step_by(250) {
            self.note(pid, at, Event::BeatSent { beat: at });
            self.note(pid, at + 5, Event::BeatAck { beat: at });
        }
    }

    /// A process is killed: it neither beats nor writes anything any more, and ends at `reaped`.
    pub fn dies(&mut self, pid: u32, silent: u64, reaped: u64) {
        self.fault("worker_kill", Some(pid), silent, reaped);
        self.falls_silent(pid, silent, reaped);
    }

    /// A process neither beats nor writes any more, and no fault killed it.
    pub fn falls_silent(&mut self, pid: u32, silent: u64, reaped: u64) {
        let page = self.pages.get_mut(&pid).expect("it wrote something");
        page.retain(|line| line.at < ns(silent));
        self.without(|event| matches!(event, Event::Reaped { pid: gone, .. } if *gone == pid));
        self.reaped(pid, reaped);
    }

    pub fn reaped(&mut self, pid: u32, at: u64) {
        self.note(INJECTOR, at, Event::Reaped { pid, code: None, signal: Some(9) });
    }

    pub fn stops(&mut self, pid: u32, from: u64, to: u64) {
        self.note(INJECTOR, from, Event::Stopped { pid });
        self.note(INJECTOR, to, Event::Continued { pid });
    }

    pub fn fault(&mut self, kind: &str, pid: Option<u32>, from: u64, to: u64) {
        let (kind, detail) = (kind.to_owned(), String::new());
        self.note(INJECTOR, from, Event::Fault { id: from, kind, pid, detail });
        self.note(INJECTOR, to, Event::FaultEnd { id: from });
    }

    pub fn database_down(&mut self, from: u64, to: u64) {
        for (at, edge) in [(from, Edge::Begin), (to, Edge::End)] {
            self.note(INJECTOR, at, Event::Database { edge, why: "crash".to_owned() });
        }
    }

    pub fn note(&mut self, pid: u32, at: u64, event: Event) {
        self.pages.entry(pid).or_default().push(Line { at: ns(at), event });
    }

    /// Puts an event before everything else of its file.
    pub fn first(&mut self, pid: u32, at: u64, event: Event) {
        self.pages.entry(pid).or_default().insert(0, Line { at, event });
    }

    /// Takes events out.
    pub fn without(&mut self, gone: impl Fn(&Event) -> bool) {
        self.pages.values_mut().for_each(|page| page.retain(|line| !gone(&line.event)));
    }

    /// Adds all that is in another story.
    pub fn adds(&mut self, other: &Self) {
        for (pid, page) in &other.pages {
            self.pages.entry(*pid).or_default().extend(page.iter().cloned());
        }
    }

    /// Changes events.
    pub fn change(&mut self, change: impl Fn(&mut Event)) {
        self.pages.values_mut().flatten().for_each(|line| change(&mut line.event));
    }

    /// Writes it into `dir`, as its processes would have.
    pub fn write(&self, dir: &Path) {
        for (pid, page) in &self.pages {
            let lines: Vec<_> =
                page.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect();
            fs::write(dir.join(format!("{pid}.jsonl")), lines.concat()).unwrap();
        }
    }

    pub fn report(&self) -> Report {
        let dir = TempDir::new().unwrap();
        self.write(dir.path());
        check(dir.path()).unwrap()
    }
}

pub fn ns(ms: u64) -> u64 {
    (EPOCH_MS + ms) * 1_000_000
}

/// A moment on the database's clock.
pub fn db_us(ms: u64) -> i64 {
    DB_EPOCH_US + i64::try_from(ms * 1000).unwrap()
}

pub fn settings() -> Settings {
    Settings {
        seed: 7,
        heartbeat_ms: 250,
        self_termination_ms: 1000,
        margin_ms: 1000,
        lease_ms: 2000,
        poll_ms: 1000,
        limits: Vec::new(),
        rates: Vec::new(),
        versions: vec!["handmade".to_owned()],
    }
}

/// Nothing is violated.
#[track_caller]
pub fn green(story: &Story) -> Report {
    let report = story.report();
    assert!(report.ok && report.violated().is_empty(), "{report}");
    report
}

/// Just these are violated, each once, and the report says where.
#[track_caller]
pub fn red(story: &Story, ids: &[&str]) -> Report {
    let report = story.report();
    assert_eq!(report.violated(), ids, "{report}");
    assert!(!report.ok);
    for id in ids {
        let check = report.invariant(id).unwrap();
        assert_eq!((check.upper95, check.details.is_empty()), (None, false));
    }
    report
}

/// A story is green, and red for `ids` once `break_it` was done to it.
#[track_caller]
pub fn caught(mut story: Story, ids: &[&str], break_it: impl FnOnce(&mut Story)) -> Report {
    green(&story);
    break_it(&mut story);
    red(&story, ids)
}
