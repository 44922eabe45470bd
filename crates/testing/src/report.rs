//! Texts of failed assertions: the expected tasks, and the tasks that exist instead, the nearest first. In
//! lines of 80 columns, as far as names and numbers allow.

use std::fmt::Write as _;

use chrono::TimeDelta;
use tuskline_sdk::Status;

use super::{Task, Tasks};
use tuskline::duration;

/// Width of what is shown.
const COLUMNS: usize = 80;
/// Most tasks that are shown.
const SHOWN: usize = 10;
/// Below what it belongs to.
const INDENT: &str = "    ";
/// Most failures of a task that are shown, the latest.
const FAILURES: usize = 3;

/// Why it is not so many that meet the conditions.
pub(super) fn of(tasks: &Tasks, expected: usize) -> String {
    let instead = |task: &Task| -> Vec<String> {
        tasks.conditions.iter().filter_map(|condition| condition.instead(task)).collect()
    };
    let mut judged: Vec<_> = tasks.all.iter().map(|task| (instead(task), task)).collect();
    judged.sort_by_key(|(instead, _)| instead.len());
    let found = judged.iter().filter(|(instead, _)| instead.is_empty()).count();
    let mut text = format!("expected {}", counted(expected));
    if let Some(lambda) = &tasks.lambda {
        let _ = write!(text, " of {lambda}");
    }
    if !tasks.conditions.is_empty() {
        text += " with";
    }
    for condition in &tasks.conditions {
        line(&mut text, 1, &condition.text);
    }
    text += &match found {
        0 => "\nbut there is none".to_owned(),
        1 => "\nbut there is one".to_owned(),
        _ => format!("\nbut there are {found}"),
    };
    // Too many: the culprits are those that were found. Too few: one of the remaining tasks may have been meant.
    let shown = if found > expected { found } else { judged.len() };
    text += &match judged.len() {
        0 if tasks.others.is_empty() => ": nothing was scheduled at all".to_owned(),
        0 => ", but there are other tasks:".to_owned(),
        all if all > shown || all == found => ":".to_owned(),
        all => format!(". Of {all}, the nearest first:"),
    };
    if judged.is_empty() && !tasks.others.is_empty() {
        line(&mut text, 1, &lambdas(&tasks.others));
    }
    for (instead, task) in judged.iter().take(shown.min(SHOWN)) {
        row(&mut text, task);
        for one in instead {
            line(&mut text, 2, &format!("but {one}"));
        }
    }
    more(&mut text, shown);
    text
}

/// Each once, with how often.
fn lambdas(of_each: &[String]) -> String {
    let mut counts = std::collections::BTreeMap::new();
    for lambda in of_each {
        *counts.entry(lambda.as_str()).or_insert(0) += 1;
    }
    let each: Vec<_> = counts.iter().map(|(lambda, count)| format!("{lambda} ({count})")).collect();
    each.join(", ")
}

fn counted(tasks: usize) -> String {
    match tasks {
        0 => "no task".to_owned(),
        1 => "one task".to_owned(),
        _ => format!("{tasks} tasks"),
    }
}

/// Tasks with their failures, one below the other.
pub(super) fn stories(text: &mut String, tasks: &[&Task]) {
    let mut all = String::new();
    for task in tasks.iter().take(SHOWN) {
        row(&mut all, task);
        let skipped = task.failures.len().saturating_sub(FAILURES);
        if skipped > 0 {
            line(&mut all, 2, &format!("{skipped} failures before"));
        }
        for failure in &task.failures[skipped..] {
            let (attempt, class) = (failure.attempt, &failure.class);
            line(&mut all, 2, &format!("attempt {attempt}, {class}: {}", failure.message));
        }
    }
    more(&mut all, tasks.len());
    text.push_str(all.trim_start_matches('\n'));
}

fn more(text: &mut String, tasks: usize) {
    if tasks > SHOWN {
        line(text, 1, &format!("and {} more", tasks - SHOWN));
    }
}

/// A task in two or three lines.
fn row(text: &mut String, task: &Task) {
    let mut words = vec![task.status.to_string(), task.priority.to_string()];
    if matches!(task.status, Status::New | Status::RetriableFailure) {
        words.push(due(task));
    }
    line(text, 1, &format!("task {} of {}: {}", task.id, task.lambda, words.join(", ")));
    line(text, 2, &task.payload.to_string());
    let labels = [
        ("collection", &task.collection),
        ("ordering key", &task.ordering_key),
        ("unique key", &task.unique_key),
    ];
    let set =
        labels.iter().filter_map(|(name, label)| Some(format!("{name} {}", (*label).as_ref()?)));
    let set: Vec<_> = set.collect();
    if !set.is_empty() {
        line(text, 2, &set.join(", "));
    }
}

/// When a task is due, in words.
pub(super) fn due(task: &Task) -> String {
    match task.due_in > TimeDelta::zero() {
        true => format!("due in {}", span(task.due_in)),
        false => "due now".to_owned(),
    }
}

/// A span of time. To the second from a second on: a clock that is not pinned has gone on a little.
pub(super) fn span(of: TimeDelta) -> String {
    let exact = of.num_milliseconds();
    let rounded = if exact < 1_000 { exact } else { exact.saturating_add(500) / 1_000 * 1_000 };
    duration::show(rounded)
}

/// One line, cut where the screen ends.
pub(super) fn line(text: &mut String, depth: usize, words: &str) {
    let room = COLUMNS - depth * INDENT.len();
    let words: Vec<char> = words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let _ = write!(text, "\n{}", INDENT.repeat(depth));
    match words.len() > room {
        true => text.extend(words[..room - 3].iter().chain(&['.', '.', '.'])),
        false => text.extend(&words),
    }
}
