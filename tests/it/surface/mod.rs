//! The surface that callers, operators and readers rely on. It has refusals, the command line,
//! views, grants, settings and clients of other languages. It has documents, examples, the schema's
//! text, costs and plans.
//!
//! A test stands here when it checks the text, the shape or the price of something that works.

mod attacks;
mod bad_input;
mod board;
mod callers;
mod cli;
mod clients;
mod conform;
mod costs;
mod doctor;
mod documents;
pub mod examples;
mod executors_input;
mod explain;
mod functions;
mod inserts;
mod logs;
mod metrics;
mod migrate_refusals;
mod names;
mod packaging;
mod pages;
mod pages_attacks;
mod pages_bounds;
mod pages_search;
mod pages_time;
mod payload_types;
mod plan;
mod plans;
mod publications;
mod registry;
mod rights;
mod roles;
mod rpc;
mod rpc_attacks;
mod settings;
mod stats;
mod tls;
mod top;
mod transactions_of_adapters;
mod transactions_of_sqlx;
mod two_phase;
mod uninstall;
mod views;
mod walk;
mod worker_input;
