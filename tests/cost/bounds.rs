//! The recorded cost of a task, and its bound.
//!
//! To renew: `cargo test --test cost -- --nocapture no_task` prints the figures, with
//! TUSKLINE_PG_BIN set to PostgreSQL 15 and then to 18. Write down the medians of five on each. The
//! bound is a tenth more. It is wider, with the reason, where batches form by chance or few commits
//! are counted. The commit that raises a figure explains it.

/// The costs that are counted, in the order of [`Bounds::costs`].
pub const KEYS: [&str; 4] =
    ["wal_bytes_per_task", "buffer_hits_per_task", "statements_per_task", "commits_per_task"];

/// A cost.
pub struct Cost {
    /// Measured with PostgreSQL 15.18.
    on_15: f64,
    /// Measured with PostgreSQL 18.4.
    on_18: f64,
    /// The bound, as a multiple of that.
    room: f64,
}

/// A workload, as it is typed, and its costs.
pub struct Bounds {
    pub line: &'static str,
    pub costs: [Cost; 4],
}

impl Cost {
    /// Above this the gate is red, on a server of that major version.
    pub fn bound(&self, major: u32) -> f64 {
        let measured = match major {
            15 => self.on_15,
            18 => self.on_18,
            _ => self.on_15.max(self.on_18),
        };
        measured * self.room
    }

    const fn room(self, room: f64) -> Self {
        Self { room, ..self }
    }
}

/// Measured on 15 and on 18, with the usual room.
const fn cost(on_15: f64, on_18: f64) -> Cost {
    Cost { on_15, on_18, room: 1.1 }
}

/// Statements are counted on 15 only: the server of the wheel lacks the extension.
const fn statements(on_15: f64) -> Cost {
    cost(on_15, on_15)
}

#[rustfmt::skip]
pub const BOUNDS: [Bounds; 6] = [
    Bounds {
        line: "singles --connections 1 --tasks 2000",
        costs: [cost(375.3, 375.3), cost(11.73, 11.65), statements(1.0), cost(1.001, 1.001)],
    },
    Bounds {
        // A report has four decimals: 0.0011 are 21 to 23 commits.
        line: "schedule-batch --tasks 20000 --batch 1000",
        costs: [cost(341.1, 341.3), cost(10.44, 10.33), statements(0.0011).room(1.2), cost(0.0011, 0.0011).room(1.2)],
    },
    Bounds {
        line: "copy --tasks 20000 --batch 1000",
        costs: [cost(341.1, 341.2), cost(9.43, 9.47), statements(0.0010).room(1.2), cost(0.0021, 0.0021)],
    },
    Bounds {
        // A worker on a busy machine takes more looks at an empty queue: 0.0037 with four times the load.
        line: "drain --tasks 40000",
        costs: [cost(224.9, 230.4), cost(13.17, 9.16), statements(0.0028).room(1.6), cost(0.0028, 0.0029).room(1.6)],
    },
    Bounds {
        // A worker that is faster than the scheduler makes more and smaller exchanges.
        line: "life --tasks 20000",
        costs: [cost(566.7, 566.4), cost(23.7, 19.6).room(1.2), statements(0.0064).room(2.5), cost(0.0069, 0.0090).room(2.5)],
    },
    Bounds {
        // On a machine with four times its possible load there were 3.8 statements, 4.8 commits and
        // 75.2 pages. The worker looks again for rows that commit late, and each look reads pages.
        // Some 50 pages a task are steady; the others are the catalogue reads of new sessions:
        // 11,000.
        line: "latency --rate 100 --seconds 10 --connections 2",
        costs: [cost(954.8, 954.9), cost(61.0, 62.0).room(1.2), statements(3.02).room(1.35), cost(4.08, 4.08).room(1.35)],
    },
];
