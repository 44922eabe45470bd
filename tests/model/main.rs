//! Model tests: the task store's verbs against a transition table written by hand, and against every
//! order in which a few sessions can take their steps.
//!
//! [`machine`] makes up sequences of verbs by several actors and compares PostgreSQL with the
//! [`state`] after each; [`interleave`] runs all permutations of the steps of named sessions. Both are
//! shown to find bugs by breaking the SQL: [`breaks`], `interleave/red.rs`. Nothing here may ask the
//! SQL what is right.
//!
//! `TUSKLINE_MODEL_CASES` says how many sequences, `TUSKLINE_MODEL_SEED` which; `./x model` runs
//! more than `./x test`.

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
