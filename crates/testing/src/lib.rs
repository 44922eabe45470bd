//! For the tests of applications: a database for each test, a clock that the test turns, ways to execute
//! what was scheduled, and assertions about it. Add `tuskline-testing` to the `dev-dependencies`, beside
//! `tuskline-sdk` among the dependencies.
//!
//! Everything under test is real: PostgreSQL, started by the first test that needs it and stopped
//! with the process (see [`tuskline_postgres`]), the verbs, a worker of the SDK with the lambdas that
//! it is given, a store consumer. Nothing is imitated but the time.
//!
//! # A whole test
//! ```no_run
#![doc = include_str!("../tests/kit/example.rs")]
//! ```
//!
//! # A database for each test
//! [`Database::new`] clones a migrated database in a fraction of a second. Tests that run beside each other
//! see nothing of each other. Tables of your own live in the same one: [`Database::run`] makes them. On a
//! machine without PostgreSQL's programs, or where each test is a process of its own, set
//! `TUSKLINE_TEST_DATABASE_URL` to a server on which databases may be made. A [`Database`] that is
//! dropped is deleted, with whatever is still connected to it.
//!
//! # Ways to execute
//! - [`Database::drain`] executes all that is due, and what follows from that, and says what became of it. What
//!   is due later stays. Most tests want this one.
//! - [`Database::inline`] keeps a worker at work beside the test: what a client schedules is executed at once.
//!   [`Inline::run`] schedules one task, waits for its attempt, and makes its failure an error.
//! - [`Database::perform`] calls one body, without a task.
//! - None of them: what was scheduled can be asserted and never executed.
//!
//! # Time
//! [`Database::pin`] stops the clock that decides what is due, [`Database::advance`] turns it: an hour's delay, a
//! retry's backoff and a night's tick take no time. It is `tuskline.clock()`, in this database only; `now()` in
//! your own SQL goes on, and so do leases, heartbeats and the deadlines of bodies. Ticks of a schedule that the
//! clock jumps over by more than their grace are missed ones, as after an hour without a server:
//! [`Database::pin_at`] them. Tokio's own paused time is no help here: under it, calls to the database time out.
//!
//! # Assertions
//! An assertion about tasks is a look, which waits for the database, and a finish, which does not and so tells
//! the line of the test that failed: `db.scheduled("send_mail").await?.with(json!({ "to": "ada" })).once()`. When
//! it fails it shows what there is instead, the nearest first.

mod clock;
mod conditions;
mod database;
mod drain;
mod error;
mod inline;
mod left;
mod report;
mod server;
mod task;
mod tasks;
mod workers;

pub use conditions::DueIn;
pub use database::Database;
pub use drain::{Drained, Limit};
pub use error::Error;
pub use inline::Inline;
pub use server::URL_VARIABLE;
pub use task::{Failure, Task};
pub use tasks::Tasks;
