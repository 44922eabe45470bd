//! Integration tests: the task store's guarantees, one file each, against a real PostgreSQL.
//!
//! Files are named for guarantees, tests are named as facts. Every test has a database of its own,
//! cloned from a migrated template in one throw-away cluster per run. Time is pinned where time
//! matters; nothing sleeps to synchronise, and every wait has a deadline.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod at_least_once;
mod crash_recovery;
mod drain;
mod long_tasks;
mod lost_answers;
mod many;
mod matrix;
mod no_concurrent_execution;
mod no_concurrent_workers;
mod priorities;
mod stale_results;
mod support;
mod wake_up;
mod worker_runs;
