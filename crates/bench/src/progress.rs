//! The live line: a bar on a terminal, nothing elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar that goes when it is dropped.
pub(super) struct Progress(Option<ProgressBar>);

impl Progress {
    /// A bar of `total` steps under a name.
    pub(super) fn new(what: &str, total: u64, quiet: bool) -> Self {
        let shown = !quiet && std::io::stderr().is_terminal();
        Self(shown.then(|| {
            let bar = ProgressBar::new(total);
            if let Ok(style) = ProgressStyle::with_template("{msg:24} {bar:24} {pos}/{len} {eta}") {
                bar.set_style(style);
            }
            bar.set_message(what.to_owned());
            bar
        }))
    }

    /// So many steps further.
    pub(super) fn further(&self, steps: u64) {
        if let Some(bar) = &self.0 {
            bar.inc(steps);
        }
    }

    /// Sleeps, a step a second.
    pub(super) async fn sleep(&self, seconds: u64) {
        for _ in 0..seconds {
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.further(1);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
