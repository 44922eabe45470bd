//! Tuskline's server: store consumer, periodic tasks, janitor and migrations. By features:
//!
//! - `serve`: all roles in one process ([`serve`]) with their probes ([`health`]).
//! - `pages`: pages for people ([`pages`]) and the Frontend by RPC ([`rpc`]), which `serve` answers, too.
//! - `controller`: lambdas in processes of any language ([`controller`]).
//! - `cli`: the command line, with `pages` and `controller`.
//! - `dev`: its commands `tuskline dev` and `tuskline conform`, which start a private PostgreSQL.
//!
//! `tuskline-testing`, the kit for applications' tests, needs none of them.

pub mod archive;
#[cfg(feature = "cli")]
pub mod cli;
pub mod config;
#[cfg(feature = "controller")]
pub mod controller;
#[cfg(feature = "pages")]
mod doctor;
pub mod duration;
#[cfg(feature = "pages")]
mod facts;
#[cfg(feature = "serve")]
pub mod health;
#[cfg(feature = "pages")]
mod identity;
#[cfg(feature = "pages")]
mod ids;
pub mod janitor;
#[cfg(feature = "serve")]
pub mod metrics;
pub mod migrate;
#[cfg(feature = "pages")]
pub mod pages;
pub mod periodic;
#[cfg(feature = "serve")]
pub mod port_tls;
pub mod recovery;
#[cfg(feature = "pages")]
pub mod rpc;
#[cfg(feature = "serve")]
pub mod serve;
pub mod session;
pub mod store;
pub mod store_consumer;
