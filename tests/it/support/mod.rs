//! The support of the tests: a database for each test, a clock that the test sets, workers scripted
//! in SQL.

// The file of a guarantee takes what it needs.
#![allow(dead_code, unused_imports)]

pub mod cli;
mod clock;
mod cluster;
pub mod company;
mod db;
mod end_listener;
pub mod help;
pub mod host;
mod http;
pub mod page;
pub mod pages;
mod process;
pub mod program;
pub mod pty;
mod record;
pub mod rpc;
mod scripted_worker;
mod sqlx_pool;
mod worker;

use std::time::Duration;

pub use cluster::{cell, own_cluster, own_cluster_with, settings, shared, superuser};
pub use db::{Db, refusal};
pub use end_listener::EndListener;
pub use http::{ask, free_address, get, served, served_pages};
pub use process::Process;
pub use record::{Execution, Record, assert_no_overlap, now_ns};
pub use scripted_worker::{Answer, LEASE, ScriptedWorker, Task, ids_and_fences, tasks};
pub use sqlx_pool::sqlx_pool;
pub use worker::{Gate, HEARTBEAT, Running, Stopped, calm, mortal, quick};

/// Longest wait for anything in a test.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// The result of something that must come; a test fails rather than hang.
pub async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, what).await.expect("it came within the deadline")
}
