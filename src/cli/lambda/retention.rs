//! How long tasks stay by their status, and where they go then.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::duration;

/// The word for a status that has no retention of its own.
const SAME: &str = "same";

/// Retention by status, and the archive.
#[derive(Debug, Args, Serialize)]
pub struct Keeping {
    /// How long a cancelled task stays; same: as --retention says.
    #[arg(long, value_parser = own, allow_hyphen_values = true, value_name = "DURATION|same")]
    #[serde(serialize_with = "span")]
    cancelled_retention: Option<Own>,
    /// How long a dropped task stays; same: as --retention says.
    #[arg(long, value_parser = own, allow_hyphen_values = true, value_name = "DURATION|same")]
    #[serde(serialize_with = "span")]
    dropped_retention: Option<Own>,
    /// How long a fatal_failure stays; same: as --dead-retention says.
    #[arg(long, value_parser = own, allow_hyphen_values = true, value_name = "DURATION|same")]
    #[serde(serialize_with = "span")]
    fatal_retention: Option<Own>,
    /// Where tasks go before they are deleted: nowhere, tuskline.task_archive, or files of a server
    /// with --archive-dir.
    #[arg(long, value_enum)]
    archive: Option<Archive>,
}

/// A retention of a status' own, or none.
#[derive(Debug, Clone, Copy)]
enum Own {
    For(Duration),
    Same,
}

fn own(text: &str) -> Result<Own, String> {
    if text == SAME {
        return Ok(Own::Same);
    }
    duration::parse(text).map(Own::For)
}

/// The duration, if it is one.
fn span<S: Serializer>(own: &Option<Own>, to: S) -> Result<S::Ok, S::Error> {
    let span = match own {
        Some(Own::For(span)) => Some(*span),
        Some(Own::Same) | None => None,
    };
    duration::serialize(&span, to)
}

/// Where tasks go before they are deleted.
#[derive(Debug, Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum Archive {
    None,
    Table,
    File,
}

impl Keeping {
    /// The statuses that lose their own retention. Null: none. A new lambda has none to lose.
    pub fn as_others(&self) -> Value {
        let same = [
            (self.cancelled_retention, "cancelled"),
            (self.dropped_retention, "dropped"),
            (self.fatal_retention, "fatal_failure"),
        ];
        let same = same.into_iter().filter(|(own, _)| matches!(own, Some(Own::Same)));
        let same: Vec<_> = same.map(|(_, status)| status).collect();
        if same.is_empty() { Value::Null } else { json!(same) }
    }
}
