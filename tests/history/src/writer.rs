//! The writing side.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use crate::{Actor, Event, Line};

/// Appends to one file of a history. Cheap to clone, safe to share between threads.
#[derive(Debug, Clone)]
pub struct Writer {
    file: Arc<File>,
}

impl Writer {
    /// Makes a file of this process in the history's directory `dir`.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn open(dir: &Path, actor: Actor) -> io::Result<Self> {
        let pid = std::process::id();
        let name = format!("{}-{pid}-{}.jsonl", word(actor), now_ns());
        let file = OpenOptions::new().create_new(true).append(true).open(dir.join(name))?;
        let writer = Self { file: Arc::new(file) };
        writer.try_note(Event::Opened { actor, pid })?;
        Ok(writer)
    }

    /// Writes an event down, with one `write(2)`.
    ///
    /// # Panics
    /// When it cannot: a history with holes proves nothing.
    pub fn note(&self, event: Event) {
        self.note_at(now_ns(), event);
    }

    /// The same for an event whose moment was taken before.
    ///
    /// # Panics
    /// As [`Writer::note`].
    pub fn note_at(&self, at: u64, event: Event) {
        if let Err(error) = self.write(&Line { at, event }) {
            panic!("the history cannot be written: {error}");
        }
    }

    fn try_note(&self, event: Event) -> io::Result<()> {
        self.write(&Line { at: now_ns(), event })
    }

    fn write(&self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        (&*self.file).write_all(&text)
    }
}

fn word(actor: Actor) -> &'static str {
    match actor {
        Actor::Client => "client",
        Actor::Executor => "executor",
        Actor::Hosted => "hosted",
        Actor::Injector => "injector",
        Actor::Database => "database",
    }
}

/// Nanoseconds of CLOCK_MONOTONIC, the same clock for every process of this host.
#[must_use]
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
