//! Model tests: the task store's verbs against a transition table written by hand. They also run
//! against every order in which a few sessions can take their steps.
//!
//! [`machine`] generates sequences of verbs by several actors and compares PostgreSQL with the
//! [`state`] after each. [`interleave`] runs all permutations of the steps of named sessions. Both
//! are shown to find bugs by breaking the SQL: [`breaks`], `interleave/red.rs`. Nothing here may
//! ask the SQL for the right answer.
//!
//! `TUSKLINE_MODEL_CASES` sets how many sequences run, `TUSKLINE_MODEL_SEED` which ones; `./x
//! model` runs more than `./x test`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod acts;
mod breaks;
mod choice;
mod compare;
mod interleave;
mod machine;
mod sight;
mod state;
mod step;
mod store;
mod tally;

#[path = "../it/support/mod.rs"]
mod support;
