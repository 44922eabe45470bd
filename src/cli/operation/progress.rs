//! How far an operation has come: a bar on a terminal, a line now and then elsewhere.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Time between two lines.
const EVERY: Duration = Duration::from_secs(5);

/// A bar that goes when it is dropped.
pub struct Progress {
    bar: Option<ProgressBar>,
    said: Instant,
}

impl Progress {
    /// For an operation on about so many tasks.
    pub fn new(about: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(about);
            if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {wide_msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self { bar, said: Instant::now() }
    }

    /// So many looked at, and so many of these changed.
    pub fn show(&mut self, looked: i64, changed: i64) {
        if let Some(bar) = &self.bar {
            let looked = looked.unsigned_abs();
            // The statistics may be old.
            bar.set_length(bar.length().unwrap_or(0).max(looked));
            bar.set_position(looked);
            bar.set_message(format!("{changed} changed"));
        } else if self.said.elapsed() >= EVERY {
            self.said = Instant::now();
            eprintln!("looked at {looked} tasks, changed {changed}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
