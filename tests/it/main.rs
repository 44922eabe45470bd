//! Integration tests: the task store's guarantees, one file each, against a real PostgreSQL.
//!
//! Files are named for guarantees, tests are named as facts. The files stand in five folders,
//! called rooms. A file belongs to the first room whose rule fits. `runbooks` performs a page of
//! docs/runbooks. `control` has a policy or an act of an owner. `robustness` causes a fault.
//! `surface` checks a text, a shape or a price. `life` has everything else. Lists of breaks and
//! documents name a test `file::test`, without its room; no two rooms have a file of one name.
//!
//! Every test has a database of its own, cloned from a migrated template in one throw-away cluster
//! per run. Time is pinned where time matters; nothing sleeps to synchronise, and every wait has a
//! deadline.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod breaks;
mod control;
mod life;
mod robustness;
mod runbooks;
mod support;
mod surface;
