//! The figures as families of samples, under the names that Prometheus knows.

use tuskline_sdk::EDGES_MS;
use tuskline_sdk::metrics::{Family, Labels, Value};

use super::reader::{Figures, Part, Reader};
use crate::store::figures::{Histogram, OUTCOMES};

/// Whether the database answered, and how often a part could not be read.
pub fn of_reader(reader: &Reader) -> [Family; 2] {
    let mut errors = Family::counter(
        "tuskline_scrape_errors",
        "Failed readings of a part of these metrics; the log has the error",
    );
    for part in Part::ALL {
        let labels = vec![("part", part.name().to_owned())];
        errors.push(labels, Value::Counter(reader.failed(part)));
    }
    let mut up = Family::gauge("tuskline_database_up", "1 if the database can be reached");
    up.push(Vec::new(), Value::Gauge(f64::from(u8::from(reader.is_up()))));
    [errors, up]
}

impl Figures {
    /// All families of the installation.
    pub fn families(&self) -> Vec<Family> {
        let mut families = self.tasks();
        families.extend(self.delays());
        families.extend(self.queues());
        families.extend(self.waiting());
        families.extend(self.installation());
        families
    }

    /// A counter for each outcome.
    fn tasks(&self) -> Vec<Family> {
        let counters = COUNTERS.into_iter().enumerate();
        counters
            .map(|(at, (name, help))| {
                let mut family = Family::counter(name, help);
                for one in &self.statistics {
                    let count = one.outcomes[at].unsigned_abs();
                    family.push(queue_labels(&one.lambda, &one.priority), Value::Counter(count));
                }
                family
            })
            .collect()
    }

    fn delays(&self) -> [Family; 3] {
        let mut starts = Family::histogram(
            "tuskline_start_delay_seconds",
            "Delay from due to the start of the first attempt",
        );
        let mut runs = Family::histogram("tuskline_run_seconds", "Run time of attempts");
        for one in &self.statistics {
            starts.push(queue_labels(&one.lambda, &one.priority), histogram(&one.starts));
            runs.push(queue_labels(&one.lambda, &one.priority), histogram(&one.runs));
        }
        let mut waits = Family::histogram("tuskline_wait_seconds", "Waits that ended, by cause");
        for one in &self.waits {
            let labels = vec![("lambda", one.lambda.clone()), ("cause", one.cause.clone())];
            waits.push(labels, histogram(&one.waits));
        }
        [starts, runs, waits]
    }

    fn queues(&self) -> [Family; 5] {
        let mut enqueued = Family::counter(
            "tuskline_tasks_enqueued",
            "Rows inserted into the queue, one more for each retry; 0 after a crash of the server",
        );
        let mut depth = Family::gauge(
            "tuskline_queue_depth",
            "Due tasks that wait in the queue; an estimate from 1000 on",
        );
        let mut oldest = Family::gauge(
            "tuskline_oldest_due_age_seconds",
            "Time since the first task of the queue was due; 0 if the queue is empty",
        );
        let mut paused = Family::gauge("tuskline_queue_paused", "1 if a gate pauses the queue");
        for queue in &self.queues {
            let labels = || queue_labels(&queue.lambda, &queue.priority);
            enqueued.push(labels(), Value::Counter(queue.enqueued.unsigned_abs()));
            depth.push(labels(), Value::Gauge(queue.depth as f64));
            let age = queue.oldest_ms.unwrap_or(0) as f64 / 1_000.0;
            oldest.push(labels(), Value::Gauge(age));
            paused.push(labels(), Value::Gauge(f64::from(u8::from(queue.paused))));
        }
        let mut wanted = Family::gauge(
            "tuskline_wanted_executors",
            "Executors that the lambda needs so that its tasks start within 5 s",
        );
        for one in &self.scale {
            let labels = vec![("lambda", one.lambda.clone())];
            wanted.push(labels, Value::Gauge(f64::from(one.wanted)));
        }
        [enqueued, depth, oldest, paused, wanted]
    }

    /// Tasks outside of queues. A number that is unknown has no sample. `tuskline_timers` has the
    /// tasks that are not due.
    fn waiting(&self) -> [Family; 3] {
        let mut tasks = Family::gauge(
            "tuskline_waiting_tasks",
            "Due tasks that wait outside of queues, by cause; an estimate from 1000 on",
        );
        let mut oldest = Family::gauge(
            "tuskline_oldest_waiting_age_seconds",
            "How long the first of these tasks has waited",
        );
        let known = self.waiting.iter().filter(|one| !one.count.is_unknown());
        for one in known.filter(|one| !["due", "retry"].contains(&&*one.cause)) {
            let labels = || vec![("lambda", one.lambda.clone()), ("cause", one.cause.clone())];
            tasks.push(labels(), Value::Gauge(one.estimate as f64));
            let age = one.oldest_ms.unwrap_or(0) as f64 / 1_000.0;
            oldest.push(labels(), Value::Gauge(age));
        }
        let mut blocked = Family::gauge(
            "tuskline_blocked_keys",
            "Ordering keys that a failed task blocks until a person acts",
        );
        for one in &self.blocked {
            let labels = vec![("lambda", one.lambda.clone())];
            blocked.push(labels, Value::Gauge(one.keys.tasks as f64));
        }
        [tasks, oldest, blocked]
    }

    fn installation(&self) -> Vec<Family> {
        let family = |(own, name, help): &(&str, &'static str, &'static str)| {
            let mut family = Family::gauge(name, help);
            for gauge in self.gauges.iter().filter(|gauge| gauge.name == *own) {
                let labels = gauge.lambda.iter().map(|lambda| ("lambda", lambda.clone()));
                family.push(labels.collect(), Value::Gauge(gauge.value));
            }
            family
        };
        GAUGES.iter().map(family).collect()
    }
}

/// The counters of [`OUTCOMES`], in the same order.
const COUNTERS: [(&str, &str); OUTCOMES.len()] = [
    ("tuskline_tasks_succeeded", "Attempts that succeeded"),
    ("tuskline_tasks_retried", "Attempts that failed and may be retried"),
    ("tuskline_tasks_failed", "Attempts that failed for good"),
    ("tuskline_tasks_snoozed", "Attempts that ended with a snooze"),
    ("tuskline_tasks_cancelled", "Tasks that were cancelled"),
    ("tuskline_tasks_lost", "Results that were refused: the attempt was no longer the current one"),
    ("tuskline_tasks_dead", "Tasks that became dead: attempts exhausted, or too many crashes"),
    ("tuskline_tasks_crashed", "Attempts that ended with their worker"),
    ("tuskline_tasks_dropped", "Tasks that a gate dropped"),
];

/// The names of the rows of `tuskline.gauges()`, and the names and help of their metrics.
const GAUGES: [(&str, &str, &str); 11] = [
    ("workers", "tuskline_workers", "Live workers that serve the lambda"),
    ("gates", "tuskline_gates", "Gates that are set on the lambda"),
    (
        "breakers_tripped",
        "tuskline_breakers_tripped",
        "1 if the circuit breaker of the lambda is open",
    ),
    ("timers", "tuskline_timers", "Tasks that are not due yet, also retries (estimate)"),
    ("parked", "tuskline_parked_tasks", "Tasks that gates hold (estimate)"),
    ("permits", "tuskline_permits", "Permits that tasks hold (estimate)"),
    ("dead_letters", "tuskline_dead_letters", "Tasks that failed for good and are kept (estimate)"),
    ("segments_ahead", "tuskline_segments_ahead", "Partitions of the task store that are ready"),
    ("connections", "tuskline_connections", "Connections of workers, servers and commands"),
    (
        "horizon_seconds",
        "tuskline_horizon_seconds",
        "Age of the oldest snapshot of a session or prepared transaction",
    ),
    (
        "horizon_transactions",
        "tuskline_horizon_transactions",
        "Transactions since the oldest snapshot, including replication slots and standbys",
    ),
];

fn queue_labels(lambda: &str, priority: &str) -> Labels {
    vec![("lambda", lambda.to_owned()), ("priority", priority.to_owned())]
}

fn histogram(histogram: &Histogram) -> Value {
    Value::histogram(&EDGES_MS, &histogram.counts, histogram.total_ms as f64)
}
