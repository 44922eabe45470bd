//! The doctor's report: for people, for programs, and for monitoring.
//!
//! Promises: piped, each finding is one line. On a terminal a line is at most as wide as the terminal; a page
//! and a command have lines of their own, and a command is never broken. For monitoring the first line is the
//! summary.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};

use serde_json::json;

use crate::cli::global::Global;
use crate::cli::{output, plugin};
use crate::doctor::{Finding, Verdict};

/// Columns before the name of what was examined.
const MARGIN: usize = 6;
/// Columns before the text of a finding. A longer name gets a line of its own.
const INDENT: usize = 26;

/// Writes the findings.
///
/// # Errors
/// Standard output cannot be written to.
pub fn put(global: &Global, findings: &[Finding]) -> io::Result<()> {
    if global.json {
        return output::put_json(&json!(findings));
    }
    if io::stdout().is_terminal() {
        return output::put(&text(findings, usize::from(output::width())));
    }
    let line = |f: &Finding| vec![word(f.verdict).into(), f.examined.clone().into(), one_line(f)];
    output::put_table(&["", "examined", "found"], findings.iter().map(line).collect(), "")
}

/// Writes the summary, then the findings that are not ok.
///
/// # Errors
/// As [`put`].
pub fn put_monitored(global: &Global, findings: &[Finding]) -> io::Result<()> {
    if global.json {
        return put(global, findings);
    }
    let mut text = summary(findings) + "\n";
    for finding in findings.iter().filter(|finding| finding.verdict != Verdict::Ok) {
        let line = format!("{} {}: {}", word(finding.verdict), finding.examined, one_line(finding));
        text += &(output::clean(&line) + "\n");
    }
    output::put(&text)
}

/// One line: the state, the first problem, and the counts as performance data.
fn summary(findings: &[Finding]) -> String {
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let (warn, fail) = (count(Verdict::Warn), count(Verdict::Fail));
    let (state, worst) = match (warn, fail) {
        (0, 0) => ("OK", Verdict::Ok),
        (_, 0) => ("WARNING", Verdict::Warn),
        _ => ("CRITICAL", Verdict::Fail),
    };
    let first = findings.iter().find(|f| f.verdict == worst && worst != Verdict::Ok);
    let worst_line = first.map_or(String::new(), |f| format!(": {}: {}", f.examined, f.said));
    let (ok, all) = (count(Verdict::Ok), findings.len());
    let line = plugin::line(state, &format!("{ok} of {all} lines ok{worst_line}"));
    format!("{line} | ok={ok} warn={warn} fail={fail}")
}

/// Verdict as it is printed. A failure stands out.
fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Ok => "ok",
        Verdict::Warn => "warn",
        Verdict::Fail => "FAIL",
    }
}

fn one_line(finding: &Finding) -> String {
    match (finding.page, &finding.command) {
        (Some(page), Some(command)) => format!("{}; see {page}: {command}", finding.said),
        _ => finding.said.clone(),
    }
}

/// The findings for a terminal.
fn text(findings: &[Finding], width: usize) -> String {
    let mut text = String::new();
    for finding in findings {
        let (name, said) = (output::clean(&finding.examined), output::clean(&finding.said));
        // At least two blanks follow the name. A longer name gets a line of its own.
        let fits = name.chars().count() + 2 <= INDENT - MARGIN;
        let head = match fits {
            true => format!("{:MARGIN$}{name:<1$}", word(finding.verdict), INDENT - MARGIN),
            false => format!("{:MARGIN$}{name}\n{:INDENT$}", word(finding.verdict), ""),
        };
        text += &head;
        let body = output::wrapped(&said, width.saturating_sub(INDENT).max(20));
        text += body.join(&format!("\n{:INDENT$}", "")).as_str();
        text.push('\n');
        let below = [finding.page.map(Cow::Borrowed), finding.command.clone()];
        for line in below.into_iter().flatten() {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{:INDENT$}{}", "", output::clean(&line));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Found;
    use crate::doctor::remedy;

    fn findings() -> Vec<Finding> {
        let long = "workers may take 102, servers have 1 and other applications 1 of 97 connections | now 9";
        vec![
            Finding::new("connection", Found::ok("database app at /run")),
            Finding::new(
                "connections",
                Found::warn(long, remedy::CONNECTIONS.with("connections", "300")),
            ),
            Finding::new("idle_in_transaction_session_timeout", Found::fail("0", remedy::IDLE)),
        ]
    }

    #[test]
    fn a_terminal_of_eighty_columns_breaks_no_command() {
        let text = text(&findings(), 80);
        assert!(text.lines().all(|line| line.trim_end() == line), "{text}");
        let wide = text.lines().filter(|line| line.chars().count() > 80);
        assert!(wide.clone().all(|line| line.contains("alter ")), "{text}");
        let expected = "\
ok    connection          database app at /run
warn  connections         workers may take 102, servers have 1 and other
                          applications 1 of 97 connections | now 9
                          docs/connections.md#how-many
                          alter system set max_connections = 300
FAIL  idle_in_transaction_session_timeout
                          0
";
        assert!(text.starts_with(expected), "{text}");
    }

    #[test]
    fn the_summary_names_the_worst_and_has_one_bar() {
        let line = summary(&findings());
        assert_eq!(
            line,
            "TUSKLINE CRITICAL - 1 of 3 lines ok: idle_in_transaction_session_timeout: 0 | ok=1 warn=1 fail=1"
        );
        let line = summary(&findings()[..2]);
        assert!(line.starts_with("TUSKLINE WARNING - 1 of 2 lines ok: connections: "), "{line}");
        assert_eq!(line.matches('|').count(), 1, "{line}");
        assert_eq!(summary(&findings()[..1]), "TUSKLINE OK - 1 of 1 lines ok | ok=1 warn=0 fail=0");
    }
}
