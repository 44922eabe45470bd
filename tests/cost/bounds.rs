//! What a task cost when that was written down, and how much more it may.
//!
//! To renew: `cargo test --test cost -- --nocapture no_task` prints the figures, with TUSKLINE_PG_BIN
//! set to PostgreSQL 15 and then to 18. Write both down. The bound is a tenth more; where tasks meet in
//! batches as it happens, or few commits are counted, it is wider, with the reason. A change that
//! raises a figure says why in its commit.

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
        costs: [cost(375.4, 375.5), cost(10.91, 10.86), statements(1.0), cost(1.001, 1.001)],
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
        costs: [cost(223.7, 225.5), cost(13.3, 9.30), statements(0.0027).room(1.3), cost(0.0028, 0.0029).room(1.3)],
    },
    Bounds {
        // A worker that is faster than the scheduler makes more and smaller exchanges.
        line: "life --tasks 20000",
        costs: [cost(558.7, 560.8), cost(24.0, 19.7).room(1.2), statements(0.0046).room(3.0), cost(0.0058, 0.0080).room(2.5)],
    },
    Bounds {
        // On a busy machine neighbours share an exchange; on an idle one each has its own.
        line: "latency --rate 100 --seconds 3 --connections 2",
        costs: [cost(944.5, 963.0).room(1.2), cost(71.3, 76.4).room(1.25), statements(3.07).room(1.2), cost(4.10, 4.08).room(1.2)],
    },
];
