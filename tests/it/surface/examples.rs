//! The examples of the SDK work. Each runs to its end on a database with a server, and prints the
//! output that its head shows. `docs/examples.md` lists all of them.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::Db;
use crate::support::cli::{Call, TUSKLINE, on, url};

/// Examples that run at the same time: each one has a worker and a client, with connections of their own.
const AT_A_TIME: usize = 4;

/// Lines of an example.
const LINES: RangeInclusive<usize> = 30..=100;

/// A file of the folder.
struct Example {
    name: String,
    text: String,
}

impl Example {
    /// The output that its head shows.
    fn shown(&self) -> String {
        let head = self.text.lines().skip_while(|line| *line != "//! ```text").skip(1);
        let lines =
            head.map_while(|line| line.strip_prefix("//! ")).take_while(|line| *line != "```");
        lines.map(|line| format!("{line}\n")).collect()
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All of them, by name.
fn examples() -> Vec<Example> {
    let folder = std::fs::read_dir(root().join("worker-sdk/examples")).unwrap();
    let mut paths: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        Example { name, text: std::fs::read_to_string(path).unwrap() }
    };
    paths.into_iter().map(read).collect()
}

/// Builds them in the profile and the place of this test; the folder with the programs. Nothing is left to
/// build when all tests of the workspace were built, as `./x test` does.
pub fn build() -> PathBuf {
    let built = Path::new(TUSKLINE).parent().unwrap();
    let profile = match built.file_name().unwrap().to_str().unwrap() {
        "debug" => "dev",
        name => name,
    };
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--workspace", "--examples", "--profile", profile]);
    cargo.arg("--target-dir").arg(built.parent().unwrap()).current_dir(root());
    // cargo describes this package to its tests. The build of ring asks for some of that, and would run again.
    for name in std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()) {
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(name);
        }
    }
    let ran = cargo.output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    built.join("examples")
}

#[tokio::test]
async fn each_example_prints_what_its_head_shows() {
    let programs = build();
    let db = Db::new().await;
    let _server = on(&db.config, "serve").start();
    let mut wrong = Vec::new();
    for group in examples().chunks(AT_A_TIME) {
        let start = |one: &Example| {
            Call::of(&programs.join(&one.name), &[]).database(&url(&db.config)).start()
        };
        let running: Vec<_> = group.iter().map(start).collect();
        for (example, running) in group.iter().zip(running) {
            let (ran, shown) = (running.end(), example.shown());
            if (ran.code, ran.err.as_str(), ran.out.as_str()) != (0, "", shown.as_str()) {
                wrong.push(format!("{} shows\n{shown}\nand did\n{ran:#?}", example.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_example_is_on_the_page_and_can_be_copied() {
    let (mut wrong, mut names) = (Vec::new(), BTreeSet::new());
    for Example { name, text } in examples() {
        let lines = text.lines().count();
        let feature =
            ["sqlx", "otlp", "opentelemetry"].into_iter().find(|name| text.contains(name));
        let features = feature.map(|name| format!("--features {name} ")).unwrap_or_default();
        let run = format!(
            "//! TUSKLINE_DATABASE_URL=... cargo run -q -p tuskline-sdk {features}--example {name}\n"
        );
        for (rule, kept) in [
            ("has 30 to 100 lines", LINES.contains(&lines)),
            ("begins with a sentence about it", text.starts_with("//! ")),
            ("says how to run it", text.contains(&run)),
            (
                "returns its errors",
                !["unwrap()", "expect(", "panic!"].iter().any(|end| text.contains(end)),
            ),
        ] {
            wrong.extend((!kept).then(|| format!("{name}.rs {rule}")));
        }
        names.insert(name);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let page = include_str!("../../../docs/examples.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ["));
    let listed: Vec<_> = rows.filter_map(|row| row.split_once(']')).map(|(name, _)| name).collect();
    assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>().len(), listed.len(), "once each");
    let names: BTreeSet<_> = names.iter().map(String::as_str).collect();
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), names, "the page and the folder");
}
