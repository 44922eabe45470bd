//! Integration tests: the task store's guarantees, one file each, against a real PostgreSQL.
//!
//! Files are named for guarantees, tests are named as facts. Every test has a database of its own,
//! cloned from a migrated template in one throw-away cluster per run. Time is pinned where time
//! matters; nothing sleeps to synchronise, and every wait has a deadline.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod archive;
mod at_least_once;
mod attempts;
mod bad_input;
mod bench;
mod breaker;
mod bulk;
mod cancel;
mod chain_sequences;
mod chains;
mod cli;
mod clock_steps;
mod concurrency;
mod control_input;
mod control_sequences;
mod costs;
mod crash_recovery;
mod dead_letters;
mod demo;
mod doubtful_commits;
mod drain;
mod due_times;
mod explain;
mod failures;
mod fenced_bodies;
mod fenced_writes;
mod functions;
mod gates;
mod held_results;
mod limits;
mod locked_rows;
mod long_tasks;
mod lost_answers;
mod low_water;
mod many;
mod matrix;
mod mutants;
mod no_concurrent_execution;
mod no_concurrent_workers;
mod orders;
mod owners;
mod passing;
mod periodic;
mod periodic_servers;
mod plans;
mod priorities;
mod progress;
mod purge;
mod readme;
mod rebuild;
mod redrive;
mod retention;
mod retention_by_status;
mod retention_needs;
mod retries;
mod scheduling;
mod silent_executors;
mod stale_results;
mod stalled;
mod store_consumers;
mod support;
mod testing_kit;
mod unique_keys;
mod views;
mod wake;
mod wake_up;
mod worker_chains;
mod worker_runs;
