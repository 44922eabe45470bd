//! Schedule Tuskline tasks and run the workers that execute them.
//!
//! Tuskline is an asynchronous task framework whose only moving part is PostgreSQL: the database is
//! the queue. This crate is the only thing an application links: [`Client`] schedules tasks, on a
//! pool or on your own transaction; [`Worker`] executes them.
//!
//! # A whole worker
//! A payload names its lambda. A lambda is an async function. `?` retries, and [`Failure`] says more.
//! ```no_run
//! use tuskline_sdk::{Context, Error, Failure, Payload, Worker};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Email {
//!     to: String,
//! }
//!
//! impl Payload for Email {
//!     const LAMBDA: &'static str = "send_email";
//! }
//!
//! async fn send_email(email: Email, context: Context) -> Result<(), Failure> {
//!     if !email.to.contains('@') {
//!         return Err(Failure::fatal("not an address")); // never again
//!     }
//!     println!("task {} attempt {}: mail to {}", context.task(), context.attempt(), email.to);
//!     Ok(())
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Error> {
//!     Worker::builder("postgresql://localhost/app").lambda(send_email).run().await
//! }
//! ```
//!
//! # Scheduling, in the transaction that makes the order
//! ```no_run
//! # #[derive(serde::Serialize, serde::Deserialize)] struct Email { to: String }
//! # impl tuskline_sdk::Payload for Email { const LAMBDA: &'static str = "send_email"; }
//! # async fn order(client: &tuskline_sdk::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use tuskline_sdk::{Client, Payload, Priority};
//!
//! let mut connection = client.connection().await?;
//! let mut transaction = connection.transaction().await?;
//! transaction.execute("insert into purchase values ($1)", &[&7_i64]).await?;
//! let email = Email { to: "ada@example.org".into() };
//! let task = email.after(Duration::from_secs(60)).priority(Priority::High);
//! let id = Client::within(&mut transaction).schedule(task).await?;
//! transaction.commit().await?; // both, or neither
//! connection.confirm()?; // and on the synchronous standby, if there is one
//! println!("task {id}");
//! # Ok(()) }
//! ```
//!
//! # What is promised
//! An accepted task is executed at least once, and never twice at the same time as long as this
//! process's watchdog thread gets to run: a worker whose heartbeats fail stops its bodies before its lease
//! ends, and ends itself where one does not stop. Results of an attempt that was taken over are refused. Any
//! `Err` is retried with exponential backoff; a panic too; a payload that does not decode fails that task
//! only.

#[cfg(feature = "sqlx")]
pub use sqlx;
#[cfg(feature = "otlp")]
pub use tracing_subscriber;
pub use {chrono, deadpool_postgres, serde_json, tokio_postgres};

mod client;
mod db;
mod error;
#[cfg(feature = "metrics")]
#[doc(hidden)]
pub mod metrics;
#[cfg(feature = "otlp")]
mod otlp;
mod task;
mod trace;
mod worker;

pub use client::builder::ClientBuilder;
pub use client::chain::{
    CancelledChain, Chain, Node, On, OnParentFailure, Parent, ParentTask, Scheduled, ScheduledBatch,
};
pub use client::connection::Connection;
pub use client::definition::{
    Archive, Breaker, DefinedLambda, Definition, DefinitionOutcome, Definitions, Gate, Limit,
    OnDuplicate, OnFailure, SettingChange, Throttle, Unique,
};
pub use client::new_task::NewTask;
pub use client::operation::{Action, Operation, OperationPreview, OperationProgress};
pub use client::payload::{IntoTask, Payload};
pub use client::periodic::{Defined, Missed, Overlap, Periodic};
pub use client::session::Transaction;
pub use client::session::adapter::{Adapter, AdapterError, AdapterValue};
pub use client::status::{Cancelled, Reason, Retried, TaskStatus};
#[doc(hidden)]
pub use client::verbs;
pub use client::{BATCH_MAX, Client, InTransaction, OnPool, TransactionClient};
#[doc(hidden)]
pub use db::address::host_name;
pub use db::address::{Address, IntoAddress, InvalidAddress};
#[doc(hidden)]
pub use db::backoff::Backoff;
#[doc(hidden)]
pub use db::connect::drive;
#[doc(hidden)]
pub use db::json::check_payload;
#[doc(hidden)]
pub use db::low_water_mark::{Around, LowWaterMark};
#[doc(hidden)]
pub use db::multi_host::connect_in_turn;
#[doc(hidden)]
pub use db::version::SchemaCompatibility;
pub use db::version::{OLDEST_SCHEMA, SCHEMA_VERSION};
pub use error::{Code, Error, ErrorKind, TlsRefusal};
#[cfg(feature = "otlp")]
pub use otlp::Otlp;
pub use task::{Fence, GateId, LimitId, OperationId, Priority, Privilege, Status, TaskId};
pub use worker::Worker;
pub use worker::arguments::{Arguments, FromContext};
pub use worker::builder::WorkerBuilder;
pub use worker::config::WorkerConfig;
pub use worker::context::Context;
pub use worker::data::Data;
#[doc(hidden)]
pub use worker::data::DataMap;
#[doc(hidden)]
pub use worker::host::Host;
pub use worker::lambda::{BlockingFn, Lambda, LambdaFn};
pub use worker::layer::{Attempt, Body, Layer, Service};
pub use worker::outcome::{Failure, IntoOutcome, Outcome};
#[doc(hidden)]
pub use worker::statistics::EDGES_MS;
pub use worker::trace_layer::{TraceLayer, Traced};
pub use worker::work::StopReason;
