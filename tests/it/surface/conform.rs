//! The conformance kit for executors, as a command. `.ci/conform` runs executors against it, and broken ones.

use std::collections::BTreeSet;
use std::path::Path;

use crate::support::cli::tuskline;

#[test]
fn the_kit_lists_each_of_its_files_within_eighty_columns() {
    let listed = tuskline(&["conform", "--list"]).run();
    assert_eq!(listed.code, 0, "{}", listed.err);
    assert!(listed.out.lines().all(|line| line.chars().count() <= 80), "{}", listed.out);
    let names = listed.out.lines().filter_map(|line| line.split(' ').next());
    let names: BTreeSet<String> =
        names.filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/cases");
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let files: BTreeSet<String> =
        files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(names, files);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/conformance.md");
    let page = std::fs::read_to_string(page).unwrap();
    let missing: Vec<_> =
        files.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/conformance.md lacks {missing:?}");
}

#[test]
fn a_case_that_there_is_not_is_a_wrong_call() {
    let ran = tuskline(&["conform", "--case", "dance", "--", "true"]).run();
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("there is no case dance"), "{}", ran.err);
}

#[test]
fn a_command_that_does_not_join_fails_and_is_asked_nothing_else() {
    let line = ["--json", "conform", "--case", "join", "claim", "--patience", "2s", "--", "true"];
    let ran = tuskline(&line).run();
    assert_eq!(ran.code, 1, "{}", ran.err);
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&report["failed"], &report["not_asked"]), (&1.into(), &1.into()), "{report}");
    let finding = &report["cases"][0]["findings"][0];
    assert_eq!(finding["expected"], "first: status success", "{report}");
    assert_eq!(finding["seen"], "it is enqueued", "{report}");
}
