//! Mutants: twenty flaws that Tuskline does not have. Each names the phase and the invariant
//! that must catch it. A checker that was never seen red proves nothing.
//!
//! A flaw is a break of an SQL function, made in the database of its run, or a flaw in the Rust
//! code. The latter is compiled only with `--cfg mutants` and enabled by `TUSKLINE_MUTANT`.

use tokio_postgres::Client;
use tuskline_breaks::Breaks;

use crate::role::Timings;
use crate::timetable::{ENDED_EXECUTORS, FROZEN_CONTROLLERS, REDRIVES, TICKS};

/// A flaw, and how it is caught.
#[derive(Debug, Clone, Copy)]
pub struct Mutant {
    pub name: &'static str,
    /// A description of the flaw.
    pub flaw: &'static str,
    /// Whether the flaw is in the SQL. The lists of `tests/breaks` say where, under the mutant's name.
    pub broken: bool,
    /// Whether the flaw is in the Rust code.
    pub compiled: bool,
    /// Phases to run, and how much of them.
    pub phases: &'static [&'static str],
    pub percent: u64,
    pub timings: Timings,
    /// Invariants of which at least one must be violated.
    pub caught_by: &'static [&'static str],
    /// Needs libfaketime: the store consumers live an hour ahead.
    pub shifted: bool,
    /// The number of worker processes. With few, no other worker makes up for one that misses a
    /// task.
    pub workers: usize,
    /// In lambda `slow`, a task in so many takes longer than a lease.
    pub long_one_in: u32,
    /// Among single tasks, one in so many kills its worker; among those of hosts, it has its process
    /// killed. 0: none does.
    pub pill_one_in: u32,
}

const PLAIN: Mutant = Mutant {
    name: "",
    flaw: "",
    broken: false,
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

/// Flaws of host controllers: of executors, with no other worker beside them. There are so few long bodies that
/// other executors have free slots for what goes back: two bodies of a task meet at once, or never.
const HOSTS: Mutant =
    Mutant { phases: &[ENDED_EXECUTORS], percent: 100, workers: 0, long_one_in: 50, ..PLAIN };

/// Timings without any margin, and with patience for answers that take 2.4 s. A worker that counts
/// T from such an answer outlives L by more than two seconds.
const TIGHT: Timings = Timings {
    heartbeat_ms: 100,
    heartbeat_timeout_ms: 2_600,
    self_termination_ms: 2_950,
    margin_ms: 50,
    lease_ms: 3_200,
    request_timeout_ms: 6_000,
};

/// Every mutant.
pub const MUTANTS: [Mutant; 20] = [
    Mutant {
        name: "no_fence_in_results",
        flaw: "results are recorded whatever their fence",
        broken: true,
        phases: &["kills"],
        percent: 10,
        caught_by: &["I6", "I8", "I15"],
        ..PLAIN
    },
    Mutant {
        name: "t_longer_than_l",
        flaw: "a worker may live longer without heartbeats than its lease lasts",
        compiled: true,
        phases: &["partitions"],
        timings: Timings { self_termination_ms: 8_000, ..Timings::QUICK },
        caught_by: &["I9"],
        ..PLAIN
    },
    Mutant {
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
    Mutant {
        name: "claim_without_guard",
        flaw: "a claim takes a task whatever its status",
        broken: true,
        phases: &["kills", "crashes"],
        percent: 10,
        caught_by: &["I5", "I6", "I8", "I9"],
        ..PLAIN
    },
    Mutant {
        name: "rescue_by_age",
        flaw: "an executor counts as dead when its row is old, however it beats",
        broken: true,
        phases: &["baseline"],
        percent: 50,
        caught_by: &["I9", "I23"],
        ..PLAIN
    },
    Mutant {
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
    Mutant {
        name: "ack_before_commit",
        flaw: "a task is acknowledged before its commit is on disk",
        broken: true,
        phases: &["crashes"],
        percent: 25,
        caught_by: &["I1"],
        ..PLAIN
    },
    Mutant {
        name: "own_clock_for_due",
        flaw: "a store consumer judges by its own clock what is due",
        compiled: true,
        broken: true,
        phases: &["baseline"],
        shifted: true,
        caught_by: &["I10"],
        ..PLAIN
    },
    Mutant {
        name: "notify_only",
        flaw: "nothing is looked at but what is notified, and notifications get lost",
        compiled: true,
        broken: true,
        phases: &["baseline"],
        caught_by: &["I5"],
        ..PLAIN
    },
    Mutant {
        name: "release_without_fence",
        flaw: "work is given back although another worker holds it by now",
        broken: true,
        phases: &["kills"],
        percent: 10,
        caught_by: &["I6", "I8", "I9", "I12"],
        ..PLAIN
    },
    Mutant {
        name: "crashes_not_counted",
        flaw: "the death of a worker is not charged to what it was executing",
        broken: true,
        phases: &["baseline"],
        // Some ten in the five seconds: that there are none is once in 20,000 runs.
        pill_one_in: 75,
        caught_by: &["I5", "I18"],
        ..PLAIN
    },
    Mutant {
        name: "incarnation_of_a_copy",
        flaw: "a copy of the database believes the incarnation that was copied with it",
        broken: true,
        phases: &["restores"],
        caught_by: &["I7"],
        ..PLAIN
    },
    Mutant {
        name: "tick_without_key",
        flaw: "each server that has calculated a tick fires it, although another one did before",
        broken: true,
        phases: &[TICKS],
        percent: 8,
        long_one_in: 1_000,
        caught_by: &["I26"],
        ..PLAIN
    },
    Mutant {
        name: "ticks_from_start",
        flaw: "a server that starts counts ticks from then on, not from the last that was fired",
        broken: true,
        phases: &[TICKS],
        percent: 12,
        long_one_in: 1_000,
        caught_by: &["I26"],
        ..PLAIN
    },
    Mutant {
        name: "redrive_in_circles",
        flaw: "a redrive is also about those that die while it goes on, its own, too",
        broken: true,
        phases: &[REDRIVES],
        percent: 15,
        long_one_in: 1_000,
        caught_by: &["I27"],
        ..PLAIN
    },
    Mutant {
        name: "redrive_counts_first",
        flaw: "a redrive counts a task before it knows whether it can let it go",
        broken: true,
        phases: &[REDRIVES],
        percent: 15,
        long_one_in: 1_000,
        caught_by: &["I27"],
        ..PLAIN
    },
    Mutant {
        name: "unordered_batch",
        flaw: "a batch locks its tasks in the order it was given",
        caught_by: &["40P01"],
        ..PLAIN
    },
    Mutant {
        name: "no_guardian",
        flaw: "executors run on when their controller stands still past its lease",
        compiled: true,
        phases: &[FROZEN_CONTROLLERS],
        // Bodies that go on for ever in a process that nothing ends.
        pill_one_in: 100,
        percent: 150,
        caught_by: &["I9"],
        ..HOSTS
    },
    Mutant {
        name: "release_before_pidfd",
        flaw: "the neighbours of an attempt go back before its process has ended",
        compiled: true,
        // Many processes are killed that run bodies of others.
        pill_one_in: 100,
        caught_by: &["I9"],
        ..HOSTS
    },
    Mutant {
        name: "pdeathsig_of_a_thread",
        flaw: "executors are started by a thread that ends, and are killed with it",
        compiled: true,
        percent: 40,
        caught_by: &["I31"],
        ..HOSTS
    },
];

impl Mutant {
    /// The mutant of a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        MUTANTS.iter().find(|mutant| mutant.name == name)
    }

    /// The environment that enables the flaw in a process.
    pub fn environment(&self) -> Vec<(String, String)> {
        vec![("TUSKLINE_MUTANT".into(), self.name.into())]
    }

    /// Breaks the functions.
    pub async fn break_database(&self, client: &Client) -> anyhow::Result<()> {
        if self.broken {
            let breaks = Breaks::read().map_err(anyhow::Error::msg)?;
            let sql = breaks.sql_of("fault", self.name).map_err(anyhow::Error::msg)?;
            client.batch_execute(&sql).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_flaws_with_names_of_their_own() {
        let names: std::collections::HashSet<_> =
            MUTANTS.iter().map(|mutant| mutant.name).collect();
        assert_eq!(names.len(), 20);
    }

    #[test]
    fn every_flaw_in_the_sql_is_listed_as_a_break() {
        let breaks = Breaks::read().expect("lists that can be read");
        for mutant in MUTANTS {
            let sql = breaks.sql_of("fault", mutant.name);
            assert_eq!(sql.is_ok(), mutant.broken, "{}: {sql:?}", mutant.name);
        }
        let strange = breaks.names("fault").find(|name| Mutant::named(name).is_none());
        assert_eq!(strange, None, "a break names a mutant that is none");
    }
}
