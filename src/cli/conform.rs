//! `conform`: runs an executor against the cases of the conformance kit, which are data (`conformance/cases`).
//!
//! It promises: each case has a controller and executors of its own, on a throw-away PostgreSQL. It judges by the
//! database and the wire. An executor is asked only for what its Join says that it serves.

mod case;
mod judge;
mod play;
mod stage;
mod subject;
mod wire;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::failure::{WrongCall, failed};
use super::global::{Global, Outcome};
use super::output::{clean, put, put_json, wrapped};
use crate::duration;
use case::Case;
use judge::{Abilities, Finding, judge};
use play::{Played, play};
use stage::Stage;
use subject::Program;

/// The case that shows what an executor can do.
const FIRST: &str = "join";
/// Columns before the sentence of a case, and of the sentence.
const BEFORE: usize = 36;
const SENTENCE: usize = 43;
/// Findings of a case that people are shown.
const FINDINGS: usize = 4;

/// Arguments of `conform`.
#[derive(Debug, Args)]
pub struct ConformArgs {
    /// Only these cases.
    #[arg(long, value_name = "NAME", num_args = 1..)]
    case: Vec<String>,
    /// List the cases, and run none.
    #[arg(long, conflicts_with_all = ["keep", "zygote"])]
    list: bool,
    /// Keep the wire logs and the controllers' logs, and say where.
    #[arg(long)]
    keep: bool,
    /// The command is a zygote: it forks the executors.
    #[arg(long)]
    zygote: bool,
    /// How long a step of a case may take.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration::parse)]
    patience: Duration,
    /// Command of an executor that serves the lambdas of the kit.
    #[arg(last = true, required_unless_present = "list", value_name = "COMMAND")]
    command: Vec<String>,
}

/// The end of a case.
enum Verdict {
    Passed(Duration),
    Failed(Duration, Vec<Finding>, String),
    NotAsked(String),
}

pub async fn run(global: &Global, args: ConformArgs, end: CancellationToken) -> Outcome {
    let cases = chosen(&args.case)?;
    if args.list {
        list(global, &cases)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut stage = Stage::build(args.keep).await?;
    let (command, is_zygote, patience) = (args.command, args.zygote, args.patience);
    let program = Program { command, is_zygote, patience };
    let played = tokio::select! {
        played = all(global, &mut stage, &program, &cases) => played,
        () = end.cancelled() => Err(failed("stopped before all cases were played")),
    };
    stage.end().await;
    let (verdicts, sdk) = played?;
    let place = args.keep.then(|| stage.dir.display().to_string());
    let any_failed = verdicts.iter().any(|(_, one)| matches!(one, Verdict::Failed(..)));
    report(global, &program, sdk, &verdicts, place)?;
    Ok(ExitCode::from(u8::from(any_failed)))
}

fn chosen(names: &[String]) -> Result<Vec<Case>> {
    let cases = Case::all()?;
    if let Some(unknown) = names.iter().find(|name| !cases.iter().any(|case| case.name == **name)) {
        let text = format!("there is no case {unknown}: `tuskline conform --list` shows them");
        return Err(WrongCall(text).into());
    }
    let is_chosen = |case: &Case| names.is_empty() || names.contains(&case.name);
    Ok(cases.into_iter().filter(is_chosen).collect())
}

fn list(global: &Global, cases: &[Case]) -> Result<()> {
    if global.json {
        let all = cases.iter().map(|case| json!({"case": case.name, "proves": case.proves}));
        return Ok(put_json(&all.collect())?);
    }
    for case in cases {
        put_line(&format!("{:<25}", case.name), 25, &case.proves, 54)?;
    }
    Ok(())
}

/// Plays the cases. The first one shows what the subject can do.
async fn all(
    global: &Global,
    stage: &mut Stage,
    program: &Program,
    cases: &[Case],
) -> Result<(Vec<(String, Verdict)>, Option<String>)> {
    let first = Case::all()?.into_iter().find(|case| case.name == FIRST);
    let mut abilities = Abilities::default();
    let mut verdicts = Vec::new();
    if let Some(first) = first {
        let played = play(stage, program, &first).await?;
        abilities.joined = played.wire.joined().pop();
        abilities.has_second_lane = played.wire.has_second_lane();
        let is_chosen = cases.iter().any(|case| case.name == FIRST);
        let verdict = verdict(&first, played);
        if is_chosen || matches!(verdict, Verdict::Failed(..)) {
            say(global, &first, &verdict)?;
            verdicts.push((first.name, verdict));
        }
    }
    for case in cases.iter().filter(|case| case.name != FIRST) {
        let verdict = match abilities.lack(case) {
            Some(lack) => Verdict::NotAsked(lack),
            None => verdict(case, play(stage, program, case).await?),
        };
        say(global, case, &verdict)?;
        verdicts.push((case.name.clone(), verdict));
    }
    Ok((verdicts, abilities.joined.and_then(|joined| joined.sdk)))
}

fn verdict(case: &Case, played: Played) -> Verdict {
    let findings = judge(case, &played);
    if findings.is_empty() {
        return Verdict::Passed(played.took);
    }
    Verdict::Failed(played.took, findings, played.said)
}

fn say(global: &Global, case: &Case, verdict: &Verdict) -> Result<()> {
    if global.json {
        return Ok(());
    }
    let (word, took) = match verdict {
        Verdict::Passed(took) => ("passed", format!("{:.1}", took.as_secs_f64())),
        Verdict::Failed(took, ..) => ("FAILED", format!("{:.1}", took.as_secs_f64())),
        Verdict::NotAsked(_) => ("not asked", String::new()),
    };
    let before = format!("{word:<10}{:<22}{took:>4}", case.name);
    match verdict {
        Verdict::NotAsked(lack) => put_line(&before, BEFORE + 1, lack, SENTENCE),
        Verdict::Passed(_) => put_line(&before, BEFORE + 1, &case.proves, SENTENCE),
        Verdict::Failed(_, findings, said) => {
            put_line(&before, BEFORE + 1, &case.proves, SENTENCE)?;
            for finding in findings.iter().take(FINDINGS) {
                put_finding(finding)?;
            }
            if let Some(more @ 1..) = findings.len().checked_sub(FINDINGS) {
                put(&format!("  and {more} more, which --json prints"))?;
            }
            let lines: Vec<&str> = said.lines().collect();
            for line in &lines[lines.len().saturating_sub(6)..] {
                put(&format!("    log {}", clean(line)))?;
            }
            Ok(())
        }
    }
}

fn put_finding(finding: &Finding) -> Result<()> {
    put_line("  expected", 11, &clean(&finding.expected), 68)?;
    put_line("  seen", 11, &clean(&finding.seen), 68)?;
    for line in &finding.wire {
        put(&format!("    {}", clean(line)))?;
    }
    Ok(())
}

/// A line, and the rest of its text below.
fn put_line(before: &str, column: usize, text: &str, width: usize) -> Result<()> {
    let mut lines = wrapped(text, width).into_iter();
    let first = lines.next().unwrap_or_default();
    put(format!("{before:<column$}{first}").trim_end())?;
    for line in lines {
        put(&format!("{:column$}{line}", ""))?;
    }
    Ok(())
}

fn report(
    global: &Global,
    program: &Program,
    sdk: Option<String>,
    verdicts: &[(String, Verdict)],
    place: Option<String>,
) -> Result<()> {
    let mut counts = BTreeMap::from([("passed", 0), ("failed", 0), ("not_asked", 0)]);
    let cases = verdicts.iter().map(|(name, verdict)| {
        let (word, case) = as_json(name, verdict);
        counts.entry(word).and_modify(|count| *count += 1);
        case
    });
    let cases: Vec<Value> = cases.collect();
    if global.json {
        let mut all =
            json!({"command": program.command, "sdk": sdk, "cases": cases, "files": place});
        for (name, count) in counts {
            all[name] = count.into();
        }
        return Ok(put_json(&all)?);
    }
    let sdk = sdk.map(|sdk| format!(" ({sdk})")).unwrap_or_default();
    let (passed, failed) = (counts["passed"], counts["failed"]);
    put(&format!("{passed} passed, {failed} failed, {} not asked{sdk}", counts["not_asked"]))?;
    place.map_or(Ok(()), |place| Ok(put(&format!("the wire logs are in {place}"))?))
}

fn as_json(name: &str, verdict: &Verdict) -> (&'static str, Value) {
    let ms = |took: &Duration| u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    match verdict {
        Verdict::Passed(took) => {
            ("passed", json!({"case": name, "result": "passed", "took_ms": ms(took)}))
        }
        Verdict::Failed(took, findings, said) => (
            "failed",
            json!({"case": name, "result": "failed", "took_ms": ms(took), "findings": findings,
                   "log": said}),
        ),
        Verdict::NotAsked(lack) => {
            ("not_asked", json!({"case": name, "result": "not_asked", "why": lack}))
        }
    }
}
