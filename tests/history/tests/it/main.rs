//! A check that has never been seen red is not a check. Each invariant of `check-history` meets a
//! handmade history that violates it, and the same history repaired.

#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod acceptance;
mod command;
mod endings;
mod executions;
mod executors;
mod files;
mod healthy;
mod redrives;
mod restores;
mod starts;
mod story;
mod ticks;
