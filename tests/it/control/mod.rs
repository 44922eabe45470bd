//! Policies and acts of owners: gates, limits, orders, dependencies, unique keys, breakers,
//! priorities and periodic schedules; cancel, operations, dead letters, redrive and purge.
//!
//! A test stands here when it is about one of these, even if it checks a refusal or a crash.

mod breaker;
mod cancel;
mod chain_sequences;
mod chains;
mod control_input;
mod control_sequences;
mod crons;
mod dead_letters;
mod definitions;
mod erase;
mod gates;
mod limits;
mod operation;
mod orders;
mod owners;
mod periodic;
mod periodic_servers;
mod priorities;
mod purge;
mod redrive;
mod unique_keys;
mod worker_chains;
