//! `check-history` as people and scripts call it.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use tuskline_history::Event;

use crate::story::Story;

fn run(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_check-history")).arg(dir).args(args).output().unwrap()
}

fn written(story: &Story) -> TempDir {
    let dir = TempDir::new().unwrap();
    story.write(dir.path());
    dir
}

/// The row of task 1 is missing.
fn lost() -> Story {
    let mut story = Story::one_task();
    story.without(|event| matches!(event, Event::Row { .. }));
    story
}

#[test]
fn exit_codes_say_green_red_and_unreadable() {
    let code = |dir: &Path, args: &[&str]| run(dir, args).status.code();
    assert_eq!(code(written(&Story::one_task()).path(), &[]), Some(0));
    assert_eq!(code(written(&lost()).path(), &[]), Some(1));
    assert_eq!(code(TempDir::new().unwrap().path(), &[]), Some(2));
    assert_eq!(code(TempDir::new().unwrap().path(), &["--wrong"]), Some(2));
}

#[test]
fn people_get_a_table_of_80_columns_and_the_story_of_what_went_wrong() {
    let green = run(written(&Story::one_task()).path(), &[]);
    let text = String::from_utf8(green.stdout).unwrap();
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(text.contains("3 transitions replayed, 3 accepted"), "{text}");
    let red = run(written(&lost()).path(), &[]);
    let text = String::from_utf8(red.stdout).unwrap();
    assert!(text.contains("task 1: accepted by op 1, and there is no row"), "{text}");
    let starts: Vec<_> = text.lines().filter(|line| line.contains("body_start")).collect();
    assert!(starts.len() == 1 && starts[0].contains("pid 21"), "{text}");
}

#[test]
fn scripts_get_one_object() {
    let output = run(written(&lost()).path(), &["--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (key, value) in
        [("accepted", 1), ("executed", 1), ("lost", 1), ("overlaps", 0), ("replayed", 3)]
    {
        assert_eq!(report[key], value, "{key}");
    }
    for key in [
        "overlaps_stopped",
        "early",
        "unexplained_repeats",
        "stale_tried",
        "stale_refused",
        "stale_applied",
    ] {
        assert_eq!(report[key], 0, "{key}");
    }
    assert_eq!(report["recovery"]["worker_death"]["bound_ms"], 4000.0);
    assert_eq!(report["recovery"]["failover"]["ok"], true);
    assert_eq!(report["resumed"]["n"], 0);
    assert_eq!(report["upper95"]["I6"], 1.0);
    assert_eq!(report["upper95"]["I1"], Value::Null);
    assert_eq!(report["lateness"]["-"]["n"], 1);
    assert_eq!(report["invariants"][0]["id"], "I1");
    assert_eq!(report["invariants"][0]["details"][0]["task"], 1);
}

#[test]
fn one_task_can_be_looked_at() {
    let dir = written(&Story::one_task());
    let output = run(dir.path(), &["--task", "1"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let words = ["schedule ", "schedule_ok", "claimed", "body_start", "body_tick", "body_end"];
    let mut last = 0;
    for word in words {
        let place = text.find(word).unwrap_or_else(|| panic!("no {word} in {text}"));
        assert!(place >= last, "{text}");
        last = place;
    }
    let lines: Vec<_> = text.lines().collect();
    let place = |word: &str| lines.iter().position(|line| line.contains(word));
    // The database is put where it belongs, though it was exported after the end.
    assert!(
        place("to=success") > place("body_end") && place("to=success") < place("exit"),
        "{text}"
    );
    assert_eq!(run(dir.path(), &["--task", "5"]).status.code(), Some(2));
}

#[test]
fn lateness_can_be_judged_for_one_phase() {
    let dir = written(&Story::one_task());
    let output = run(dir.path(), &["--json", "--phase", "kills"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["lateness"], serde_json::json!({}));
}
