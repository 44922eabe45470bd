//! Which process may be one that was asked for and has not said so.

use std::collections::HashSet;
use std::process::{Command, Stdio};

use super::{PROCESS, end_leftovers, since_boot, stat};

#[test]
fn only_a_process_younger_than_a_request_may_come_of_it() {
    let before = since_boot();
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let process = stat(child.id()).unwrap();
    let of_child = |asked| process.may_come_of(asked);
    assert!(of_child(Some(before)), "asked at {before:?}: {process:?}");
    assert!(!of_child(None), "{process:?}");
    // A request that came when it was there for more than a tick.
    let after = process.started_by + process.started_by.abs_diff(before);
    assert!(!of_child(Some(after)), "asked at {after:?}: {process:?}");
    assert_eq!(process.parent, std::process::id());
    child.kill().unwrap();
    child.wait().unwrap();
}

/// It has its mark before the controller hears of it.
#[test]
fn a_process_that_was_asked_for_is_left_alone_before_it_is_known() {
    let before = since_boot();
    let script = format!("{PROCESS}=$$ exec cat");
    let mut shell = Command::new("sh");
    let mut child = shell.args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap();
    while super::mark(child.id()).is_none() {
        std::thread::yield_now();
    }
    let (of, all) = (1, [stat(child.id()).unwrap()]);
    let mut end = |known: &[u32], asked| {
        let known = HashSet::from_iter(known.iter().copied());
        let found = end_leftovers(&all, of, std::process::id(), &known, asked);
        (found, child.try_wait().unwrap().is_none())
    };
    assert_eq!(end(&[], Some(before)), (true, true), "it is looked at again");
    assert_eq!(end(&[all[0].pid], None), (false, true));
    assert!(end(&[], None).0);
    child.wait().unwrap();
}
