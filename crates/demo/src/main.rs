//! The demo is the main task of Tuskline on real input: one `checksum_file` task per file of a
//! directory, two worker processes, one of which is killed midway, and a count of what came of it.
//!
//! Promises: what it says of lost and overlapping executions is computed from what the executors
//! wrote down themselves and from a checksum pass of its own, never from the database under test
//! alone; nothing it started is left running. Must never: report success it has not verified.

mod accounts;
mod checksum;
mod cli;
mod files;
mod progress;
mod psql;
mod record;
mod report;
mod run;
mod schedule;
mod verdict;
mod worker;

fn main() -> std::process::ExitCode {
    tuskline::cli::run::<cli::Demo>()
}
