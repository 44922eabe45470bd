//! `define`: lambdas with their settings, limits, gates and schedules, from a file.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use tuskline_sdk::verbs::{ALL_ROWS, DEFINE};

use super::global::Global;
use super::{arguments, database, output};

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

pub async fn run(global: &Global, args: DefineArgs) -> Result<()> {
    let definitions: Value = serde_json::from_str(&arguments::file(&args.file)?)?;
    let session = database::open(global).await?;
    let arguments = json!({
        "definitions": definitions, "version": args.app_version, "dry_run": args.dry_run,
    });
    let rows = DEFINE.row(session.client(), ALL_ROWS, &arguments).await?;
    let defined: Vec<Value> = serde_json::from_str(rows.get(0))?;
    if global.json {
        return Ok(output::put_json(&json!(defined))?);
    }
    let lines = defined.iter().flat_map(lines).collect();
    output::put_table(&["lambda", "outcome", "setting", "before", "after"], lines, "")?;
    if args.dry_run {
        output::put("nothing was changed: --dry-run")?;
    }
    Ok(())
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
