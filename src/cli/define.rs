//! `define`: lambdas with their settings, limits, gates and schedules, from a file.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};
use tuskline_sdk::verbs::{ALL_ROWS, DEFINE};

use super::global::{Global, Outcome};
use super::{database, output};

/// `define FILE`.
#[derive(Debug, Args)]
pub struct DefineArgs {
    /// JSON file with an array of definitions, see docs/definitions.md; - for standard input.
    file: PathBuf,
    /// Version of the application, as 1.4.2. A lambda that a newer version has defined is left alone.
    #[arg(long, value_name = "VERSION")]
    app_version: Option<String>,
    /// Change nothing, and show the changes.
    #[arg(long)]
    dry_run: bool,
}

pub async fn run(global: &Global, args: DefineArgs) -> Outcome {
    let definitions = read(&args.file)?;
    let session = database::open(global).await?;
    let arguments = json!({
        "definitions": definitions, "version": args.app_version, "dry_run": args.dry_run,
    });
    let rows = DEFINE.row(session.client(), ALL_ROWS, &arguments).await?;
    let defined: Vec<Value> = serde_json::from_str(rows.get(0))?;
    if global.json {
        output::put_json(&json!(defined))?;
        return Ok(ExitCode::SUCCESS);
    }
    let lines = defined.iter().flat_map(lines).collect();
    output::put_table(&["lambda", "outcome", "setting", "before", "after"], lines, "")?;
    if args.dry_run {
        output::put("nothing was changed: --dry-run")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn read(file: &Path) -> Result<Value> {
    let mut text = String::new();
    match file.as_os_str() == "-" {
        true => std::io::stdin().read_to_string(&mut text),
        false => std::fs::File::open(file).and_then(|mut file| file.read_to_string(&mut text)),
    }
    .with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not JSON", file.display()))
}

/// A line per change; a lambda without one has a line of its own.
fn lines(defined: &Value) -> Vec<Vec<String>> {
    let text = |value: &Value| match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    let (lambda, outcome) = (text(&defined["lambda"]), text(&defined["outcome"]));
    let line = |rest: [String; 3]| [[lambda.clone(), outcome.clone()].as_slice(), &rest].concat();
    match defined["changes"].as_object() {
        Some(changes) if !changes.is_empty() => changes
            .iter()
            .map(|(setting, change)| line([setting.clone(), text(&change[0]), text(&change[1])]))
            .collect(),
        _ => vec![line(Default::default())],
    }
}
