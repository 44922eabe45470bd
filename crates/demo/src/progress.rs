//! The live line: counts read from the tables a DBA would read.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use tokio_postgres::Client;
use tuskline_sdk::Status;

/// Where the run stands.
#[derive(Debug, Default, Clone)]
pub(super) struct Counts {
    pub scheduled: u64,
    pub running: u64,
    pub ended: u64,
    pub succeeded: u64,
    pub dead: u64,
    pub retried: u64,
    pub rescued: u64,
    /// Mean wait of the tasks started last, in milliseconds.
    pub start_latency_ms: f64,
}

impl Counts {
    pub(super) async fn read(client: &Client) -> anyhow::Result<Self> {
        let rows = client
            .query("select status::text, count(*) from tuskline.tasks group by 1", &[])
            .await?;
        let by: HashMap<String, u64> =
            rows.iter().map(|row| (row.get(0), row.get::<_, i64>(1).unsigned_abs())).collect();
        let of = |names: &[&str]| names.iter().filter_map(|name| by.get(*name)).sum();
        let row = client
            .query_one(
                "select (select count(*) from tuskline.task_failure where error_class = 'crash'), \
                 (select count(*) from tuskline.task_failure where error_class <> 'crash'), \
                 (select coalesce(avg(1000 * extract(epoch from t.started_at - t.due_at)), 0)::float8 \
                    from (select started_at, due_at from tuskline.tasks where started_at is not null \
                           order by started_at desc limit 200) t)",
                &[],
            )
            .await?;
        Ok(Self {
            scheduled: by.values().sum(),
            running: of(&["claimed", "processing"]),
            ended: by
                .iter()
                .filter(|(status, _)| is_terminal(status))
                .map(|(_, count)| count)
                .sum(),
            succeeded: of(&["success"]),
            dead: of(&["dead", "fatal_failure"]),
            rescued: row.get::<_, i64>(0).unsigned_abs(),
            retried: row.get::<_, i64>(1).unsigned_abs(),
            start_latency_ms: row.get(2),
        })
    }
}

fn is_terminal(status: &str) -> bool {
    status.parse().is_ok_and(Status::is_terminal)
}

/// A bar on a terminal, a line now and then elsewhere, nothing when asked to be quiet.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    plain: bool,
    began: Instant,
    said: Option<Instant>,
}

impl Progress {
    pub(super) fn new(total: u64, quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = (!quiet && terminal).then(|| {
            let bar = ProgressBar::new(total);
            if let Ok(style) = ProgressStyle::with_template("{bar:16} {pos}/{len} {wide_msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self { bar, plain: !quiet && !terminal, began: Instant::now(), said: None }
    }

    pub(super) fn show(&mut self, counts: &Counts) {
        #[allow(clippy::cast_precision_loss)]
        let per_s = counts.ended as f64 / self.began.elapsed().as_secs_f64().max(0.001);
        let text = in_words(counts, per_s);
        if let Some(bar) = &self.bar {
            bar.set_position(counts.ended);
            bar.set_message(text);
        } else if self.plain && self.said.is_none_or(|at| at.elapsed().as_secs() >= 2) {
            self.said = Some(Instant::now());
            eprintln!("{} of {} done, {text}", counts.ended, counts.scheduled);
        }
    }

    /// A line of its own above the live one.
    pub(super) fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None if self.plain => eprintln!("{text}"),
            None => {}
        }
    }

    pub(super) fn done(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Short enough to stand beside the bar on 80 columns: what has not happened is left out.
fn in_words(counts: &Counts, per_s: f64) -> String {
    let some = |count: u64, what: &str| match count {
        0 => String::new(),
        _ => format!("{count} {what}, "),
    };
    format!(
        "{} running, {}{}{per_s:.0}/s, {:.0} ms late",
        counts.running,
        some(counts.rescued, "rescued"),
        some(counts.retried, "retried"),
        counts.start_latency_ms
    )
}
