//! The call graph of the SQL functions, and the names of its floors.
//!
//! A text that names a function of a queue or segment counts as a call of it. The two schemas and the
//! overloads of a name are not told apart.

use std::collections::{BTreeMap, BTreeSet};

use crate::arrows::{Arrows, circles, reached};

/// Functions that the core may call of the policies.
pub const DOORS: [&str; 14] = [
    "before_accept",
    "hold_key",
    "on_accept",
    "on_postpone",
    "before_enqueue",
    "before_claim",
    "attempt_ended",
    "waiting_ended",
    "task_ended",
    "failures_noted",
    "followed_tasks",
    "on_restart",
    // The room that wakes workers and store consumers.
    "wake",
    "wake_timer",
];

/// Words: every function may say them.
const WORDS: [&str; 29] = [
    "clock",
    "refuse",
    "message_of",
    "payload_bytes",
    // The registry of locks, intervals and limits: each is a constant.
    "watch_class",
    "recheck_after",
    "relock_after",
    "stalled_after",
    "max_delay",
    // Counts for the statistics: rows of tables that no verb reads.
    "count_waits",
    "count_ends",
    "bucket_of",
    "histogram_edges",
    // Rights: they read who calls, and refuse.
    "caller",
    "acts_as",
    "rights_in_use",
    "has_right",
    "is_closed",
    "may",
    "barred",
    "need",
    "need_each",
    "need_on_task",
    "refusal_of_right",
    "refuse_right",
    "refuse_privilege",
    "refuse_claim",
    "own_executor",
    "own_fences",
];

/// Policies that tasks meet: gates, limits and orders, dependencies, dead letters, breakers.
pub const POLICIES: [&str; 17] = [
    "join_wait_lists",
    "check_dependencies",
    "read_parents",
    "resolve_dependents",
    "restart_dependents",
    "apply_gates",
    "acquire_permits",
    "release_permits",
    "grant_to_next_waiters",
    "permit_holders",
    "grant_concurrency",
    "grant_rate",
    "end_waits",
    "release_later_permits",
    "tell_waiting",
    "add_dead_letters",
    "note_failures",
];

/// Functions that the doors and the policies below them must never call: they write tasks and queues.
pub const WRITERS: [&str; 7] = [
    "end_attempts",
    "end_waiting",
    "enqueue",
    "queue_tasks",
    "run_effects",
    "take",
    "ask_before_claim",
];

/// Parts of a writer of an end, and the writer that calls them.
pub const PARTS: [(&str, &str); 2] = [("end_kept", "end_waiting"), ("end_n", "end_attempts")];

/// Functions with an overload that calls another overload, which is no circle.
const FORWARDS: [&str; 1] = ["start_operation"];

/// Texts of functions, and calls between them.
#[derive(Debug)]
pub struct Graph {
    texts: BTreeMap<String, String>,
    /// The functions that each calls.
    pub calls: Arrows,
}

impl Graph {
    /// Builds the graph from functions by name and source.
    pub fn of<'a>(functions: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut texts = BTreeMap::<String, String>::new();
        for (name, source) in functions {
            texts.entry(without_number(name)).or_default().push_str(&text(source));
        }
        let calls = texts.iter().map(|(name, text)| (name.clone(), callees(name, text, &texts)));
        Self { calls: calls.collect(), texts }
    }

    /// The text of a function, under its name without the number of a queue or segment.
    pub fn text(&self, name: &str) -> &str {
        &self.texts[name]
    }

    /// The functions that call one.
    pub fn callers(&self, of: &str) -> Vec<&str> {
        let calls = self.calls.iter().filter(|(_, callees)| callees.contains(of));
        calls.map(|(name, _)| name.as_str()).collect()
    }

    /// The functions that one reaches, not beyond those of `stop`.
    pub fn reached(&self, from: &str, stop: &[&str]) -> BTreeSet<&str> {
        reached(&self.calls, from, stop)
    }

    /// The functions that one reaches without passing a door.
    pub fn reached_beside_doors(&self, from: &str) -> BTreeSet<&str> {
        let mut found = self.reached(from, &DOORS);
        found.retain(|name| !DOORS.contains(name) && !WORDS.contains(name));
        found
    }

    /// Functions that reach each other or themselves.
    pub fn circles(&self) -> Vec<Vec<&str>> {
        let mut found = circles(&self.calls);
        found.retain(|circle| circle.len() > 1 || !FORWARDS.contains(&circle[0]));
        found
    }

    /// The functions that write an end into tasks.
    pub fn writers_of_ends(&self) -> Vec<&str> {
        self.having(|text| {
            let mut values = text.split("finished_at = ").skip(1);
            values.any(|value| !value.trim_start().starts_with("null"))
                && text.contains("update tuskline.task")
        })
    }

    /// The functions that write timers.
    pub fn writers_of_timers(&self) -> Vec<&str> {
        self.having(|text| text.contains("insert into tuskline.timer"))
    }

    /// The functions with such a text. Makers of functions are left out, because the functions that
    /// they make are listed themselves.
    fn having(&self, is_so: impl Fn(&str) -> bool) -> Vec<&str> {
        let made = self.texts.iter().filter(|(name, _)| !name.starts_with("make_"));
        made.filter(|(_, text)| is_so(text)).map(|(name, _)| name.as_str()).collect()
    }
}

/// A source in one schema, without comments. Literals are left out, too, because they may quote a
/// call for a person. Literals of a statement that executes them are kept.
fn text(source: &str) -> String {
    let lines = source.lines().map(|line| line.split("--").next().unwrap_or_default());
    let plain = lines.collect::<Vec<_>>().join("\n").replace("tuskline_core.", "tuskline.");
    let (mut text, mut statement) = (String::new(), String::new());
    for (at, part) in plain.split('\'').enumerate() {
        if at % 2 == 1 {
            let kept = if statement.contains("execute ") { part } else { "" };
            statement.push_str(kept);
            text.push_str(kept);
            continue;
        }
        statement = match part.rsplit_once(';') {
            Some((_, begun)) => begun.to_owned(),
            None => statement + part,
        };
        text.push_str(part);
    }
    text
}

fn without_number(name: &str) -> String {
    let stem = name.trim_end_matches(|digit: char| digit.is_ascii_digit());
    if stem.len() < name.len() && stem.ends_with('_') { format!("{stem}n") } else { name.into() }
}

/// The functions that a text calls. The maker of a function does not call it.
fn callees(name: &str, text: &str, texts: &BTreeMap<String, String>) -> BTreeSet<String> {
    let named = text.split("tuskline.").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
        match name.ends_with('_') {
            true => Some(format!("{name}n")),
            false => after.starts_with('(').then(|| without_number(name)), // else: a table
        }
    });
    let made = name.strip_prefix("make_").map(|made| format!("{made}_n"));
    named.filter(|callee| texts.contains_key(callee) && made.as_ref() != Some(callee)).collect()
}
