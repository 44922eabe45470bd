//! Archives to files: whether a server writes them.

use anyhow::Result;
use tokio_postgres::Client;

use super::finding::Finding;
use super::remedy;
use crate::store::archive;

/// Counts what is past its retention and waits for a directory.
pub async fn examine(client: &Client) -> Result<Finding> {
    let (segments, tasks) = archive::unarchived(client).await?;
    Ok(match segments + tasks {
        0 => Finding::ok("archive", "nothing waits for a file"),
        _ => Finding::warn(
            "archive",
            format!(
                "{segments} segments and {tasks} kept tasks are past their retention and wait for a file"
            ),
            remedy::ARCHIVE,
        ),
    })
}
