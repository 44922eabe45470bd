//! What a task cost when that was written down, and how much more it may.
//!
//! To renew: `cargo test --test cost -- --nocapture no_task` prints the figures, with TUSKLINE_PG_BIN
//! set to PostgreSQL 15 and then to 18. Write down the medians of five on each. The bound is a tenth
//! more; where tasks meet in batches as it happens, or few commits are counted, it is wider, with the
//! reason. A change that raises a figure says why in its commit.

/// What is counted, in the order of [`Bounds::costs`].
pub const KEYS: [&str; 4] =
    ["wal_bytes_per_task", "buffer_hits_per_task", "statements_per_task", "commits_per_task"];

/// One cost.
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
        line: "schedule-single --connections 1 --tasks 2000",
        costs: [cost(375.4, 375.5), cost(10.77, 10.71), statements(1.0), cost(1.001, 1.001)],
    },
    Bounds {
        // A report has four decimals: 0.0011 are 21 to 23 commits.
        line: "schedule-batch --tasks 20000 --batch 1000",
        costs: [cost(341.1, 341.3), cost(10.43, 10.33), statements(0.0011).room(1.2), cost(0.0011, 0.0011).room(1.2)],
    },
    Bounds {
        line: "copy --tasks 20000 --batch 1000",
        costs: [cost(341.1, 341.3), cost(9.42, 9.47), statements(0.0010).room(1.2), cost(0.0021, 0.0021)],
    },
    Bounds {
        // A worker on a busy machine takes more looks at an empty queue.
        line: "drain --tasks 40000",
        costs: [cost(221.9, 226.6), cost(13.3, 9.26), statements(0.0028).room(1.3), cost(0.0029, 0.0029).room(1.3)],
    },
    Bounds {
        // A worker that is faster than the scheduler makes more and smaller exchanges.
        line: "life --tasks 20000",
        costs: [cost(563.2, 563.3), cost(23.6, 19.6).room(1.2), statements(0.0070).room(2.5), cost(0.0077, 0.0069).room(2.5)],
    },
    Bounds {
        // On a busy machine neighbours share an exchange; on an idle one each has its own.
        line: "latency --rate 100 --seconds 3 --connections 2",
        costs: [cost(863.6, 927.6).room(1.25), cost(69.1, 74.8).room(1.25), statements(3.15).room(1.3), cost(4.15, 4.05).room(1.3)],
    },
];
