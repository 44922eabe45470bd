//! The call graph of the functions of the schema: no circle, two writers of an end, and the core
//! reaches policies by doors only.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::Db;

/// Functions that the core may call of the policies.
const DOORS: [&str; 9] = [
    "before_accept",
    "on_accept",
    "before_enqueue",
    "before_claim",
    "attempt_ended",
    "waiting_ended",
    "task_ended",
    "followed_tasks",
    "on_restart",
];

/// Policies that tasks meet: gates, limits and orders, dependencies.
const POLICIES: [&str; 15] = [
    "hold_unique_keys",
    "join_lines",
    "check_dependencies",
    "look_at_parents",
    "resolve_dependents",
    "restart_dependents",
    "apply_gates",
    "acquire_permits",
    "release_permits",
    "grant_to_next_waiter",
    "permit_holders",
    "give_places",
    "give_turns",
    "step_back",
    "tell_waiting",
];

/// Functions that the doors and the policies below them must never call: they write tasks and queues.
const WRITERS: [&str; 7] =
    ["end_attempts", "end_waiting", "enqueue", "queue_tasks", "run_effects", "take", "sort_popped"];

/// The text of each function, under its name without the number of a queue or segment. Comments go, and
/// so do literals, which may quote a call for a person; but not in a statement that executes them.
async fn texts(db: &Db) -> BTreeMap<String, String> {
    let sql = "select proname || e'\\n' || prosrc from pg_proc
                where pronamespace = 'tuskline'::regnamespace and prosrc is not null";
    let mut texts = BTreeMap::<String, String>::new();
    for row in db.all::<String>(sql).await {
        let (name, source) = row.split_once('\n').unwrap();
        let lines = source.lines().map(|line| line.split("--").next().unwrap());
        let plain = lines.collect::<Vec<_>>().join("\n");
        let text = without_quotes(&plain);
        texts.entry(without_number(name)).or_default().push_str(&text);
    }
    texts
}

/// Without the literals of each statement that does not execute a text.
fn without_quotes(plain: &str) -> String {
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

/// The functions that each calls, also by a text that names one of a queue or segment.
fn calls(texts: &BTreeMap<String, String>) -> BTreeMap<&str, BTreeSet<&str>> {
    let called = |text: &str| -> BTreeSet<&str> {
        let parts = text.split("tuskline.").skip(1).filter_map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
            match name.ends_with('_') {
                true => Some(format!("{name}n")),
                false => after.starts_with('(').then(|| without_number(name)), // else: a table
            }
        });
        parts.filter_map(|name| Some(texts.get_key_value(&name)?.0.as_str())).collect()
    };
    let makers = |name: &str, callee: &str| {
        name.strip_prefix("make_").is_some_and(|made| callee == format!("{made}_n"))
    };
    texts
        .iter()
        .map(|(name, text)| {
            let callees = called(text).into_iter().filter(|callee| !makers(name, callee));
            (name.as_str(), callees.collect())
        })
        .collect()
}

/// The functions that one reaches, not beyond those of `stop`.
fn reached<'a>(
    calls: &BTreeMap<&'a str, BTreeSet<&'a str>>,
    from: &str,
    stop: &[&str],
) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut open: Vec<&str> = calls[from].iter().copied().collect();
    while let Some(next) = open.pop() {
        if seen.insert(next) && !stop.contains(&next) {
            open.extend(&calls[next]);
        }
    }
    seen
}

#[tokio::test]
async fn no_function_reaches_itself() {
    let db = Db::with_lambda("work").await;
    let texts = texts(&db).await;
    let calls = calls(&texts);
    assert!(calls.len() > 250 && calls["take"].contains("take_n"), "{}", calls.len());
    let is_circle = |name: &&&str| reached(&calls, name, &[]).contains(**name);
    // An overload of redrive hands on to the one that takes a text.
    let circles: Vec<_> =
        calls.keys().filter(is_circle).filter(|name| **name != "redrive").collect();
    assert!(circles.is_empty(), "{circles:?}");
}

#[tokio::test]
async fn a_task_ends_by_two_functions() {
    let db = Db::with_lambda("work").await;
    let texts = texts(&db).await;
    let ends = |text: &&String| {
        text.split("finished_at = ").skip(1).any(|value| !value.trim_start().starts_with("null"))
            && text.contains("update tuskline.task")
    };
    let writers: Vec<_> = texts
        .iter()
        .filter(|(name, text)| !name.starts_with("make_") && ends(text))
        .map(|(name, _)| name.as_str())
        .collect();
    // end_kept is end_waiting for a task that has outlived its segment.
    assert_eq!(writers, ["end_kept", "end_n", "end_waiting"]);
    let calls = calls(&texts);
    // return_leftovers drops that of a segment which has gone.
    for (writer, callers) in
        [("end_kept", ["end_waiting"].as_slice()), ("end_n", &["end_attempts", "return_leftovers"])]
    {
        let found: Vec<_> =
            calls.iter().filter(|(_, callees)| callees.contains(writer)).map(|(n, _)| *n).collect();
        assert_eq!(found, callers, "{writer}");
    }
}

#[tokio::test]
async fn the_core_reaches_policies_by_doors_and_policies_do_not_reach_back() {
    let db = Db::with_lambda("work").await;
    let texts = texts(&db).await;
    let calls = calls(&texts);
    for name in DOORS.iter().chain(&POLICIES).chain(&WRITERS) {
        assert!(calls.contains_key(name), "there is no {name}");
    }
    for verb in ["route", "exchange", "set_results", "release", "complete", "enqueue_due", "cancel"]
    {
        let beside = reached(&calls, verb, &DOORS);
        let met: Vec<_> = POLICIES.iter().filter(|policy| beside.contains(*policy)).collect();
        assert!(met.is_empty(), "{verb} meets {met:?} beside the doors");
    }
    for below in DOORS.iter().chain(&POLICIES) {
        let back = reached(&calls, below, &[]);
        let met: Vec<_> = WRITERS.iter().filter(|writer| back.contains(*writer)).collect();
        assert!(met.is_empty(), "{below} reaches {met:?}");
        let writes = ["update tuskline.task ", "insert into tuskline.queued"];
        assert!(!writes.iter().any(|write| texts[*below].contains(write)), "{below} writes tasks");
    }
}

#[tokio::test]
async fn timers_have_one_writer() {
    let db = Db::with_lambda("work").await;
    let texts = texts(&db).await;
    let writes = |text: &&String| text.contains("insert into tuskline.timer");
    let writers: Vec<_> = texts.iter().filter(|(_, text)| writes(text)).map(|(n, _)| n).collect();
    assert_eq!(writers, ["add_timers"]);
}
