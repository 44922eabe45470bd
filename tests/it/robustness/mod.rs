//! The same guarantees in the presence of a fault. A process, a session, a server, a standby or a
//! clock fails; a database is restored; rows are locked. Or many sessions race, or inputs are huge.
//!
//! A test belongs here when it causes such a fault, unless it is about a policy.

mod at_least_once;
mod clock_steps;
mod collectors;
mod concurrency;
mod crash_recovery;
mod diagnoses;
mod doubtful_commits;
mod drawn_ids;
mod failures;
mod fenced_bodies;
mod fenced_writes;
mod few_connections;
mod health;
mod held_results;
mod installation;
mod invariants;
mod large_payloads;
mod locked_rows;
mod lost_answers;
mod lost_rights;
mod many;
mod many_lambdas;
mod no_concurrent_execution;
mod no_concurrent_workers;
mod outages;
mod passing;
mod processes;
mod rebuild;
mod repair;
mod restored_copies;
mod server_troubles;
mod silent_executors;
mod stale_results;
mod stalled;
mod store_consumers;
mod strangers;
mod upgrades;
