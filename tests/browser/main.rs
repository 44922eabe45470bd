//! Tests of the pages in a browser: headless Chromium opens each page, and people act in it.
//!
//! [`chromium`] starts the browser and speaks its protocol over a pipe, so no port is open and no
//! library is linked. [`tab`] is a page with its keys, clicks and complaints. [`shop`] makes the data.
//! `./x browser` runs them; plain `cargo test` says that they are ignored, as a machine may have no
//! Chromium.
//!
//! Nothing here sleeps: each wait has a deadline, and the timers of a page run by virtual time.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod chromium;
mod incident;
mod keys;
mod live;
mod looks;
mod plain;
mod sheets;
mod shop;
mod tab;

#[path = "../it/support/mod.rs"]
mod support;
