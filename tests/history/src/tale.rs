//! The story of one task: everything that was written down about it, in order of time.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

use crate::{Event, Line, Status, read};

/// Arrays longer than this are only counted.
const SHOWN_ELEMENTS: usize = 4;

/// The events of one task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tale {
    /// The task.
    pub task: i64,
    /// The lines, with an event each, in order of time.
    pub lines: Vec<String>,
}

/// Tells the story of each of `tasks`, reading the history in `dir` twice.
///
/// # Errors
/// A file cannot be read or parsed.
pub fn tell(dir: &Path, tasks: &[i64]) -> Result<Vec<Tale>> {
    let mut casts: Vec<Cast> = tasks.iter().map(|task| Cast::new(*task)).collect();
    each_event(dir, |pid, line| casts.iter_mut().for_each(|cast| cast.meet(pid, line)))?;
    let mut begin = u64::MAX;
    let mut found: BTreeMap<i64, Vec<Moment>> = BTreeMap::new();
    each_event(dir, |pid, line| {
        begin = begin.min(line.at);
        for cast in casts.iter().filter(|cast| cast.concerns(pid, &line.event)) {
            found.entry(cast.task).or_default().push(Moment::of(pid, line));
        }
    })?;
    let tale = |(task, moments)| Tale { task, lines: in_order(moments, begin) };
    Ok(found.into_iter().map(tale).collect())
}

/// An event of a story.
struct Moment {
    at: u64,
    /// On the database's clock, for what was exported from it long after.
    db_us: Option<i64>,
    /// The fence that it is the claim of.
    claims: Option<i64>,
    what: String,
}

impl Moment {
    fn of(pid: u32, line: &Line) -> Self {
        let (db_us, claims) = match &line.event {
            Event::Transition { db_us, to: Status::Claimed, fence, .. } => {
                (Some(*db_us), Some(*fence))
            }
            Event::Transition { db_us, .. } => (Some(*db_us), None),
            Event::Claimed { fence, .. } => (None, Some(*fence)),
            _ => (None, None),
        };
        Self { at: line.at, db_us, claims, what: describe(pid, line) }
    }
}

/// A line for each moment. Changes in the database are placed by its clock, after a claim that both
/// sides recorded. The order is for reading only; no check uses it.
fn in_order(mut moments: Vec<Moment>, begin: u64) -> Vec<String> {
    if let Some(shift) = shift_of_clocks(&moments) {
        for moment in &mut moments {
            let at = moment.db_us.and_then(|us| u64::try_from(i128::from(us) * 1000 + shift).ok());
            moment.at = at.unwrap_or(moment.at);
        }
    }
    moments.sort_by_key(|moment| moment.at);
    let lines = moments.into_iter().map(|Moment { at, what, .. }| {
        let at_us = at.saturating_sub(begin) / 1000;
        format!("{:6}.{:06}  {what}", at_us / 1_000_000, at_us % 1_000_000)
    });
    lines.collect()
}

/// The shift of the database's clock, in nanoseconds: the least that an answered claim allows.
fn shift_of_clocks(moments: &[Moment]) -> Option<i128> {
    let changes = moments.iter().filter_map(|moment| Some((moment.claims?, moment.db_us?)));
    let shifts = changes.filter_map(|(fence, db_us)| {
        let mut answers = moments.iter().filter(|moment| moment.db_us.is_none());
        let answer = answers.find(|answer| answer.claims == Some(fence))?;
        Some(i128::from(answer.at) - i128::from(db_us) * 1000)
    });
    shifts.min()
}

fn each_event(dir: &Path, mut take: impl FnMut(u32, &Line)) -> Result<()> {
    for path in read::files(dir)? {
        let mut writer = 0;
        read::each_line(&path, |line| {
            if let Event::Opened { pid, .. } = line.event {
                writer = pid;
            }
            take(writer, &line);
            Ok(())
        })?;
    }
    Ok(())
}

/// The processes and calls in a task's story.
struct Cast {
    task: i64,
    ops: Vec<u64>,
    pids: Vec<u32>,
    /// Whether an event named the task at all.
    named: bool,
}

impl Cast {
    fn new(task: i64) -> Self {
        Self { task, ops: Vec::new(), pids: Vec::new(), named: false }
    }

    fn meet(&mut self, pid: u32, line: &Line) {
        if !self.names(&line.event) {
            return;
        }
        self.named = true;
        match &line.event {
            Event::Row { op, .. } | Event::ScheduleOk { op, .. } => self.ops.push(*op),
            Event::BodyStart { op, .. } => {
                self.ops.push(*op);
                self.pids.push(pid);
            }
            Event::Claimed { .. } => self.pids.push(pid),
            _ => {}
        }
    }

    /// Whether an event names the task.
    fn names(&self, event: &Event) -> bool {
        match event {
            Event::Cancel { task }
            | Event::CancelAnswer { task, .. }
            | Event::BodyStart { task, .. }
            | Event::BodyTick { task, .. }
            | Event::BodyEnd { task, .. }
            | Event::Transition { task, .. }
            | Event::Row { task, .. }
            | Event::Failure { task, .. }
            | Event::Tick { task: Some(task), .. }
            | Event::Redriven { task, .. }
            | Event::DeadLetter { task, .. } => *task == self.task,
            Event::ScheduleOk { ids: tasks, .. }
            | Event::Claimed { tasks, .. }
            | Event::RowsHeld { tasks, .. }
            | Event::ProcessEnded { tasks, .. }
            | Event::ResultRefused { tasks } => tasks.contains(&self.task),
            _ => false,
        }
    }

    /// Whether an event belongs to the story: it names the task, its op, or a process that held it.
    fn concerns(&self, writer: u32, event: &Event) -> bool {
        match event {
            Event::Schedule { op, .. }
            | Event::ScheduleFail { op, .. }
            | Event::ScheduleInfo { op, .. } => self.ops.contains(op),
            Event::Stopped { pid } | Event::Continued { pid } | Event::Reaped { pid, .. } => {
                self.pids.contains(pid)
            }
            Event::Fault { pid: Some(pid), .. } => self.pids.contains(pid),
            Event::Registered { .. }
            | Event::Lost { .. }
            | Event::Ends { .. }
            | Event::Guarded { .. }
            | Event::Exit => self.pids.contains(&writer),
            Event::Database { .. } | Event::Restored { .. } | Event::Fault { pid: None, .. } => {
                self.named
            }
            other => self.names(other),
        }
    }
}

fn describe(pid: u32, line: &Line) -> String {
    let Ok(Value::Object(fields)) = serde_json::to_value(&line.event) else { return String::new() };
    let name = fields.get("e").and_then(Value::as_str).unwrap_or_default();
    let mut text = format!("pid {pid:<8} {name:<13}");
    for (field, value) in fields.iter().filter(|(field, _)| *field != "e") {
        text += &match value {
            Value::Array(elements) if elements.len() > SHOWN_ELEMENTS => {
                format!(" {field}=[{} of them]", elements.len())
            }
            Value::Null => continue,
            Value::String(word) => format!(" {field}={word}"),
            other => format!(" {field}={other}"),
        };
    }
    text
}
