//! Rows and catalogue: whether what the rows name exists.

use anyhow::Result;
use tokio_postgres::Client;

use super::finding::Found;
use super::remedy;
use crate::store::{self, Repair};

/// Most rows that are named.
const MOST_NAMED: usize = 5;

/// Compares rows and catalogue. Queues that a crash emptied have a line of their own.
pub async fn examine(client: &Client) -> Result<Found> {
    let damage = store::damage(client).await?;
    let damage: Vec<Repair> = damage.into_iter().filter(|one| one.part != "queues").collect();
    Ok(judge(&damage))
}

fn judge(damage: &[Repair]) -> Found {
    if damage.is_empty() {
        return Found::ok("has everything that rows name");
    }
    let one = |r: &Repair| match &r.name {
        Some(name) => format!("{} {name}: {}", r.part, r.problem),
        None => format!("{}: {}", r.part, r.problem),
    };
    let named: Vec<String> = damage.iter().take(MOST_NAMED).map(one).collect();
    let more = match damage.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    Found::fail(format!("{}{more}", named.join("; ")), remedy::REPAIR)
}
