//! The server, the connection to it, and its clock.

use std::time::Duration;

use anyhow::Result;
use chrono::{DateTime, TimeDelta, Utc};
use tokio_postgres::Client;
use tuskline_sdk::Address;

use super::finding::{Finding, Found};
use super::remedy;
use crate::migrate::OLDEST_SERVER;
use crate::session::Session;
use crate::store::TIMER_CHANNEL;

/// A larger difference between the clocks makes logs hard to read side by side.
const CLOCKS_APART: TimeDelta = TimeDelta::seconds(5);

/// Longest wait for a notification.
const NOTIFICATION_DEADLINE: Duration = Duration::from_secs(1);

/// Name of the row about the server's role in replication.
pub const PART: &str = "part";

/// Version and part in replication.
pub async fn server(client: &Client) -> Result<Vec<Finding>> {
    let sql = "select current_setting('server_version_num')::integer, current_setting('server_version'), \
        pg_is_in_recovery(), current_setting('transaction_read_only')::boolean, \
        quote_ident(current_database())";
    let row = client.query_typed_one(sql, &[]).await?;
    let (number, version): (i32, &str) = (row.get(0), row.get(1));
    let version = supported(number, version);
    let part = match (row.get(2), row.get(3)) {
        (true, _) => {
            Found::fail("this server is a standby: connect to the primary", remedy::PRIMARY)
        }
        (_, true) => Found::fail(
            "read-only: default_transaction_read_only is on",
            remedy::WRITABLE.with("database", row.get(4)),
        ),
        _ => Found::ok("primary"),
    };
    Ok(vec![Finding::new("server", version), Finding::new(PART, part)])
}

fn supported(number: i32, version: &str) -> Found {
    match number / 10_000 {
        _ if number < OLDEST_SERVER => Found::fail(
            format!("PostgreSQL {version}; 15 or newer is needed"),
            remedy::UPGRADE_SERVER,
        ),
        _ if loses_a_role(number) => Found::warn(
            format!(
                "PostgreSQL {version}; it may lose a role that a session has set (CVE-2024-10978)"
            ),
            remedy::UPGRADE_SERVER,
        ),
        15..=18 => Found::ok(format!("PostgreSQL {version}")),
        19 => Found::ok(format!("PostgreSQL {version}, accepted; 15 to 18 are tested")),
        _ => Found::warn(
            format!("PostgreSQL {version}; 15 to 18 are tested"),
            remedy::UPGRADE_SERVER,
        ),
    }
}

/// Below 15.9, 16.5 and 17.1 a session may lose the role that it has set. Then verbs see its login.
fn loses_a_role(number: i32) -> bool {
    matches!(number, 150_000..150_009 | 160_000..160_005 | 170_000..170_001)
}

/// A transaction pooler lends the same server process to two clients at once.
pub async fn pooler(client: &Client, other: &Client) -> Result<Found> {
    let before = backend(client).await?;
    other.batch_execute("begin").await?;
    let busy = backend(other).await?;
    let after = backend(client).await?;
    other.batch_execute("rollback").await?;
    Ok(if before == after && after != busy {
        Found::ok("none, or one that pools sessions")
    } else {
        Found::warn(
            "a transaction pooler is in between: servers and workers poll instead of being woken",
            remedy::DIRECT,
        )
    })
}

async fn backend(client: &Client) -> Result<i32> {
    Ok(client.query_typed_one("select pg_backend_pid()", &[]).await?.get(0))
}

/// Whether a notification from one session reaches another.
pub async fn notifications(address: &Address, other: &Session) -> Result<Found> {
    let bell = Session::listening(address, "doctor", TIMER_CHANNEL).await?;
    Ok(if bell.hears(other, TIMER_CHANNEL, NOTIFICATION_DEADLINE).await? {
        Found::ok("arrive")
    } else {
        Found::warn(
            "do not arrive within 1 s: tasks start by the safety poll",
            remedy::NOTIFICATIONS,
        )
    })
}

/// Only the database's clock decides. Ours is read before and after the answer, to compare the two.
pub async fn clock(client: &Client) -> Result<Found> {
    let before = Utc::now();
    let row = client.query_typed_one("select clock_timestamp()", &[]).await?;
    let after = Utc::now();
    let theirs: DateTime<Utc> = row.get(0);
    let apart = theirs - (before + (after - before) / 2);
    let milliseconds = apart.num_milliseconds();
    Ok(if apart.abs() <= CLOCKS_APART {
        Found::ok(format!("{milliseconds} ms from this machine's"))
    } else {
        Found::warn(
            format!("{milliseconds} ms from this machine's: the times in two logs do not agree"),
            remedy::CLOCK,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn versions_15_to_19_are_accepted() {
        for (number, verdict) in [
            (130_012, Verdict::Fail),
            (140_020, Verdict::Fail),
            (150_008, Verdict::Warn),
            (150_009, Verdict::Ok),
            (160_004, Verdict::Warn),
            (160_005, Verdict::Ok),
            (170_000, Verdict::Warn),
            (170_001, Verdict::Ok),
            (180_004, Verdict::Ok),
            (190_000, Verdict::Ok),
            (200_000, Verdict::Warn),
        ] {
            assert_eq!(supported(number, "").verdict, verdict, "{number}");
        }
    }
}
