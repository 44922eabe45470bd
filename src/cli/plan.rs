//! `migrate --plan`.

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::json;
use tuskline_sdk::Address;

use super::global::Global;
use super::output;
use crate::migrate::{self, Blocker, Lock, Plan, Step};

/// Most characters of a statement on a line.
const SHOWN: usize = 74;

pub async fn run(global: &Global, address: &Address) -> Result<()> {
    let plan = migrate::plan(address).await?;
    output::answer(global, &json!(plan), &text_of(&plan))
}

fn text_of(plan: &Plan) -> String {
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
    let mut lines = vec![match step.name.as_str() {
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
    let of_mode = |same: &[Lock]| {
        let head = format!("  locks in mode {}: {}", same[0].mode.name(), same.len());
        let relations: Vec<_> = same.iter().map(|lock| lock.relation.as_str()).collect();
        let relations = output::wrapped(&relations.join(" "), 75).into_iter();
        [head].into_iter().chain(relations.map(|line| format!("    {line}")))
    };
    locks.chunk_by(|one, next| one.mode == next.mode).flat_map(of_mode).collect()
}

/// Each holder once, with the relations that it holds.
fn of_blockers(plan: &Plan) -> Vec<String> {
    let mut held: Vec<(&Blocker, Vec<&str>)> = Vec::new();
    for lock in plan.steps.iter().flat_map(|step| &step.locks) {
        for blocker in &lock.blockers {
            let is_same =
                |known: &Blocker| (known.pid, &known.prepared) == (blocker.pid, &blocker.prepared);
            match held.iter_mut().find(|(known, _)| is_same(known)) {
                Some((_, relations)) => relations.push(&lock.relation),
                None => held.push((blocker, vec![&lock.relation])),
            }
        }
    }
    if held.is_empty() {
        return vec![String::new(), "no session blocks it now".into()];
    }
    let lines_of = |(blocker, mut relations): (&Blocker, Vec<&str>)| {
        relations.dedup();
        of_blocker(blocker, &relations.join(", "))
    };
    held.into_iter().flat_map(lines_of).collect()
}

fn of_blocker(blocker: &Blocker, relations: &str) -> Vec<String> {
    let since = blocker.since.map(|at| format!(" since {}", at.format("%F %T UTC")));
    let since = since.unwrap_or_default();
    let state = blocker.state.as_deref().map(|state| format!(", {state}")).unwrap_or_default();
    let Blocker { role, application, .. } = blocker;
    let (head, of_role, ends) = match (blocker.pid, &blocker.prepared) {
        (None, name) => (
            format!("blocked by a prepared transaction{since}"),
            format!("role {role}"),
            name.as_deref().map(ends_of_prepared).unwrap_or_default(),
        ),
        // Without its age, it may be one of many short transactions.
        (Some(pid), _) if blocker.since.is_none() => (
            format!("perhaps blocked by pid {pid}: this role cannot see its age"),
            format!("role {role}, application {application}{state}"),
            vec!["  to see its age: plan as a member of pg_read_all_stats".into()],
        ),
        (Some(pid), _) => (
            format!("blocked by pid {pid}{since}"),
            format!("role {role}, application {application}{state}"),
            vec![format!("  to end it: select pg_terminate_backend({pid})")],
        ),
    };
    let lines = [String::new(), head, format!("  {of_role}"), format!("  it holds {relations}")];
    lines.into_iter().chain(ends).collect()
}

fn ends_of_prepared(name: &str) -> Vec<String> {
    let name = name.replace('\'', "''");
    let name = match name.contains('\\') {
        true => format!("E'{}'", name.replace('\\', "\\\\")),
        false => format!("'{name}'"),
    };
    vec![
        format!("  to end it: rollback prepared {name}"),
        format!("  if its manager says so: commit prepared {name}"),
    ]
}

fn shortened(statement: &str) -> String {
    let text = statement.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}
