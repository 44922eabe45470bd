//! The answer to a definition: what was changed.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::client::session::Row;
use crate::client::status::word;
use crate::db::json::JsonOwned;
use crate::error::Error;

/// The answer of [`Client::define`](crate::Client::define) for one lambda.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DefinedLambda {
    /// Name of the lambda.
    pub lambda: String,
    /// In one word.
    pub outcome: DefinitionOutcome,
    /// Each setting or part that was changed, by its name.
    pub changes: Vec<SettingChange>,
}

/// The effect of a definition on its lambda.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DefinitionOutcome {
    /// The lambda is new.
    Created,
    /// The definition differs from the last one.
    Changed,
    /// Nothing differs.
    Unchanged,
    /// A newer version has defined the lambda: nothing was done.
    #[serde(other)]
    Newer,
}

/// A setting or a part before and after.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SettingChange {
    /// `max_attempts`, `unique`, `concurrency limit priority high`, `schedule nightly`, ...
    pub setting: String,
    /// None: there was none.
    pub before: Option<Value>,
    /// None: it was removed.
    pub after: Option<Value>,
}

impl DefinedLambda {
    pub(in crate::client) fn read(row: &Row) -> Result<Self, Error> {
        let JsonOwned(changes) = row.get(2);
        let changes: BTreeMap<String, [Option<Value>; 2]> =
            serde_json::from_str(&changes).map_err(Error::unknown)?;
        let changes = changes.into_iter();
        let changes =
            changes.map(|(setting, [before, after])| SettingChange { setting, before, after });
        Ok(Self { lambda: row.get(0), outcome: word(row.get(1))?, changes: changes.collect() })
    }
}

impl fmt::Display for DefinedLambda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = match self.outcome {
            DefinitionOutcome::Created => "created",
            DefinitionOutcome::Changed => "changed",
            DefinitionOutcome::Unchanged => "unchanged",
            DefinitionOutcome::Newer => "left alone, a newer version has defined it",
        };
        write!(f, "{}: {outcome}", self.lambda)?;
        for (nth, change) in self.changes.iter().enumerate() {
            write!(f, "{} {change}", if nth == 0 { ":" } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Display for SettingChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: &Option<Value>| match value {
            None => "none".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
        };
        write!(f, "{} {} -> {}", self.setting, text(&self.before), text(&self.after))
    }
}
