//! Integration tests: the task store's guarantees, one file each, against a real PostgreSQL.
//!
//! Files are named for guarantees, tests are named as facts. Every test has a database of its own,
//! cloned from a migrated template in one throw-away cluster per run. Time is pinned where time
//! matters; nothing sleeps to synchronise, and every wait has a deadline.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod at_least_once;
mod cancel;
mod cli;
mod demo;
mod due_times;
mod failures;
mod matrix;
mod no_concurrent_execution;
mod retries;
mod scheduling;
mod stale_results;
mod support;
