//! The test of the test: breaks of the SQL that the state machine must find.
//!
//! `tests/breaks` lists them: those that any short run must find, and those that show only when several
//! things come together.

use tuskline_breaks::Breaks;

use crate::machine::Run;
use crate::tally;

/// The SQL of a break that has this name for the model.
pub fn harm(name: &str) -> String {
    Breaks::read().unwrap().sql_of("model", name).unwrap()
}

/// The breaks that stayed unseen in so many sequences.
fn unseen(name: &str, cases: u32) -> Vec<String> {
    let breaks = Breaks::read().unwrap();
    let mut unseen = Vec::new();
    for one in breaks.of("model", name) {
        let what = one.text.trim_end();
        let (found, tally) =
            Run { harm: &breaks.sql(one).unwrap(), cases, seed: 1, shrinks: 0 }.go();
        let why = found.as_deref().and_then(|why| why.lines().next()).unwrap_or("not found");
        let why: String = why.chars().take(120).collect();
        let json =
            serde_json::json!({"break": what, "found": found.is_some(), "steps": tally.steps});
        tally::print(format!("{what}: {} steps: {why}", tally.steps), &json);
        unseen.extend(found.is_none().then(|| what.to_owned()));
    }
    unseen
}

#[test]
fn every_break_is_found() {
    let unseen = unseen("short", 40);
    assert!(unseen.is_empty(), "stayed unseen: {unseen:?}");
}

#[test]
#[ignore = "takes long runs: a minute"]
fn every_subtle_break_is_found() {
    let unseen = unseen("long", 300);
    assert!(unseen.is_empty(), "stayed unseen: {unseen:?}");
}
