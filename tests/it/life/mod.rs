//! The life of a task: accepted, due, claimed, executed, ended, kept for a while, deleted.
//!
//! A test belongs here when no other room claims it. `main.rs` states the order of the rooms.

mod archive;
mod attempts;
mod cells;
mod crashes;
mod drain;
mod due_times;
mod effects;
mod long_tasks;
mod low_water;
mod matrix;
mod progress;
mod queue_watch;
mod registration;
mod retention;
pub mod retention_by_status;
mod retention_needs;
mod retries;
mod scheduling;
mod statistics;
mod traces;
mod typed_lambdas;
mod wake;
mod wake_stream;
mod wake_up;
mod worker_runs;
