//! Schedule Tuskline tasks and run the workers that execute them.
//!
//! Tuskline is an asynchronous task framework whose only moving part is PostgreSQL: the database is
//! the queue. This crate is the only thing an application links: [`Client`] schedules tasks, on a
//! pool or on your own transaction; [`Worker`] executes them.
//!
//! # A whole worker
//! ```no_run
//! use tuskline_sdk::{Context, Error, Lambda, Outcome, Worker};
//!
//! #[derive(serde::Deserialize)]
//! struct Email {
//!     to: String,
//! }
//!
//! async fn send_email(email: Email, context: Context) -> Outcome {
//!     if !email.to.contains('@') {
//!         return Outcome::fatal("not an address");
//!     }
//!     println!("task {} attempt {}: mail to {}", context.task(), context.attempt(), email.to);
//!     Outcome::Success(None)
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Error> {
//!     Worker::new("postgresql://localhost/app")?
//!         .lambda(Lambda::new("send_email", send_email))
//!         .run()
//!         .await
//! }
//! ```
//!
//! # Scheduling, in the transaction that makes the order
//! ```no_run
//! # async fn order(client: &tuskline_sdk::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use tuskline_sdk::{Client, NewTask, Priority};
//!
//! let mut connection = client.connection().await?;
//! let transaction = connection.transaction().await?;
//! transaction.execute("insert into purchase values ($1)", &[&7_i64]).await?;
//! let task = NewTask::new("send_email", &serde_json::json!({ "to": "ada@example.org" }))?
//!     .priority(Priority::High)
//!     .after(Duration::from_secs(60));
//! let id = Client::within(&*transaction).schedule(&task).await?;
//! transaction.commit().await?; // both, or neither
//! connection.confirm()?; // and on the synchronous standby, if there is one
//! println!("task {id}");
//! # Ok(()) }
//! ```
//!
//! # What is promised
//! An accepted task is executed at least once, and never twice at the same time as long as this
//! process's watchdog thread gets to run: a worker whose heartbeats fail stops its bodies before its lease
//! ends, and ends itself where one does not stop. Results of an attempt that was taken over are refused. Any `Err` is retried with
//! exponential backoff; a panic too; a payload that does not decode fails that task only.

mod backoff;
mod bodies;
mod chain;
mod client;
mod config;
mod connect;
mod connection;
mod connections;
mod context;
mod controller;
mod database;
mod doubt;
mod enlist;
mod error;
mod executor;
mod heartbeat;
mod hosts;
mod hsc;

mod admin;
mod json;
mod lambda;
mod lane;
mod low_water_mark;
mod outcome;
mod perform;
mod progress;
mod pulse;
mod queue_watch;
mod registered;
mod shutdown;
mod side;
mod status;
mod task;
mod threads;
#[cfg(mutants)]
mod twin;
mod version;
mod wait;
mod watchdog;
mod work;
mod worker;

pub use admin::{
    Action, Defined, Missed, Operation, OperationPreview, OperationProgress, Overlap, Periodic,
};
#[doc(hidden)]
pub use backoff::Backoff;
pub use chain::{Chain, Node, On, OnParentFailure, Parent, ParentTask, Scheduled};
pub use client::{BATCH_MAX, Client, TransactionClient};
pub use config::WorkerConfig;
#[doc(hidden)]
pub use connect::drive;
pub use connection::Connection;
pub use context::Context;
pub use error::Error;
pub use hosts::connect_in_turn;
pub use lambda::Lambda;
#[doc(hidden)]
pub use low_water_mark::{Around, LowWaterMark};
pub use outcome::{IntoOutcome, Outcome};
pub use status::{Cancelled, Reason, Retried, TaskStatus};
pub use task::{Fence, NewTask, Priority, Status, TaskId};
pub use version::{SCHEMA_VERSION, SchemaCompatibility};
pub use worker::Worker;
