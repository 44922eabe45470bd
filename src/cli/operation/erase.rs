//! The files of the archive, for an operation that erases tasks.
//!
//! The operation in the database runs first. After its end, no server writes lines of its tasks any
//! more.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::{Value, json};
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::wait::{self, Batch};
use crate::archive::{Directory, Erasure};
use crate::cli::global::{Global, Outcome};
use crate::cli::output;

/// The lines of a directory that hold tasks of an erase.
pub struct Lines<'a> {
    pub client: &'a Client,
    pub directory: &'a Directory,
    /// Which tasks the operation erases.
    pub choice: Value,
}

/// A file with such lines.
#[derive(Debug, Serialize)]
pub struct ErasedFile {
    #[serde(rename = "file")]
    name: String,
    #[serde(rename = "tasks")]
    lines: usize,
}

/// Follows the operation to its end, then rewrites the files that hold tasks of it.
pub async fn wait(global: &Global, operation: i64, lines: &Lines<'_>) -> Outcome {
    let last = wait::follow(lines.client, operation, None).await?;
    if !last.is_done() {
        wait::put(global, &last)?;
        return Ok(ExitCode::FAILURE);
    }
    let files = lines.erase().await?;
    put(global, &last, &files)?;
    for name in lines.directory.unfinished()? {
        eprintln!(
            "{name} is unfinished and was not read: delete it if no server writes archives here"
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn put(global: &Global, last: &Batch, files: &[ErasedFile]) -> Result<()> {
    if global.json {
        let mut value = json!(last);
        value["files"] = json!(files);
        return Ok(output::put_json(&value)?);
    }
    wait::put(global, last)?;
    for ErasedFile { name, lines } in files {
        output::put(&format!("{name}: erased {lines} lines"))?;
    }
    Ok(())
}

impl Lines<'_> {
    /// Counts the matching lines of each file that has some.
    pub async fn count(&self) -> Result<Vec<ErasedFile>> {
        self.each(false).await
    }

    /// Rewrites each file that has matching lines, without these.
    async fn erase(&self) -> Result<Vec<ErasedFile>> {
        self.each(true).await
    }

    async fn each(&self, rewrites: bool) -> Result<Vec<ErasedFile>> {
        let mut files = Vec::new();
        for name in self.directory.files()? {
            let mut erasure = self.directory.erasure(&name).await?;
            let lines = self.matching(&mut erasure, rewrites).await;
            let lines = lines.with_context(|| format!("in {name}"))?;
            let count = lines.len();
            if rewrites {
                erasure.rewrite_without(lines).await?;
            }
            if count > 0 {
                files.push(ErasedFile { name, lines: count });
            }
        }
        Ok(files)
    }

    /// Numbers of the matching lines of a file, from 0. With `forgets`, their unique keys are
    /// deleted from the database.
    async fn matching(&self, erasure: &mut Erasure, forgets: bool) -> Result<BTreeSet<u64>> {
        let sql = "select tuskline.lines_to_erase($1, c.lambda, c.collection, c.priority, c.ids, c.key, \
                     c.field, c.equals, c.created_from, c.created_to) \
                   from json_to_record($2) as c (lambda text, collection text, priority text, \
                     ids bigint[], key text, field text[], equals text, created_from timestamptz, \
                     created_to timestamptz)";
        let mut found = BTreeSet::new();
        let mut before = 0;
        loop {
            let lines = erasure.next_lines()?;
            if lines.is_empty() {
                return Ok(found);
            }
            let parameters: &[(&(dyn ToSql + Sync), Type)] =
                &[(&lines, Type::TEXT_ARRAY), (&self.choice, Type::JSON)];
            let rows = self.client.query_typed(sql, parameters).await?;
            let numbers = rows.iter().map(|row| row.get::<_, i64>(0).unsigned_abs() - 1);
            let numbers: BTreeSet<_> = numbers.collect();
            if forgets && !numbers.is_empty() {
                self.forget_keys(&lines, &numbers).await?;
            }
            found.extend(numbers.iter().map(|number| before + number));
            before += lines.len() as u64;
        }
    }

    /// Deletes the unique keys of the tasks of these lines.
    async fn forget_keys(&self, lines: &[String], numbers: &BTreeSet<u64>) -> Result<()> {
        let is_meant = |(number, _): &(u64, &String)| numbers.contains(number);
        let lines: Vec<_> = (0..).zip(lines).filter(is_meant).map(|(_, line)| line).collect();
        let sql = "select tuskline.forget_lines($1)";
        self.client.query_typed_one(sql, &[(&lines, Type::TEXT_ARRAY)]).await?;
        Ok(())
    }
}
