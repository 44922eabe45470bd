//! Figures of Tuskline's source, each beside its target.
//!
//! [`figures`] computes all of them from two sources. Some come from the files of a checkout
//! ([`rust`], [`sql`], [`words`]). Others come from the functions that a migration makes in a private
//! PostgreSQL ([`database`], [`graph`]).
//!
//! Promises: the same source gives the same figures. Must never: write into the checkout.

pub mod arrows;
pub mod database;
pub mod figures;
pub mod graph;
pub mod imports;
pub mod rust;
pub mod sql;
#[cfg(test)]
mod tests;
mod tree;
pub mod words;

pub use tree::Tree;
