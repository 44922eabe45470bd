//! Tuskline's server: store consumer, periodic tasks, janitor, migrations and, by features, what serves them.
//!
//! - `serve`: all roles in one process ([`serve`]) with their probes ([`health`]).
//! - `cli`: the command line, with `serve`.
//! - `dev`: its command `tuskline dev`, which starts a private PostgreSQL.
//!
//! Without features it is what the kit for the tests of applications stands on.

pub mod archive;
#[cfg(feature = "cli")]
pub mod cli;
pub mod config;
pub mod duration;
#[cfg(feature = "serve")]
pub mod health;
pub mod janitor;
pub mod migrate;
pub mod periodic;
pub mod recovery;
#[cfg(feature = "serve")]
pub mod serve;
pub mod session;
pub mod store;
pub mod store_consumer;
