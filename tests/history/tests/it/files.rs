//! The form that a history needs to be judged at all.

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use tuskline_history::{Actor, Event, Writer, check};

use crate::story::{CLIENT, Story};

fn written(story: &Story) -> TempDir {
    let dir = TempDir::new().unwrap();
    story.write(dir.path());
    dir
}

fn append(dir: &Path, text: &str) {
    let path = dir.join(format!("{CLIENT}.jsonl"));
    let before = fs::read_to_string(&path).unwrap();
    fs::write(path, before + text).unwrap();
}

fn refusal(dir: &Path) -> String {
    format!("{:#}", check(dir).unwrap_err())
}

#[test]
fn a_last_line_may_be_cut_short() {
    let dir = written(&Story::one_task());
    append(dir.path(), r#"{"at":5000000,"e":"schedule","op":9,"#);
    let report = check(dir.path()).unwrap();
    assert!(report.ok, "{report}");
    assert_eq!(report.cut_lines, 1);
}

#[test]
fn a_last_line_that_only_lacks_its_newline_counts() {
    let dir = written(&Story::one_task());
    let line = r#"{"at":5000000,"e":"schedule_ok","op":1,"ids":[77]}"#;
    append(dir.path(), line);
    let report = check(dir.path()).unwrap();
    assert_eq!((report.lost, report.cut_lines), (1, 0));
}

#[test]
fn a_torn_line_elsewhere_is_an_error_that_says_where() {
    let dir = written(&Story::one_task());
    append(dir.path(), "{\"at\":5000000,\"e\":\"sche\n{\"at\":5000001,\"e\":\"exit\"}\n");
    let refusal = refusal(dir.path());
    assert!(refusal.contains(&format!("{CLIENT}.jsonl:4: not an event")), "{refusal}");
}

#[test]
fn a_whole_last_line_that_is_no_event_is_an_error() {
    let dir = written(&Story::one_task());
    append(dir.path(), "{\"at\":5000000,\"e\":\"never_heard_of\"}\n");
    assert!(refusal(dir.path()).contains("never_heard_of"));
}

#[test]
fn an_empty_directory_proves_nothing() {
    let dir = TempDir::new().unwrap();
    assert!(refusal(dir.path()).contains("nothing was recorded"));
    fs::write(dir.path().join("notes.txt"), "no history").unwrap();
    assert!(refusal(dir.path()).contains("nothing was recorded"));
    assert!(check(&dir.path().join("missing")).is_err());
}

#[test]
fn a_history_without_a_scheduled_task_proves_nothing() {
    let dir = written(&Story::idle());
    assert!(refusal(dir.path()).contains("nothing was recorded"));
}

#[test]
fn a_history_without_settings_cannot_be_judged() {
    let mut story = Story::one_task();
    story.without(|event| matches!(event, Event::Settings(_)));
    let dir = written(&story);
    assert!(refusal(dir.path()).contains("settings"));
}

#[test]
fn a_file_that_does_not_say_whose_it_is_is_an_error() {
    let mut story = Story::one_task();
    story.without(|event| matches!(event, Event::Opened { pid: CLIENT, .. }));
    let refusal = refusal(written(&story).path());
    assert!(refusal.contains(&format!("{CLIENT}.jsonl:1")), "{refusal}");
}

#[test]
fn other_files_are_none_of_ours() {
    let dir = written(&Story::one_task());
    fs::write(dir.path().join("server.log"), "{torn\n").unwrap();
    assert!(check(dir.path()).unwrap().ok);
}

#[test]
fn what_the_writer_writes_can_be_read() {
    let dir = written(&Story::one_task());
    let writer = Writer::open(dir.path(), Actor::Client).unwrap();
    let key = Some("a".to_owned());
    let lambda = "mail".to_owned();
    let (tasks, delay_ms, ordering_key, chain) = (2, 0, None, false);
    let schedule = Event::Schedule { op: 8, lambda, tasks, delay_ms, key, ordering_key, chain };
    writer.note(schedule);
    writer.note(Event::ScheduleFail { op: 8, why: "refused".to_owned() });
    let before = Story::one_task().report().events;
    assert_eq!(check(dir.path()).unwrap().events, before + 3);
}
