//! How long tasks stay by their status, and where they go then.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::duration;

/// The word for a status that has no retention of its own.
const SAME: &str = "same";

/// Retention by status, and the archive.
#[derive(Debug, Args)]
pub struct Keeping {
    /// How long a cancelled task stays; same: as --retention says.
    #[arg(long, value_parser = own, allow_hyphen_values = true, value_name = "DURATION|same")]
    cancelled_retention: Option<Own>,
    /// How long a dropped task stays; same: as --retention says.
    #[arg(long, value_parser = own, allow_hyphen_values = true, value_name = "DURATION|same")]
    dropped_retention: Option<Own>,
    /// How long a fatal_failure stays; same: as --dead-retention says.
    #[arg(long, value_parser = own, allow_hyphen_values = true, value_name = "DURATION|same")]
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

/// Where tasks go before they are deleted.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Archive {
    None,
    Table,
    File,
}

impl Keeping {
    /// Adds named arguments of the verb, and their values. An argument that is no number is one of a few
    /// words and stands in the text. A new lambda has no retention of its own to reset.
    pub fn add_to(&self, text: &mut String, values: &mut Vec<i64>, verb: &str) {
        let mut same = Vec::new();
        for (own, name, status) in [
            (self.cancelled_retention, "p_cancelled_retention", "cancelled"),
            (self.dropped_retention, "p_dropped_retention", "dropped"),
            (self.fatal_retention, "p_fatal_retention", "fatal_failure"),
        ] {
            match own {
                Some(Own::For(span)) => {
                    values.push(duration::milliseconds(span));
                    let place = values.len() + 1;
                    text.push_str(&format!(", {name} => ${place} * interval '1 millisecond'"));
                }
                Some(Own::Same) => same.push(status),
                None => {}
            }
        }
        if !same.is_empty() && verb == super::ALTER {
            text.push_str(&format!(", p_as_others => '{{{}}}'", same.join(",")));
        }
        if let Some(archive) = self.archive.and_then(|archive| archive.to_possible_value()) {
            text.push_str(&format!(", p_archive => '{}'", archive.get_name()));
        }
    }
}
