//! A page under drill: its blocks run section by section, as an operator at a shell runs them.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{directory_of, page};
use crate::support::cli::TUSKLINE;
use crate::support::page::{Block, blocks};

/// The shell of an operator.
pub const SHELL: &str = "/bin/sh";

/// A page whose blocks have to run, each once and in order.
pub struct Runbook {
    name: String,
    sections: VecDeque<(String, Vec<Block>)>,
    /// Variables of the operator's shell. psql has them by their names in small letters.
    values: BTreeMap<String, String>,
    /// PostgreSQL's programs.
    programs: PathBuf,
}

/// The standard output of a section's commands.
pub type Said = String;

/// The findings of the doctor that are ok, by the lines of a section's output.
pub fn ok_lines(said: &str) -> Vec<&str> {
    said.lines()
        .filter_map(|line| line.strip_prefix("ok ")?.trim_start().split("  ").next())
        .collect()
}

/// Rows of each query, as psql counts them below its table.
pub fn row_counts(said: &str) -> Vec<i64> {
    let count = |line: &str| line.strip_prefix('(')?.split_once(" row")?.0.parse().ok();
    said.lines().filter_map(count).collect()
}

impl Runbook {
    /// Opens a page for an operator of this database.
    pub fn open(name: &str, programs: &Path, url: &str) -> Self {
        let sections = sections(&page(name));
        assert!(!sections.is_empty(), "{name} has blocks");
        let (name, programs) = (name.to_owned(), programs.to_path_buf());
        let mut book = Self { name, sections, values: BTreeMap::new(), programs };
        book.set("TUSKLINE_DATABASE_URL", url);
        book
    }

    /// Sets a variable that the page names.
    pub fn set(&mut self, name: &str, value: impl ToString) {
        self.values.insert(name.to_owned(), value.to_string());
    }

    /// Runs the next section that has blocks, which must be this one.
    pub async fn perform(&mut self, heading: &str) -> Said {
        self.run(heading, &|| Command::new(SHELL), true).await
    }

    /// The same in a shell on the server's machine, by the account of the server.
    pub async fn perform_there(&mut self, shell: &dyn Fn() -> Command, heading: &str) -> Said {
        self.run(heading, shell, true).await
    }

    /// Runs the next section. Its only command must report a fault by its exit code.
    pub async fn shows(&mut self, heading: &str) -> Said {
        self.run(heading, &|| Command::new(SHELL), false).await
    }

    /// Passes over the next section, which the page makes depend on the case.
    pub fn skip(&mut self, heading: &str) {
        let (next, _) = self.sections.pop_front().unwrap_or_default();
        assert_eq!(next, heading, "the next section of {}", self.name);
    }

    /// Ends the drill: nothing of the page is left.
    pub fn close(self) {
        let left: Vec<_> = self.sections.iter().map(|(heading, _)| heading).collect();
        assert!(left.is_empty(), "{}: not performed: {left:?}", self.name);
    }

    async fn run(&mut self, heading: &str, shell: &dyn Fn() -> Command, well: bool) -> Said {
        let (next, blocks) = self.sections.pop_front().unwrap_or_default();
        assert_eq!(next, heading, "the next section of {}", self.name);
        let mut said = String::new();
        for block in blocks {
            let place = format!("{}:{}", self.name, block.line);
            let (command, input) = self.command(&block, shell());
            let ran = tokio::task::spawn_blocking(move || output(command, &input)).await.unwrap();
            let out = String::from_utf8_lossy(&ran.stdout);
            let err = String::from_utf8_lossy(&ran.stderr);
            assert_eq!(ran.status.success(), well, "{place}: {}\n{out}{err}", ran.status);
            // For the reader of a drill: cargo shows it with --nocapture.
            println!("{place}\n{}{out}{err}", block.text);
            said.push_str(&out);
        }
        said
    }

    /// The program that runs a block, and its standard input.
    fn command(&self, block: &Block, mut command: Command) -> (Command, String) {
        let ours = [directory_of(TUSKLINE), &self.programs].map(|dir| dir.display().to_string());
        let theirs = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{theirs}", ours.join(":")));
        command.env_remove("TUSKLINE_INSTALLATION").env("PGCONNECT_TIMEOUT", "10");
        command.envs(&self.values).current_dir("/");
        if block.language == "sh" {
            command.args(["-eu", "-c", &block.text]);
            return (command, String::new());
        }
        let psql = "exec psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 \"$@\" \
                    --dbname \"$TUSKLINE_DATABASE_URL\"";
        command.args(["-eu", "-c", psql, "psql"]);
        for (name, value) in &self.values {
            command.arg(format!("--set={}={value}", name.to_lowercase()));
        }
        (command, block.text.clone())
    }
}

/// The headings that have blocks which run, with these.
fn sections(text: &str) -> VecDeque<(String, Vec<Block>)> {
    let all = blocks(text);
    let within = |number: usize| {
        let inside = |block: &Block| {
            (block.line..=block.line + block.text.lines().count()).contains(&number)
        };
        all.iter().any(inside)
    };
    let mut sections = VecDeque::new();
    for (at, line) in text.lines().enumerate() {
        if line.starts_with('#') && !within(at + 1) {
            let heading = line.trim_start_matches('#').trim().to_owned();
            sections.push_back((at + 1, heading, Vec::new()));
        }
    }
    for block in all {
        let runs = block.runs().unwrap_or_else(|error| panic!("line {}: {error}", block.line));
        if runs && ["sh", "sql"].contains(&block.language.as_str()) {
            let before = sections.iter_mut().rev().find(|(line, ..)| *line < block.line);
            before.unwrap().2.push(block);
        }
    }
    let named = sections.into_iter().map(|(_, heading, blocks)| (heading, blocks));
    named.filter(|(_, blocks)| !blocks.is_empty()).collect()
}

fn output(mut command: Command, input: &str) -> std::process::Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It may end before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}
