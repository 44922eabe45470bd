//! The demo, as a newcomer runs it: it loses nothing, tells no lie and leaves nothing running.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::{File, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use program::{Call, RUN_LIMIT, copy, open_dir, processes_in};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tempfile::TempDir;

#[path = "../../../tests/it/support/help.rs"]
mod help;
#[path = "../../../tests/it/support/program.rs"]
mod program;

const DEMO: &str = env!("CARGO_BIN_EXE_tuskline-demo");

/// The user and group `nobody`.
const NOBODY: u32 = 65_534;

/// Files to check, a data directory and a place for temporary files, each of the test's own.
struct Site {
    dir: TempDir,
    files: u64,
}

impl Site {
    /// So many files of so many bytes of nothing, and one with letters.
    fn new(files: u64, bytes: u64) -> Self {
        let site = Self { dir: open_dir(), files };
        for place in ["files", "files/below", "tmp"] {
            std::fs::create_dir(site.dir.path().join(place)).unwrap();
        }
        for number in 1..files {
            let path = site.files().join(format!("below/{number}"));
            File::create(path).unwrap().set_len(bytes).unwrap();
        }
        std::fs::write(site.files().join("letters"), "abc").unwrap();
        site
    }

    fn files(&self) -> PathBuf {
        self.dir.path().join("files")
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data dir")
    }

    fn call(&self, arguments: &[&str]) -> Call {
        self.at_home(Call::of(Path::new(DEMO), arguments))
    }

    fn demo(&self) -> Call {
        self.call(&["--path", self.files().to_str().unwrap()])
    }

    /// A run that prints its report as JSON, and no warning: a machine that is busy may cost a worker a heartbeat.
    fn figures(&self) -> Call {
        self.demo().arg("--json").env("TUSKLINE_LOG", "error")
    }

    /// The report of a run; a run that does not end tells its log.
    fn report(&self) -> Value {
        self.reported(self.demo())
    }

    fn reported(&self, demo: Call) -> Value {
        let log = "info,tokio_postgres=warn";
        let ran = demo.arg("--json").env("TUSKLINE_LOG", log).run();
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
        let report = serde_json::from_str(&ran.out).unwrap();
        self.check(&report);
        report
    }

    fn at_home(&self, call: Call) -> Call {
        call.env("TUSKLINE_DATA_DIR", self.data()).env("TMPDIR", self.dir.path().join("tmp"))
    }

    /// Fails if a process of a demo runs, or if one left something in the place for temporary files.
    fn is_quiet(&self) {
        assert_eq!(processes_in(self.dir.path()), [""; 0]);
        let left: Vec<_> = std::fs::read_dir(self.dir.path().join("tmp")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }

    /// What every honest report on this site says.
    fn check(&self, report: &Value) {
        let count =
            |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{name}: {report}"));
        assert_eq!(count("scheduled"), self.files, "{report}");
        assert_eq!(count("succeeded") + count("dead"), self.files, "{report}");
        assert_eq!(count("checksums_verified"), count("succeeded"), "{report}");
        assert_eq!((count("lost"), count("overlaps")), (0, 0), "{report}");
        assert_eq!((count("killed_workers"), count("checksums_wrong")), (1, 0), "{report}");
    }
}

#[test]
fn the_demo_loses_nothing_although_a_worker_is_killed() {
    // Large enough for the killed worker to be in the middle of something, most of the time.
    let site = Site::new(60, 4 << 20);
    let report = site.figures().run().json();
    site.check(&report);
    let keys: Vec<&str> = report.as_object().unwrap().keys().map(String::as_str).collect();
    let promised = [
        "dead",
        "killed_workers",
        "lost",
        "overlaps",
        "queue_wait_ms",
        "rescued",
        "scheduled",
        "start_latency_ms",
        "succeeded",
        "tasks_per_s",
    ];
    let extra = ["checksums_verified", "checksums_wrong", "left_out", "retried", "seconds"];
    let mut expected = [promised.as_slice(), &extra].concat();
    expected.sort_unstable();
    assert_eq!(keys, expected);
    // On a machine so busy that the queue never runs empty, there is no start latency.
    for waits in [&report["start_latency_ms"], &report["queue_wait_ms"]] {
        let keys = waits.as_object().map(|waits| waits.keys().cloned().collect::<Vec<_>>());
        assert!(keys.is_none_or(|keys| keys == ["p50", "p99"]), "{waits}");
    }
    assert_eq!((&report["dead"], &report["left_out"]), (&0.into(), &0.into()));
    // How many depends on what it held at that moment, which may be nothing.
    assert!(report["rescued"].is_u64(), "{report}");
    assert!(report["tasks_per_s"].as_f64() > Some(0.0), "{report}");
    site.is_quiet();
}

#[test]
fn the_worker_is_killed_in_the_middle_of_the_run() {
    // Large enough for the run to take longer than many looks at it, on a busy machine as well.
    let site = Site::new(120, 16 << 20);
    let ran = site.demo().run();
    assert_eq!(ran.code, 0, "{}", ran.err);
    let reported = ran.err.lines().find_map(|line| line.split_once("(SIGKILL), ")).unwrap().1;
    let done: u64 = reported.strip_suffix(" tasks done").unwrap().parse().unwrap();
    assert!(
        (40..=70).contains(&done),
        "a third of 120, and what ended between two looks: {reported}"
    );
    site.is_quiet();
}

#[test]
fn a_second_run_uses_the_data_directory_of_the_first() {
    let site = Site::new(12, 100);
    let cluster = || site.data().join("data/PG_VERSION").metadata().unwrap().ino();
    site.report();
    let made = cluster();
    site.report();
    assert_eq!(cluster(), made, "it is not made anew");
    let ask = "select count(*), count(*) filter (where status = 'success') from tuskline.tasks";
    let psql = site.call(&["psql", "--", "-X", "-A", "-t", "-c", ask]);
    assert_eq!(psql.run().fine(), "12|12\n", "what the last run left");
    site.is_quiet();
}

#[test]
fn two_demos_at_the_same_time_both_succeed() {
    let site = Site::new(20, 100);
    let (one, two) = (site.figures().start(), site.figures().start());
    for demo in [one, two] {
        site.check(&demo.end().json());
    }
    site.is_quiet();
}

#[test]
fn a_person_is_shown_what_happens_and_a_summary_of_eighty_columns() {
    let site = Site::new(12, 100);
    let ran = site.demo().run();
    assert_eq!(ran.code, 0, "{}", ran.err);
    for text in ["of 12 done", "killed worker", "SIGKILL", "Nothing is left running"] {
        assert!(ran.err.contains(text), "{text}: {}", ran.err);
    }
    for row in ["│ scheduled        12 ", "│ lost             0 ", "│ overlaps         0 "] {
        assert!(ran.out.contains(row), "{row}: {}", ran.out);
    }
    let wide: Vec<&str> = ran.out.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(wide.is_empty(), "{wide:#?}");
    site.is_quiet();
}

#[test]
fn a_file_that_cannot_be_read_ends_dead_and_is_not_lost() {
    let site = Site::new(12, 100);
    let closed = site.files().join("letters");
    std::fs::set_permissions(&closed, Permissions::from_mode(0o000)).unwrap();
    // Nothing is closed to root: the demo runs as another user, which must be able to read the binary.
    let demo = if rustix::process::getuid().is_root() {
        std::fs::create_dir(site.data()).unwrap();
        for path in [site.data(), site.dir.path().join("tmp")] {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let binary = site.dir.path().join("tuskline-demo");
        copy(Path::new(DEMO), &binary);
        let files = site.files();
        let demo = Call::of(&binary, &["--path", files.to_str().unwrap()]);
        site.at_home(demo).with(|command| {
            command.uid(NOBODY).gid(NOBODY);
        })
    } else {
        site.demo()
    };
    let report = site.reported(demo);
    assert_eq!((&report["succeeded"], &report["dead"]), (&11.into(), &1.into()), "{report}");
    assert!(report["retried"].as_u64() > Some(1), "{report}");
    site.is_quiet();
}

#[test]
fn without_files_there_is_an_error_and_nothing_is_started() {
    let site = Site::new(2, 100);
    let refused = |path: &Path| site.call(&["--path", path.to_str().unwrap()]).run().refusal();
    let named = |path: &Path| path.display().to_string();
    let empty = site.dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    assert_eq!(refused(&empty), format!("1 error: no files to check in {}", named(&empty)));
    let missing = site.dir.path().join("missing");
    let said = refused(&missing);
    assert!(
        said.starts_with(&format!("1 error: cannot read {}: No such", named(&missing))),
        "{said}"
    );
    let file = site.files().join("letters");
    assert_eq!(refused(&file), format!("1 error: {} is not a directory", named(&file)));
    assert!(!site.data().exists());
    site.is_quiet();
}

#[test]
fn what_is_left_out_is_counted() {
    let site = Site::new(3, 100);
    let large = File::create(site.files().join("large")).unwrap();
    large.set_len((16 << 20) + 1).unwrap();
    let report = site.figures().arg("--max-bytes").arg("16777216").run().json();
    assert_eq!(report["left_out"], 1);
    let report = site.figures().run().json();
    assert_eq!((&report["scheduled"], &report["left_out"]), (&4.into(), &0.into()), "{report}");
    std::fs::create_dir(site.files().join(".git")).unwrap();
    std::fs::write(site.files().join(".git/config"), "").unwrap();
    let report = site.figures().arg("--limit").arg("2").run().json();
    assert_eq!((&report["scheduled"], &report["left_out"]), (&2.into(), &2.into()), "{report}");
}

#[test]
fn in_a_work_tree_only_what_git_tracks_is_hashed() {
    let site = Site::new(3, 100);
    let scheduled = || site.figures().run().json()["scheduled"].as_u64().unwrap();
    // Cargo marks its directory, and so does each cache.
    std::fs::create_dir(site.files().join("target")).unwrap();
    std::fs::write(site.files().join("target/CACHEDIR.TAG"), "").unwrap();
    std::fs::write(site.files().join("target/built"), "").unwrap();
    assert_eq!(scheduled(), 3, "no work tree");
    let git = |arguments: &str| {
        let mut git = Command::new("git");
        git.arg("-C").arg(site.files()).args(arguments.split(' '));
        git.env_remove("GIT_DIR").env_remove("GIT_WORK_TREE").env_remove("GIT_INDEX_FILE");
        assert!(git.output().unwrap().status.success(), "{arguments}");
    };
    git("init -q");
    assert_eq!(scheduled(), 3, "git tracks nothing yet");
    git("add letters below/1");
    assert_eq!(scheduled(), 2);
    site.is_quiet();
}

#[test]
fn ctrl_c_midway_leaves_nothing_running() {
    let site = Site::new(60, 100);
    for signal in [Signal::INT, Signal::TERM] {
        // A terminal signals everybody in the foreground, the workers as well.
        let mut demo = site
            .demo()
            .with(|command| {
                command.process_group(0);
            })
            .start();
        demo.until_said("killed worker");
        let group = Pid::from_raw(i32::try_from(demo.pid()).unwrap()).unwrap();
        kill_process_group(group, signal).unwrap();
        let ran = demo.end();
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{}", ran.err);
        assert!(ran.err.ends_with("error: interrupted\n"), "{}", ran.err);
        site.is_quiet();
    }
    // And the next run does not mind.
    site.report();
}

#[test]
fn a_killed_demo_takes_everything_with_it() {
    let site = Site::new(60, 100);
    let mut demo = site.demo().start();
    demo.until_said("killed worker");
    demo.signal(Signal::KILL);
    assert_eq!(demo.end().code, -1);
    let deadline = Instant::now() + RUN_LIMIT;
    while !processes_in(site.dir.path()).is_empty() {
        assert!(Instant::now() < deadline, "{:?}", processes_in(site.dir.path()));
        std::thread::sleep(Duration::from_millis(10));
    }
    site.report();
}

#[test]
fn a_data_directory_of_another_major_is_refused() {
    let site = Site::new(2, 100);
    let data = site.data().join("data");
    std::fs::create_dir_all(&data).unwrap();
    if rustix::process::getuid().is_root() {
        chown(&data, Some(NOBODY), None).unwrap();
    }
    std::fs::write(data.join("PG_VERSION"), "99\n").unwrap();
    let said = site.demo().run().refusal();
    let expected = "was made by PostgreSQL 99, but the binaries found are";
    assert!(said.starts_with("1 error: ") && said.contains(expected), "{said}");
}

/// After a change: `INSTA_UPDATE=always cargo test -p tuskline-demo -- every_command_has_a_help`.
#[test]
fn every_command_has_a_help_that_fits_eighty_columns() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help");
    help::check_help(Path::new(DEMO), Path::new(dir));
}
