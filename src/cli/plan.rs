//! `migrate --plan`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use serde_json::json;
use tuskline_sdk::Address;

use super::{Global, Outcome, output};
use crate::migrate::{self, Blocker, Lock, Plan, Step};

/// Most characters of a statement on a line.
const SHOWN: usize = 74;

pub async fn run(global: &Global, address: &Address) -> Outcome {
    let plan = migrate::plan(address).await?;
    output::answer(global, &json!(plan), &told(&plan))?;
    Ok(ExitCode::SUCCESS)
}

fn told(plan: &Plan) -> String {
    let found = plan.found.map_or("nothing".to_owned(), |set| format!("function set {set}"));
    let head = format!("installed: {found}; this binary: function set {}", plan.schema_version);
    if plan.steps.is_empty() {
        return format!("{head}\nnothing to do");
    }
    let mut lines = vec![head];
    for step in &plan.steps {
        lines.push(String::new());
        lines.extend(of_step(step));
    }
    lines.extend(of_blockers(plan));
    lines.join("\n")
}

fn of_step(step: &Step) -> Vec<String> {
    let count = step.statements.len();
    let mut lines = vec![match step.name {
        "functions" => format!(
            "functions: {count} statements in one transaction, tried 10 times\n  it waits 2 s for a lock"
        ),
        name => format!("{name}: {count} statements in one transaction"),
    }];
    if step.name == "functions" {
        let mut kinds = BTreeMap::new();
        for statement in &step.statements {
            *kinds.entry(migrate::kind(statement)).or_insert(0) += 1;
        }
        lines.extend(kinds.into_iter().map(|(kind, count)| format!("  {count:>5}  {kind}")));
    } else {
        lines.extend(step.statements.iter().map(|text| format!("  {}", shortened(text))));
    }
    if step.locks.is_empty() {
        lines.push("  it locks no relation that is there now".into());
    }
    lines.extend(of_locks(&step.locks));
    lines
}

/// The relations of each mode, on lines of 80 columns.
fn of_locks(locks: &[Lock]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut mode = None;
    for lock in locks {
        if mode != Some(lock.mode) {
            let count = locks.iter().filter(|other| other.mode == lock.mode).count();
            lines.push(format!("  locks in mode {}: {count}", lock.mode.name()));
            lines.push("   ".into());
            mode = Some(lock.mode);
        }
        if lines.last().is_some_and(|line| line.len() + lock.relation.len() > 78) {
            lines.push("   ".into());
        }
        if let Some(line) = lines.last_mut() {
            line.push(' ');
            line.push_str(&lock.relation);
        }
    }
    lines
}

/// Each session once, with the relations that it holds.
fn of_blockers(plan: &Plan) -> Vec<String> {
    let mut held: Vec<(&Blocker, Vec<&str>)> = Vec::new();
    for lock in plan.steps.iter().flat_map(|step| &step.locks) {
        for blocker in &lock.blockers {
            match held.iter_mut().find(|(known, _)| known.pid == blocker.pid) {
                Some((_, relations)) => relations.push(&lock.relation),
                None => held.push((blocker, vec![&lock.relation])),
            }
        }
    }
    let mut lines = vec![String::new()];
    if held.is_empty() {
        lines.push("no session blocks it now".into());
    }
    for (blocker, mut relations) in held {
        relations.dedup();
        let Blocker { role, application, state, .. } = blocker;
        let since = blocker.since.map(|at| format!(" since {}", at.format("%F %T UTC")));
        let who = blocker.pid.map_or("a prepared transaction".into(), |pid| format!("pid {pid}"));
        lines.push(format!("blocked by {who}{}", since.unwrap_or_default()));
        lines.push(format!("  role {role}, application {application}, {state}"));
        lines.push(format!("  it holds {}", relations.join(", ")));
        if let Some(pid) = blocker.pid {
            lines.push(format!("  to end it: select pg_terminate_backend({pid})"));
        }
    }
    lines
}

fn shortened(statement: &str) -> String {
    let text = statement.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}
