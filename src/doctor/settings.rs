//! Settings of the server that do harm.

use anyhow::Result;
use tokio_postgres::Client;

use super::finding::{Finding, Found};
use super::remedy::{self, Remedy};

/// A check of a setting: the values that do harm, and the reason.
struct Rule {
    setting: &'static str,
    hurts: fn(&str) -> bool,
    found: fn(String, Remedy) -> Found,
    why: &'static str,
    remedy: Remedy,
}

const RULES: [Rule; 9] = [
    Rule {
        setting: "session_replication_role",
        hurts: |value| value != "origin",
        found: Found::fail,
        why: "triggers do not fire: no INSERT is routed",
        remedy: remedy::ORIGIN,
    },
    Rule {
        setting: "fsync",
        hurts: |value| value == "off",
        found: Found::fail,
        why: "a crash of the machine loses tasks or the whole database",
        remedy: remedy::FSYNC,
    },
    Rule {
        setting: "full_page_writes",
        hurts: |value| value == "off",
        found: Found::fail,
        why: "a crash of the machine may tear pages",
        remedy: remedy::FULL_PAGES,
    },
    Rule {
        setting: "synchronous_commit",
        hurts: |value| value == "off",
        found: Found::warn,
        why: "a crash loses the tasks that were acknowledged just before it",
        remedy: remedy::COMMIT,
    },
    Rule {
        setting: "autovacuum",
        hurts: |value| value == "off",
        found: Found::fail,
        why: "dead rows are never removed",
        remedy: remedy::AUTOVACUUM,
    },
    Rule {
        setting: "track_counts",
        hurts: |value| value == "off",
        found: Found::fail,
        why: "autovacuum is blind without it",
        remedy: remedy::COUNTS,
    },
    Rule {
        setting: "idle_in_transaction_session_timeout",
        hurts: |value| value == "0",
        found: Found::warn,
        why: "a forgotten transaction keeps all dead rows",
        remedy: remedy::IDLE,
    },
    Rule {
        setting: "shared_buffers",
        // In pages of 8 kB.
        hurts: |value| value.parse().is_ok_and(|pages: i64| pages < 16_384),
        found: Found::warn,
        why: "less than 128 MB: queues and the newest segment should fit; it needs a restart",
        remedy: remedy::BUFFERS,
    },
    Rule {
        setting: "max_wal_size",
        // In MB.
        hurts: |value| value.parse().is_ok_and(|megabytes: i64| megabytes < 1_024),
        found: Found::warn,
        why: "less than 1 GB: frequent checkpoints write whole pages again",
        remedy: remedy::WAL_SIZE,
    },
];

/// A line for each setting that does harm, with the value as `show` prints it. All remaining
/// settings share a line. The session must have no settings of ours.
pub async fn examine(client: &Client) -> Result<Vec<Finding>> {
    let question = "select name, setting, current_setting(name), quote_ident(current_database()) \
                      from pg_settings";
    let rows = client.query_typed(question, &[]).await?;
    let find = |rule: &Rule| {
        let row = rows.iter().find(|row| row.get::<_, &str>(0) == rule.setting)?;
        (rule.hurts)(row.get(1)).then(|| found(rule, row.get(2), row.get(3)))
    };
    let mut findings: Vec<Finding> = RULES.iter().filter_map(find).collect();
    let well = RULES.len() - findings.len();
    let rest = Found::ok(format!("{well} of {} do no harm", RULES.len()));
    findings.push(Finding::new("settings", rest));
    Ok(findings)
}

fn found(rule: &Rule, shown: &str, database: &str) -> Finding {
    let said = format!("{shown}: {}", rule.why);
    let remedy = rule.remedy.clone().with("database", database);
    Finding::new(rule.setting, (rule.found)(said, remedy))
}
