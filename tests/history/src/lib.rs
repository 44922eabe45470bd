//! Histories: the records of clients, executors, the database and the fault injector while Tuskline
//! runs under faults. None of them is trusted alone; `check-history` puts them together.
//!
//! A history is a directory of append-only files, one per process, one JSON object per line. A line
//! is one `write(2)`, so it survives SIGKILL of its writer; only a last line may be cut short.
//! Times are nanoseconds of CLOCK_MONOTONIC, which all processes of a host share and no fault
//! steps. The crate knows nothing of Tuskline's code: only of tasks, fences and statuses.
//!
//! [`Writer`] writes a history, [`check`] reports what it proves, [`tell`] prints the events of one
//! task.

mod by_task;
mod check;
mod checks;
mod event;
mod facts;
mod fill;
mod history;
mod percentiles;
mod print;
mod process;
mod read;
mod report;
mod span;
mod tale;
mod writer;

pub use check::{Invariant, Violation};
pub use checks::chains::Chains;
pub use checks::recovery::{Bounded, Recovery};
pub use checks::redrives::Redrives;
pub use checks::restores::Restores;
pub use checks::ticks::Ticks;
pub use checks::timeliness::Lateness;
pub use event::{Actor, Edge, Ended, Event, Line, LockAnswer, Role, Status, Verb};
pub use facts::{Periodic, Rate, Redrive, Settings};
pub use percentiles::Percentiles;
pub use report::{Report, check, check_phases};
pub use tale::{Tale, tell};
pub use writer::{Writer, now_ns};
