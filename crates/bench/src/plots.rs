//! The figures of each workload that are drawn.

use super::Workload;
use super::axis::{Axis, Scale};
use super::plot::{Chart, Line};
use super::report::{Outcome, Report};

/// The picture of a report; none: nothing in it makes a line.
pub(super) fn chart(workload: &Workload, report: &Report) -> Option<Chart> {
    let parts = report.all();
    match workload {
        Workload::Latency(_) => Some(distributions("Insert call to start of the body", parts)),
        Workload::Flood(_) => {
            Some(distributions("Start of the quiet, before and in a flood", parts))
        }
        Workload::Recover(_) => {
            Some(distributions("From the kill of a worker to the next start", parts))
        }
        Workload::Singles(_) => Some(by_connections(parts)),
        Workload::ScheduleBatch(_) => Some(distributions("One call of schedule_many", parts)),
        Workload::HeldHorizon(_) => parts.last().map(over_time),
        Workload::Backlog(_) => Some(by_backlog(parts)),
        Workload::Batch(_) => Some(by_batch(parts)),
        Workload::Scale(_) => Some(by_processes(parts)),
        _ => None,
    }
}

impl Workload {
    /// Whether [`Report::svg`] has a picture of it.
    pub fn has_plot(&self) -> bool {
        !matches!(
            self,
            Self::Copy(_)
                | Self::Drain(_)
                | Self::Life(_)
                | Self::Idle(_)
                | Self::Rebuild(_)
                | Self::Mixed(_)
                | Self::Policies(_)
        )
    }
}

impl Report {
    /// A picture of it as SVG; none where the workload has none.
    pub fn svg(&self, workload: &Workload) -> Option<String> {
        chart(workload, self).map(|chart| chart.svg())
    }
}

fn distributions(title: &str, parts: &[Outcome]) -> Chart {
    let lines = parts.iter().map(|part| Line {
        name: part.part.clone().unwrap_or_else(|| part.workload.to_owned()),
        points: part.distribution.clone(),
    });
    Chart {
        title: title.to_owned(),
        x: Axis("ms", Scale::Log),
        y: Axis("share that took no longer", Scale::Linear),
        lines: lines.collect(),
    }
}

/// One point for each part that has both numbers.
fn line(
    name: &str,
    parts: &[Outcome],
    x: impl Fn(&Outcome) -> Option<f64>,
    y: impl Fn(&Outcome) -> Option<f64>,
) -> Line {
    let points = parts.iter().filter_map(|part| Some((x(part)?, y(part)?))).collect();
    Line { name: name.to_owned(), points }
}

fn rate(part: &Outcome) -> Option<f64> {
    part.tasks_per_s
}

fn by_connections(parts: &[Outcome]) -> Chart {
    let connections = |part: &Outcome| part.extra("connections");
    Chart {
        title: "One task per commit".to_owned(),
        x: Axis("connections", Scale::Linear),
        y: Axis("per second", Scale::Linear),
        lines: vec![
            line("tuskline.schedule", parts, connections, rate),
            line("bare insert", parts, connections, |part| part.extra("bare_inserts_per_s")),
        ],
    }
}

fn by_batch(parts: &[Outcome]) -> Chart {
    Chart {
        title: "Throughput by batch".to_owned(),
        x: Axis("tasks in a call, or at most in an exchange", Scale::Log),
        y: Axis("tasks per second", Scale::Log),
        lines: vec![
            line("drain", parts, |part| part.extra("drain_batch"), rate),
            line("schedule_many", parts, |part| part.extra("schedule_batch"), rate),
        ],
    }
}

fn by_processes(parts: &[Outcome]) -> Chart {
    Chart {
        title: "Throughput of all processes together".to_owned(),
        x: Axis("processes", Scale::Linear),
        y: Axis("tasks per second", Scale::Linear),
        lines: vec![
            line("workers draining", parts, |part| part.extra("workers"), rate),
            line("store consumers", parts, |part| part.extra("consumers"), rate),
        ],
    }
}

/// Rate and pages beside those of the empty store, by what waits.
fn by_backlog(parts: &[Outcome]) -> Chart {
    let pages = |part: &Outcome| part.cost.buffer_hits_per_task;
    let empty = parts.first().and_then(pages);
    let pages_share = move |part: &Outcome| pages(part).zip(empty).map(|(own, empty)| own / empty);
    let share = |part: &Outcome| part.extra("share_of_empty");
    let enqueued = |part: &Outcome| part.extra("enqueued");
    let later = move |part: &Outcome| part.extra("future").filter(|_| enqueued(part).is_none());
    Chart {
        title: "A drain beside a backlog".to_owned(),
        x: Axis("tasks that wait", Scale::Log),
        y: Axis("times that of an empty store", Scale::Linear),
        lines: vec![
            line("tasks/s, due later", parts, later, share),
            line("pages/task, due later", parts, later, pages_share),
            line("tasks/s, enqueued", parts, enqueued, share),
            line("pages/task, enqueued", parts, enqueued, pages_share),
        ],
    }
}

/// How each figure moved from the mean of the first tenth.
#[allow(clippy::cast_precision_loss)]
fn over_time(last: &Outcome) -> Chart {
    type Figure = fn(&super::report::Moment) -> Option<f64>;
    // Counts that backends publish late are spread over the neighbouring samples.
    let figures: [(&str, usize, Figure); 4] = [
        ("p50", 1, |moment| moment.p50_ms),
        ("pages/task, mean of 3", 3, |moment| moment.buffer_hits_per_task),
        ("statements' pages/task", 1, |moment| moment.statement_hits_per_task),
        ("CPU/task, mean of 3", 3, |moment| moment.server_cpu_us_per_task),
    ];
    let lines = figures.into_iter().map(|(name, wide, figure)| {
        let known: Vec<_> =
            last.course.iter().filter_map(|at| Some((at.at_s, figure(at)?))).collect();
        let mean = |near: &[(f64, f64)]| {
            (near[wide / 2].0, near.iter().map(|at| at.1).sum::<f64>() / wide as f64)
        };
        let known: Vec<_> = known.windows(wide).map(mean).collect();
        let first = &known[..known.len().div_ceil(10)];
        let mean = first.iter().map(|(_, value)| value).sum::<f64>() / first.len() as f64;
        let points = known.iter().map(|(at, value)| (*at, value / mean)).collect();
        Line { name: name.to_owned(), points }
    });
    Chart {
        title: "Under a snapshot that is never let go".to_owned(),
        x: Axis("seconds", Scale::Linear),
        y: Axis("times that of the first tenth", Scale::Linear),
        lines: lines.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::meter::Cost;
    use super::super::report::Moment;
    use super::*;

    #[test]
    fn a_course_is_shown_beside_its_beginning() {
        let moment = |at_s: f64| Moment {
            at_s,
            p50_ms: Some(2.0 * at_s),
            p99_ms: None,
            buffer_hits_per_task: Some(20.0),
            statement_hits_per_task: Some(10.0),
            server_cpu_us_per_task: None,
        };
        let course = (1..=10).map(|n| moment(f64::from(n))).collect();
        let chart = over_time(&Outcome { course, ..Outcome::default() });
        assert_eq!(chart.lines[0].points.last(), Some(&(10.0, 10.0)));
        for line in &chart.lines[1..3] {
            assert!(line.points.iter().all(|(_, times)| (times - 1.0).abs() < 1e-9));
        }
        assert!(chart.lines[3].points.is_empty());
    }

    #[test]
    fn a_backlog_has_a_line_for_each_kind() {
        let cost = |pages| Cost { buffer_hits_per_task: Some(pages), ..Cost::default() };
        let part =
            |pages| Outcome::new("backlog", 10, 1.0, cost(pages)).with("share_of_empty", 0.9);
        let parts = [
            part(10.0),
            part(11.0).with("future", 1000),
            part(12.0).with("future", 1000).with("enqueued", 500),
        ];
        let points: Vec<_> = by_backlog(&parts).lines.into_iter().map(|line| line.points).collect();
        assert_eq!(points[0], [(1000.0, 0.9)]);
        assert_eq!(points[1], [(1000.0, 1.1)]);
        assert_eq!((points[2].len(), points[3][0]), (1, (500.0, 1.2)));
    }
}
