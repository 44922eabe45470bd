//! The tests of the tests: every check has been seen red.
//!
//! `mutants.txt` lists breaks of the SQL with the tests that must fail for each. The break is made in
//! the template of a run of its own, so nothing is built again.

use std::collections::BTreeSet;
use std::process::Command;

/// The harm that a run does to its template, as SQL.
pub const HARM: &str = "TUSKLINE_TEST_HARM";

/// What a run says whose harm was not done, because the text to break is not there, or else.
pub const NOT_DONE: &str = "the harm was not done";

/// Tests that no break of our SQL turns red, each for a reason.
const NOT_OURS: &[&str] = &[
    // PostgreSQL's own promises.
    "scheduling::a_transaction_that_rolls_back_leaves_nothing",
    // Before version 17 the type refuses what the test gives.
    "bad_input::an_infinite_duration_is_refused_by_every_server",
    // Runs a migration.
    "dead_letters::who_died_before_there_was_a_list_is_on_it",
    // Compares files.
    "matrix::the_documents_show_the_table_of_the_snapshot",
    "unique_keys::the_readme_shows_the_table_of_the_snapshot",
    "mutants::every_check_has_been_seen_red",
    "mutants::every_test_is_listed_with_a_break",
];

/// Files whose tests are of Rust, not of the SQL.
const OF_RUST: &[&str] = &[
    "bench::",
    "cli::",
    "clock_steps::",
    "crash_recovery::",
    "demo::",
    "doubtful_commits::",
    "drain::",
    "failures::",
    "fenced_bodies::",
    "held_results::",
    "long_tasks::",
    "lost_answers::",
    "many::",
    "no_concurrent_workers::",
    "owners::",
    "periodic_servers::",
    "priorities::",
    "readme::",
    "support::",
    "testing_kit::",
    "wake_up::",
    "worker_chains::",
    "worker_runs::",
];

const LIST: &str = include_str!("mutants.txt");

/// One break and the tests that see it.
struct Mutant {
    harm: String,
    seen_by: Vec<&'static str>,
}

fn mutants() -> Vec<Mutant> {
    let blocks = LIST.split("\n\n").filter(|block| block.contains("\n! "));
    blocks.map(|block| mutant(block.trim())).collect()
}

fn mutant(block: &'static str) -> Mutant {
    let (mut harm, mut seen_by) = (String::new(), Vec::new());
    let (mut place, mut from) = (("in", ""), "");
    for line in block.lines() {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("in", name) => place = ("in", name),
            ("view", name) => place = ("view", name),
            ("sql", statement) => harm.push_str(statement),
            ("-", text) => from = text.trim(),
            ("+", text) => harm.push_str(&replace(place, from, text.trim())),
            ("!", test) => seen_by.push(test),
            _ => panic!("not understood: {line}"),
        }
    }
    Mutant { harm, seen_by }
}

/// SQL that puts `to` in the place of `from` in a function or a view.
fn replace((kind, name): (&str, &str), from: &str, to: &str) -> String {
    let [lead, text] = match kind {
        "view" => [
            format!("create or replace view tuskline.{name} as "),
            format!("pg_get_viewdef('tuskline.{name}'::regclass)"),
        ],
        _ => [String::new(), format!("pg_get_functiondef('tuskline.{name}'::regproc)")],
    };
    format!(
        "do $harm$ declare t text := {text}; begin
           if strpos(t, $f${from}$f$) = 0 then raise exception 'no such text: %', $f${from}$f$; end if;
           execute '{lead}' || replace(t, $f${from}$f$, $f${to}$f$); perform tuskline.make_leaf_verbs(); end $harm$;\n"
    )
}

/// Runs the tests of a mutant under its harm; complaints about those that stayed green.
fn still_green(mutant: &Mutant) -> Vec<String> {
    let run = Command::new(std::env::current_exe().unwrap())
        .arg("--exact")
        .args(&mutant.seen_by)
        .env(HARM, &mutant.harm)
        .env("INSTA_UPDATE", "no")
        .output()
        .unwrap();
    let said = [run.stdout, run.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    if let Some(line) = said.lines().find(|line| line.contains(NOT_DONE)) {
        return vec![format!("{line}\n{}", mutant.harm)];
    }
    let green = |test: &&&str| !said.contains(&format!("test {test} ... FAILED"));
    let complaint = |test| format!("{test} did not see\n{}", mutant.harm);
    mutant.seen_by.iter().filter(green).map(complaint).collect()
}

#[test]
#[ignore = "breaks the SQL five hundred times: some twelve minutes; TUSKLINE_BREAKS=text: only those with the text"]
fn every_check_has_been_seen_red() {
    let mut mutants = mutants();
    if let Ok(part) = std::env::var("TUSKLINE_BREAKS") {
        mutants.retain(|mutant| mutant.harm.contains(&part));
        assert!(!mutants.is_empty(), "no break contains {part:?}");
    }
    let half = mutants.len() / 2;
    let check = |some: &[Mutant]| some.iter().flat_map(still_green).collect::<Vec<_>>();
    let green = std::thread::scope(|scope| {
        let other = scope.spawn(|| check(&mutants[..half]));
        [check(&mutants[half..]), other.join().unwrap()].concat()
    });
    assert!(green.is_empty(), "{}", green.join("\n"));
}

#[test]
fn every_test_is_listed_with_a_break() {
    let run = Command::new(std::env::current_exe().unwrap()).arg("--list").output().unwrap();
    let listed = String::from_utf8(run.stdout).unwrap();
    let of_sql = |test: &&str| !OF_RUST.iter().any(|file| test.starts_with(file));
    let tests: BTreeSet<_> =
        listed.lines().filter_map(|line| line.strip_suffix(": test")).filter(of_sql).collect();
    let mutants = mutants();
    let mut seen: BTreeSet<_> = mutants.iter().flat_map(|mutant| mutant.seen_by.clone()).collect();
    let unknown: Vec<_> = seen.difference(&tests).collect();
    assert!(unknown.is_empty(), "no such test: {unknown:?}");
    seen.extend(NOT_OURS);
    let unseen: Vec<_> = tests.difference(&seen).collect();
    assert!(unseen.is_empty(), "never seen red: {unseen:?}");
}
