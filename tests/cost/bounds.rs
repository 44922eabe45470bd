//! What a task may cost, beside what it did cost when that was written down.
//!
//! To renew: `cargo test --test cost -- --nocapture no_task` prints the figures, with TUSKLINE_PG_BIN
//! set to PostgreSQL 15 and then to 18. Write both down, and the greater one and a tenth as the bound;
//! more only where a figure depends on how tasks happen to meet in batches, with the reason. A change
//! that raises a bound says why in its commit.

/// What is counted, in the order of [`Bounds::costs`].
pub const KEYS: [&str; 4] =
    ["wal_bytes_per_task", "buffer_hits_per_task", "statements_per_task", "commits_per_task"];

/// One cost.
pub struct Cost {
    /// Measured with PostgreSQL 15.18.
    #[allow(dead_code)]
    pub on_15: f64,
    /// Measured with PostgreSQL 18.4; none where the wheel's server cannot count it.
    #[allow(dead_code)]
    pub on_18: Option<f64>,
    /// Above this, the gate is red.
    pub bound: f64,
}

/// A workload, as it is typed, and its costs.
pub struct Bounds {
    pub line: &'static str,
    pub costs: [Cost; 4],
}

const fn cost(on_15: f64, on_18: f64, bound: f64) -> Cost {
    Cost { on_15, on_18: Some(on_18), bound }
}

/// Statements are counted by an extension that the wheel's server lacks.
const fn counted_on_15(on_15: f64, bound: f64) -> Cost {
    Cost { on_15, on_18: None, bound }
}

#[rustfmt::skip]
pub const BOUNDS: [Bounds; 6] = [
    Bounds {
        line: "schedule-single --connections 1 --tasks 2000",
        costs: [cost(375.4, 375.5, 413.0), cost(10.9, 10.9, 12.0), counted_on_15(1.0, 1.1), cost(1.001, 1.001, 1.1)],
    },
    Bounds {
        line: "schedule-batch --tasks 20000 --batch 1000",
        costs: [cost(341.1, 341.3, 375.0), cost(10.43, 10.33, 11.5), counted_on_15(0.0011, 0.0013), cost(0.0011, 0.0011, 0.0013)],
    },
    Bounds {
        line: "copy --tasks 20000 --batch 1000",
        costs: [cost(341.1, 341.3, 375.0), cost(9.42, 9.47, 10.5), counted_on_15(0.0010, 0.0012), cost(0.0021, 0.0021, 0.0024)],
    },
    Bounds {
        line: "drain --tasks 20000",
        costs: [cost(223.7, 224.5, 247.0), cost(13.3, 9.4, 15.0), counted_on_15(0.0036, 0.005), cost(0.0037, 0.0036, 0.005)],
    },
    Bounds {
        // A worker that is faster than the scheduler makes more and smaller exchanges.
        line: "life --tasks 20000",
        costs: [cost(558.7, 560.5, 620.0), cost(24.0, 19.8, 28.0), counted_on_15(0.0046, 0.02), cost(0.0058, 0.0105, 0.02)],
    },
    Bounds {
        // On a busy machine neighbours share an exchange; on an idle one each has its own.
        line: "latency --rate 100 --seconds 3 --connections 2",
        costs: [cost(944.5, 963.0, 1150.0), cost(71.3, 76.4, 95.0), counted_on_15(3.07, 3.6), cost(4.10, 4.08, 5.0)],
    },
];
