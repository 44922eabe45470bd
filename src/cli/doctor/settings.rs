//! Settings of the server that hurt.

use anyhow::Result;
use tokio_postgres::Client;

use super::{Finding, Verdict};

/// A check of a setting: which values hurt, and why.
struct Rule {
    setting: &'static str,
    hurts: fn(&str) -> bool,
    verdict: Verdict,
    why: &'static str,
}

const RULES: [Rule; 10] = [
    Rule {
        setting: "session_replication_role",
        hurts: |value| value != "origin",
        verdict: Verdict::Fail,
        why: "triggers do not fire: no INSERT is routed; set it to origin for the database and the role",
    },
    Rule {
        setting: "fsync",
        hurts: |value| value == "off",
        verdict: Verdict::Fail,
        why: "a crash of the machine loses tasks or the whole database: turn it on",
    },
    Rule {
        setting: "full_page_writes",
        hurts: |value| value == "off",
        verdict: Verdict::Fail,
        why: "a crash of the machine may tear pages: turn it on",
    },
    Rule {
        setting: "synchronous_commit",
        hurts: |value| value == "off",
        verdict: Verdict::Warn,
        why: "a crash loses tasks that were acknowledged in the last moment before it",
    },
    Rule {
        setting: "autovacuum",
        hurts: |value| value == "off",
        verdict: Verdict::Fail,
        why: "dead rows are never removed: turn it on",
    },
    Rule {
        setting: "track_counts",
        hurts: |value| value == "off",
        verdict: Verdict::Fail,
        why: "autovacuum is blind without it: turn it on",
    },
    Rule {
        setting: "idle_in_transaction_session_timeout",
        hurts: |value| value == "0",
        verdict: Verdict::Warn,
        why: "a forgotten transaction holds the xmin horizon for ever: set 5min or so",
    },
    Rule {
        setting: "max_connections",
        hurts: |value| value.parse().is_ok_and(|connections: i64| connections < 50),
        verdict: Verdict::Warn,
        why: "few for servers and workers: a worker takes up to 6, a server 5",
    },
    Rule {
        setting: "shared_buffers",
        // In pages of 8 kB.
        hurts: |value| value.parse().is_ok_and(|pages: i64| pages < 16_384),
        verdict: Verdict::Warn,
        why: "less than 128 MB: queues and the newest segment should fit",
    },
    Rule {
        setting: "max_wal_size",
        // In MB.
        hurts: |value| value.parse().is_ok_and(|megabytes: i64| megabytes < 1_024),
        verdict: Verdict::Warn,
        why: "less than 1 GB: frequent checkpoints write whole pages again and again",
    },
];

/// One line for each rule; the value as `show` prints it. On a session without settings of ours.
pub async fn examine(client: &Client) -> Result<Vec<Finding>> {
    let question = "select name, setting, current_setting(name) from pg_settings";
    let rows = client.query_typed(question, &[]).await?;
    let find = |rule: &Rule| {
        let row = rows.iter().find(|row| row.get::<_, &str>(0) == rule.setting)?;
        Some(found(rule, row.get(1), row.get(2)))
    };
    Ok(RULES.iter().filter_map(find).collect())
}

fn found(rule: &Rule, value: &str, shown: &str) -> Finding {
    if (rule.hurts)(value) {
        let said = format!("{shown}: {}", rule.why);
        return Finding { verdict: rule.verdict, examined: rule.setting, said };
    }
    Finding::ok(rule.setting, shown)
}
