//! A false wall clock that can be stepped while the server runs.
//!
//! libfaketime reads the offset from a file at every look at the wall clock. The monotonic clock
//! stays true: a step of it would be a fault that no machine has.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::Server;

/// The wall clock that a server sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Clock {
    /// The machine's.
    #[default]
    Machine,
    /// Its own, which [`Server::step_clock`] moves. Needs libfaketime: see
    /// [`Tools::faketime`](super::Tools::faketime).
    Stepped,
}

impl Server {
    /// Gives the server another clock, for its next start.
    ///
    /// # Errors
    /// When libfaketime is wanted and absent, or the server runs.
    pub fn wear(&mut self, clock: Clock) -> Result<()> {
        ensure!(!self.running(), "a running server keeps its clock");
        self.clock = clock;
        self.prepare_clock()
    }

    /// Moves the server's wall clock by `seconds`, back when negative, from where it is; every
    /// session sees it at its next look. Returns how far it is from the machine's by then. It stays
    /// there over a restart.
    ///
    /// # Errors
    /// When the server was not made with [`Clock::Stepped`].
    pub fn step_clock(&self, seconds: i64) -> Result<i64> {
        ensure!(self.clock == Clock::Stepped, "{} has the machine's clock", self.name);
        let offset = self.clock_offset()? + seconds;
        self.write_clock(offset)?;
        Ok(offset)
    }

    /// How far the server's wall clock is from the machine's, in seconds.
    ///
    /// # Errors
    /// As [`step_clock`](Self::step_clock).
    pub fn clock_offset(&self) -> Result<i64> {
        let text = std::fs::read_to_string(self.clock_file()).context("no clock of its own")?;
        Ok(text.trim().parse()?)
    }

    pub(super) fn prepare_clock(&self) -> Result<()> {
        if self.clock == Clock::Machine {
            return Ok(());
        }
        ensure!(self.site.tools().faketime.is_some(), "libfaketime is not installed");
        self.write_clock(0)
    }

    /// The environment that makes a server read the false clock.
    pub(super) fn clock_environment(&self) -> Vec<(&'static str, PathBuf)> {
        let library = self.site.tools().faketime.clone();
        let Some(library) = library.filter(|_| self.clock == Clock::Stepped) else {
            return Vec::new();
        };
        vec![
            ("LD_PRELOAD", library),
            ("FAKETIME_TIMESTAMP_FILE", self.clock_file()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("NO_FAKE_STAT", "1".into()),
        ]
    }

    fn clock_file(&self) -> PathBuf {
        self.dir.join("clock")
    }

    /// The file is replaced by a rename, so that no reader gets half an offset.
    fn write_clock(&self, offset_seconds: i64) -> Result<()> {
        let written = self.dir.join("clock.next");
        std::fs::write(&written, format!("{offset_seconds:+}\n"))?;
        self.site.account().own(&written)?;
        Ok(std::fs::rename(written, self.clock_file())?)
    }
}
