//! `doctor --verify`: the invariants of the stored tasks, by `tuskline.invariants()`.
//!
//! Promises: one read-only snapshot, so that all counts agree; a deadline.
//! Must never: write.

use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::Result;
use tokio_postgres::Row;
use tuskline_sdk::Address;

use crate::doctor::remedy::{self, Remedy};
use crate::doctor::{Finding, Found};
use crate::session::{Deadlines, Session};

/// Longest time of the statement. It reads each task a few times: 10 million take about a minute.
const DEADLINE: Duration = Duration::from_secs(30 * 60);

const BEGIN: &str = "begin isolation level repeatable read read only";

const TASKS: &str = "
    select coalesce(sum(greatest(c.reltuples::bigint, pg_stat_get_live_tuples(c.oid))), 0)::bigint
      from pg_class c
     where c.relnamespace = to_regnamespace('tuskline_core') and c.relname ~ '^task_[0-9]+$'";

const INVARIANTS: &str =
    "select invariant, guarantee, violations, examples from tuskline.invariants()";

/// A line for each invariant.
pub async fn examine(address: &Address) -> Result<Vec<Finding>> {
    let deadlines = Deadlines { statement: DEADLINE, ..Deadlines::USUAL };
    let session = Session::open(address, "doctor", deadlines).await?;
    let client = session.client();
    client.batch_execute(BEGIN).await?;
    if std::io::stderr().is_terminal() {
        let tasks: i64 = client.query_typed_one(TASKS, &[]).await?.get(0);
        eprintln!("reading about {tasks} tasks, for at most {} min", DEADLINE.as_secs() / 60);
    }
    let rows = client.query_typed(INVARIANTS, &[]).await?;
    client.batch_execute("rollback").await?;
    Ok(rows.iter().map(found).collect())
}

fn found(row: &Row) -> Finding {
    let (name, guarantee): (String, &str) = (row.get(0), row.get(1));
    let (violations, examples): (i64, Vec<String>) = (row.get(2), row.get(3));
    if violations == 0 {
        return Finding::new(name, Found::ok(guarantee));
    }
    let more = if violations > examples.len() as i64 { ", ..." } else { "" };
    let said = format!("{violations} violate: {guarantee}; {}{more}", examples.join(", "));
    let remedy = remedy_of(&name).with("task", examples.first().map_or("0", String::as_str));
    Finding::new(name, Found::fail(said, remedy))
}

/// find_stalled puts stalled tasks back. Every other violation needs a person who examines it.
fn remedy_of(invariant: &str) -> Remedy {
    match invariant {
        "leases" | "queues" | "waiting" | "permits" => remedy::FIND_STALLED,
        "fences" => remedy::FENCES,
        _ => remedy::EXPLAIN,
    }
}
