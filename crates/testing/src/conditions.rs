//! Conditions on a task. Each has a text that describes it, and a text that describes a task that fails it.

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use chrono::TimeDelta;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Task, report};

/// How far a due time may be from a single duration that was expected.
const TOLERANCE: Duration = Duration::from_secs(1);

/// None: it is met. Else what the task is or has instead, to be read after "but".
type Judge = Box<dyn Fn(&Task) -> Option<String>>;

pub(super) struct Condition {
    /// To be read after "with".
    pub text: String,
    judge: Judge,
}

/// When a task is expected to be due, from the time of the look. Made from a [`Duration`], a [`Range`] or a
/// [`RangeInclusive`] of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueIn {
    from: Duration,
    to: Duration,
    text: String,
}

impl From<Duration> for DueIn {
    fn from(when: Duration) -> Self {
        let (from, to) = (when.saturating_sub(TOLERANCE), when.saturating_add(TOLERANCE));
        Self { from, to, text: report::span(delta(when)) }
    }
}

impl From<RangeInclusive<Duration>> for DueIn {
    fn from(when: RangeInclusive<Duration>) -> Self {
        let (from, to) = when.into_inner();
        let text = format!("{} to {}", report::span(delta(from)), report::span(delta(to)));
        Self { from, to, text }
    }
}

/// Its end as well: a microsecond is no matter here.
impl From<Range<Duration>> for DueIn {
    fn from(when: Range<Duration>) -> Self {
        Self::from(when.start..=when.end)
    }
}

impl Condition {
    pub fn is_met(&self, task: &Task) -> bool {
        (self.judge)(task).is_none()
    }

    /// Describes how the task differs, if it does.
    pub fn instead(&self, task: &Task) -> Option<String> {
        (self.judge)(task)
    }

    /// A payload that contains `wanted`.
    pub fn payload(wanted: Value) -> Self {
        let text = format!("payload {wanted}");
        Self::new(text, move |task| difference(&wanted, &task.payload, "payload"))
    }

    /// A payload that decodes and passes.
    pub fn decoded<P: DeserializeOwned + 'static>(
        what: &str,
        passes: impl Fn(&P) -> bool + 'static,
    ) -> Self {
        let (text, not) = (format!("payload: {what}"), format!("its payload is not: {what}"));
        Self::new(text, move |task| match task.payload_as::<P>() {
            Ok(payload) => (!passes(&payload)).then(|| not.clone()),
            Err(error) => Some(format!("its payload does not decode: {error}")),
        })
    }

    /// A column that is equal.
    pub fn label(
        name: &'static str,
        wanted: &str,
        of: impl Fn(&Task) -> Option<&str> + 'static,
    ) -> Self {
        let wanted = wanted.to_owned();
        Self::new(format!("{name} {wanted}"), move |task| match of(task) {
            Some(label) if label == wanted => None,
            Some(label) => Some(format!("its {name} is {label}")),
            None => Some(format!("it has no {name}")),
        })
    }

    pub fn due_now() -> Self {
        Self::new("due now".to_owned(), |task| {
            (task.due_in > TimeDelta::zero()).then(|| format!("it is {}", report::due(task)))
        })
    }

    pub fn due_in(when: DueIn) -> Self {
        let (from, to) = (delta(when.from), delta(when.to));
        Self::new(format!("due in {}", when.text), move |task| {
            (task.due_in < from || task.due_in > to).then(|| format!("it is {}", report::due(task)))
        })
    }

    fn new(text: String, judge: impl Fn(&Task) -> Option<String> + 'static) -> Self {
        Self { text, judge: Box::new(judge) }
    }
}

fn delta(duration: Duration) -> TimeDelta {
    TimeDelta::from_std(duration).unwrap_or(TimeDelta::MAX)
}

/// The first thing in which `found` does not contain `wanted`.
fn difference(wanted: &Value, found: &Value, path: &str) -> Option<String> {
    match (wanted, found) {
        (Value::Object(fields), Value::Object(there)) => {
            fields.iter().find_map(|(name, wanted)| match there.get(name) {
                Some(found) => difference(wanted, found, &format!("{path}.{name}")),
                None => Some(format!("{path}.{name} is not there")),
            })
        }
        _ => (wanted != found).then(|| format!("{path} is {found}")),
    }
}
