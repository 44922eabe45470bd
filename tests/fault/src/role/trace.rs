//! Reads from the SDK's trace what only the SDK knows: heartbeats, claims, refused results.

use std::fmt::Debug;

use tracing::field::{Field, Visit};
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tuskline_history::{Event, Writer, now_ns};

/// Writes the SDK's own events into the history.
#[derive(Debug)]
pub struct Trace {
    writer: Writer,
}

/// The fields of one trace event.
#[derive(Debug, Default)]
struct Said {
    text: String,
    beat: u64,
    alive: bool,
    lease: i64,
    task: i64,
    executor: i64,
    tasks: String,
    why: String,
    pid: u64,
    killed: String,
    class: String,
    signal: String,
}

impl Trace {
    pub fn new(writer: Writer) -> Self {
        Self { writer }
    }
}

impl<S: Subscriber> Layer<S> for Trace {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        let target = metadata.target();
        target.starts_with("tuskline_sdk")
            || target.starts_with("tuskline::controller")
            || *metadata.level() <= Level::WARN
    }

    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut said = Said::default();
        event.record(&mut said);
        match said.event() {
            // The history needs the time of sending.
            Some(sent @ (Event::BeatSent { .. } | Event::Registered { .. })) => {
                let since = boot_ns().saturating_sub(said.beat);
                self.writer.note_at(now_ns().saturating_sub(since), sent);
            }
            Some(event) => self.writer.note(event),
            None => {}
        }
    }
}

/// The clock of the SDK's heartbeats, which may have run on while the history's stood still.
fn boot_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

impl Said {
    /// The event that the text means for the history, if any. The texts are the SDK's. The injector
    /// refuses a run without a heartbeat or a claim, so that a changed text is noticed.
    fn event(&mut self) -> Option<Event> {
        Some(match self.text.as_str() {
            "heartbeat sent" => Event::BeatSent { beat: self.beat },
            "heartbeat answered" if self.alive => Event::BeatAck { beat: self.beat },
            "claimed" => {
                let tasks = serde_json::from_str(&self.tasks).unwrap_or_default();
                Event::Claimed { fence: self.lease, tasks }
            }
            "result refused: the attempt is no longer ours" => {
                Event::ResultRefused { tasks: vec![self.task] }
            }
            "watch connection lost; polling until it is back" => Event::LineLost,
            "worker has stopped its bodies and registers again" => {
                Event::Lost { why: std::mem::take(&mut self.why) }
            }
            "worker ends itself" => Event::Ends { why: std::mem::take(&mut self.why) },
            "registration answered" => {
                Event::Registered { executor: self.executor, answered: Some(now_ns()) }
            }
            "an executor has ended with tasks in hand" => self.process_ended(),
            "the zygote has ended; it is started again"
            | "an executor's process has ended; it is started again" => {
                self.class = match number_in(&self.signal) {
                    Some(signal) => format!("signal {signal}"),
                    None => "exit".to_owned(),
                };
                self.process_ended()
            }
            _ => return None,
        })
    }

    /// The controller's own reason comes before what the kernel says.
    fn process_ended(&mut self) -> Event {
        let why = match self.killed.strip_prefix("Some(") {
            Some(why) => why.split(['(', ')']).next().unwrap_or_default().to_lowercase(),
            None => std::mem::take(&mut self.class),
        };
        let tasks = serde_json::from_str(&self.tasks).unwrap_or_default();
        Event::ProcessEnded { pid: u32::try_from(self.pid).unwrap_or(0), why, tasks }
    }
}

/// The number in an optional one, as Rust prints it.
fn number_in(text: &str) -> Option<i32> {
    text.strip_prefix("Some(")?.strip_suffix(')')?.parse().ok()
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.text = format!("{value:?}"),
            "tasks" => self.tasks = format!("{value:?}"),
            "killed" => self.killed = format!("{value:?}"),
            "signal" => self.signal = format!("{value:?}"),
            _ => {}
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "why" => self.why = value.to_owned(),
            "class" => self.class = value.to_owned(),
            _ => {}
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "beat" => self.beat = value,
            "pid" => self.pid = value,
            _ => {}
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        match field.name() {
            "lease" => self.lease = value,
            "task" => self.task = value,
            "executor" => self.executor = value,
            _ => {}
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        if field.name() == "alive" {
            self.alive = value;
        }
    }
}
