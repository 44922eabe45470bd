//! Broken twins: sixteen flaws that Tuskline does not have, each with the phase and the invariant that
//! must catch it. A checker that was never seen red proves nothing.
//!
//! A flaw is a break of an SQL function, made in the database of its run, or a piece of the SDK or
//! server that is compiled with `--cfg mutants` only and switched on by `TUSKLINE_TWIN`.

use tokio_postgres::Client;

use crate::role::Timings;
use crate::timetable::{REDRIVES, TICKS};

/// A flaw, and how it is caught.
#[derive(Debug, Clone, Copy)]
pub struct Twin {
    pub name: &'static str,
    /// What is wrong with it.
    pub flaw: &'static str,
    /// Function, what stands there, what stands there in the twin.
    pub breaks: &'static [(&'static str, &'static str, &'static str)],
    /// Whether the flaw is in the code, too.
    pub compiled: bool,
    /// Phases to run, and how much of them.
    pub phases: &'static [&'static str],
    pub percent: u64,
    pub timings: Timings,
    /// Invariants of which at least one must be violated.
    pub caught_by: &'static [&'static str],
    /// Needs libfaketime: the store consumers live an hour ahead.
    pub shifted: bool,
    /// Worker processes; with few, nobody makes good what one has missed.
    pub workers: usize,
    /// Of the tasks of lambda `slow` one in so many takes longer than a lease.
    pub long_one_in: u32,
    /// Of single tasks one in so many kills its worker; 0: none.
    pub pill_one_in: u32,
}

const PLAIN: Twin = Twin {
    name: "",
    flaw: "",
    breaks: &[],
    compiled: false,
    phases: &[],
    percent: 20,
    timings: Timings::QUICK,
    caught_by: &[],
    shifted: false,
    workers: 8,
    long_one_in: 12,
    pill_one_in: 0,
};

/// Without any margin, and with patience for answers that take 2.4 s: who counts T from those outlives L
/// by more than two seconds.
const TIGHT: Timings = Timings {
    heartbeat_ms: 100,
    heartbeat_timeout_ms: 2_600,
    self_termination_ms: 2_950,
    margin_ms: 50,
    lease_ms: 3_200,
    request_timeout_ms: 6_000,
};

/// Every twin.
pub const TWINS: [Twin; 16] = [
    Twin {
        name: "no_fence_in_results",
        flaw: "results are recorded whatever their fence",
        breaks: &[
            ("make_succeed", "t.fence = p_fences[width_bucket(t.id, p_ids)] and", ""),
            (
                "make_settle",
                "and t.fence = p_fences[width_bucket(t.id, p_ids)] and t.status in",
                "and t.status in",
            ),
        ],
        phases: &["kills"],
        percent: 10,
        caught_by: &["I6", "I8", "I15"],
        ..PLAIN
    },
    Twin {
        name: "t_longer_than_l",
        flaw: "a worker may live longer without heartbeats than its lease lasts",
        compiled: true,
        phases: &["partitions"],
        timings: Timings { self_termination_ms: 8_000, ..Timings::QUICK },
        caught_by: &["I9"],
        ..PLAIN
    },
    Twin {
        name: "t_from_ack",
        flaw: "T is counted from the answer to a heartbeat, not from its sending",
        compiled: true,
        phases: &["late answers"],
        percent: 60,
        long_one_in: 8,
        timings: TIGHT,
        caught_by: &["I9"],
        ..PLAIN
    },
    Twin {
        name: "claim_without_guard",
        flaw: "a claim takes a task whatever its status",
        breaks: &[("make_take", "and t.status = 'enqueued'", "")],
        phases: &["kills", "crashes"],
        percent: 10,
        caught_by: &["I5", "I6", "I8", "I9"],
        ..PLAIN
    },
    Twin {
        name: "rescue_by_age",
        flaw: "an executor counts as dead when its row is old, however it beats",
        breaks: &[("rescue", RESCUE_GUARD, RESCUE_BY_AGE)],
        phases: &["baseline"],
        percent: 50,
        caught_by: &["I9", "I23"],
        ..PLAIN
    },
    Twin {
        name: "low_water_cursor",
        flaw: "a queue is read by a cursor that never looks back",
        compiled: true,
        phases: &["baseline"],
        percent: 70,
        workers: 1,
        long_one_in: 1_000,
        caught_by: &["I5"],
        ..PLAIN
    },
    Twin {
        name: "ack_before_commit",
        flaw: "a task is acknowledged before its commit is on disk",
        breaks: &[(
            "schedule",
            "begin\n  if num_nonnulls(p_scheduled_at",
            "begin\n  perform set_config('synchronous_commit', 'off', true);\n  if num_nonnulls(p_scheduled_at",
        )],
        phases: &["crashes"],
        percent: 25,
        caught_by: &["I1"],
        ..PLAIN
    },
    Twin {
        name: "own_clock_for_due",
        flaw: "a store consumer judges by its own clock what is due",
        compiled: true,
        breaks: &[(
            "enqueue_due",
            "v_now  timestamptz := tuskline.clock();",
            "v_now  timestamptz := coalesce(nullif(current_setting('fault.now', true), '')::timestamptz, tuskline.clock());",
        )],
        phases: &["baseline"],
        shifted: true,
        caught_by: &["I10"],
        ..PLAIN
    },
    Twin {
        name: "notify_only",
        flaw: "nothing is looked at but what is notified, and notifications get lost",
        compiled: true,
        breaks: &[
            ("is_watched", "select not pg_try_advisory", "select false and not pg_try_advisory"),
            ("wake", "perform pg_notify('tuskline_queue', '');", "null;"),
        ],
        phases: &["baseline"],
        caught_by: &["I5"],
        ..PLAIN
    },
    Twin {
        name: "release_without_fence",
        flaw: "work is given back whoever holds it by now",
        breaks: &[(
            "release",
            "where t.id = d.id and t.fence = d.fence and",
            "where t.id = d.id and",
        )],
        phases: &["kills"],
        percent: 10,
        caught_by: &["I6", "I8", "I9", "I12"],
        ..PLAIN
    },
    Twin {
        name: "crashes_not_counted",
        flaw: "the death of a worker is not charged to what it was executing",
        breaks: &[("take_back", "crashes = t.crashes + d.charge", "crashes = t.crashes")],
        phases: &["baseline"],
        // Some ten in the five seconds: that there are none is once in 20,000 runs.
        pill_one_in: 75,
        caught_by: &["I5", "I18"],
        ..PLAIN
    },
    Twin {
        name: "tick_without_key",
        flaw: "whoever has calculated a tick fires it, whoever has before",
        breaks: &[
            (
                "fire_periodic",
                "and version = p_version and enabled for update skip locked",
                "and enabled",
            ),
            (
                "fire_periodic",
                "where not exists (select from tuskline.tick k where k.name = p_name and k.tick = u.tick)",
                "",
            ),
            (
                "fire_periodic",
                "v_task, v_reason, v_now);",
                "v_task, v_reason, v_now) on conflict do nothing;",
            ),
        ],
        phases: &[TICKS],
        percent: 8,
        long_one_in: 1_000,
        caught_by: &["I26"],
        ..PLAIN
    },
    Twin {
        name: "ticks_from_start",
        flaw: "a server that starts counts ticks from then on, not from the last that was fired",
        breaks: &[(
            "due_periodic",
            "greatest(least(s.done_until, v_now), s.starts_at - interval '1 microsecond')",
            "case when p_after is null then greatest(least(s.done_until, v_now), s.starts_at - interval '1 microsecond') else v_now end",
        )],
        phases: &[TICKS],
        percent: 12,
        long_one_in: 1_000,
        caught_by: &["I26"],
        ..PLAIN
    },
    Twin {
        name: "redrive_in_circles",
        flaw: "a redrive is also about those that die while it goes on, its own, too",
        breaks: &[
            ("is_meant", "and d.died_at <= r.died_until", ""),
            ("is_meant", "and d.redrive_id is distinct from r.redrive_id", ""),
        ],
        phases: &[REDRIVES],
        percent: 15,
        long_one_in: 1_000,
        caught_by: &["I27"],
        ..PLAIN
    },
    Twin {
        name: "redrive_counts_first",
        flaw: "a redrive counts a task before it knows whether it can let it go",
        breaks: &[(
            "advance_redrive",
            "d.released + cardinality(v_free)",
            "d.released + cardinality(v_ids)",
        )],
        phases: &[REDRIVES],
        percent: 15,
        long_one_in: 1_000,
        caught_by: &["I27"],
        ..PLAIN
    },
    Twin {
        name: "unordered_batch",
        flaw: "a batch locks its tasks in the order it was given",
        caught_by: &["40P01"],
        ..PLAIN
    },
];

const RESCUE_GUARD: &str = "\
from unnest(p_silent, p_beats) as s (executor_id, beats) join tuskline.executor e on e.executor_id = s.executor_id
      where booted_at = p_booted_at and e.ended_at is null and e.beats = s.beats";
const RESCUE_BY_AGE: &str =
    "from tuskline.executor e where e.ended_at is null and e.started_at <= v_now - e.lease";

impl Twin {
    /// The twin of a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        TWINS.iter().find(|twin| twin.name == name)
    }

    /// What switches the flaw on in a process.
    pub fn environment(&self) -> Vec<(String, String)> {
        vec![("TUSKLINE_TWIN".into(), self.name.into())]
    }

    /// Breaks the functions.
    pub async fn break_database(&self, client: &Client) -> anyhow::Result<()> {
        for (function, from, to) in self.breaks {
            let sql = "select pg_get_functiondef(('tuskline.' || $1)::regproc)";
            let text: String = client.query_one(sql, &[function]).await?.get(0);
            anyhow::ensure!(text.contains(from), "{}: {function} has no {from:?}", self.name);
            client.batch_execute(&text.replace(from, to)).await?;
        }
        client.batch_execute("select tuskline.make_leaf_verbs()").await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_flaws_with_names_of_their_own() {
        let names: std::collections::HashSet<_> = TWINS.iter().map(|twin| twin.name).collect();
        assert_eq!(names.len(), 16);
    }

    /// A break whose text has gone from the functions would end a run of the twins, some commits later.
    #[test]
    fn every_break_finds_its_text() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../migrations/functions");
        let texts: String = std::fs::read_dir(dir)
            .expect("the functions")
            .map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("a text"))
            .collect();
        for twin in TWINS {
            for (function, from, _) in twin.breaks {
                assert!(texts.contains(from), "{}: {function} has no {from:?}", twin.name);
                // Of two with one name nobody knows which is meant.
                let made = texts.matches(&format!("replace function tuskline.{function}(")).count();
                assert_eq!(made, 1, "{}: {function}", twin.name);
            }
        }
    }
}
