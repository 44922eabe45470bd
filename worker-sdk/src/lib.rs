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

mod client;
mod db;
mod error;
mod task;
mod worker;

pub use client::chain::{Chain, Node, On, OnParentFailure, Parent, ParentTask, Scheduled};
pub use client::connection::Connection;
pub use client::new_task::NewTask;
pub use client::operation::{Action, Operation, OperationPreview, OperationProgress};
pub use client::periodic::{Defined, Missed, Overlap, Periodic};
pub use client::status::{Cancelled, Reason, Retried, TaskStatus};
pub use client::{BATCH_MAX, Client, TransactionClient};
pub use db::address::{Address, InvalidAddress};
#[doc(hidden)]
pub use db::backoff::Backoff;
#[doc(hidden)]
pub use db::connect::drive;
#[doc(hidden)]
pub use db::low_water_mark::{Around, LowWaterMark};
#[doc(hidden)]
pub use db::multi_host::connect_in_turn;
pub use db::tls::refusal::TlsRefusal;
pub use db::version::{SCHEMA_VERSION, SchemaCompatibility};
pub use error::Error;
pub use task::{Fence, Priority, Status, TaskId};
pub use worker::Worker;
pub use worker::config::WorkerConfig;
pub use worker::context::Context;
pub use worker::lambda::Lambda;
pub use worker::outcome::{IntoOutcome, Outcome};
