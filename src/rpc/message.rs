//! The messages of the Frontend.
//!
//! Promises: a field that is unknown, given twice or of another type is refused by its name. Ids are strings;
//! payloads are JSON text within a string. Must never: change a text.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use tuskline_sdk::{Code, check_payload};

use super::refusal::Refused;
use crate::store::frontend::NewTask;

/// Far above the longest delay, and far below the longest interval.
const LONGEST_MS: i64 = 1_000_000_000_000_000;

/// A message.
#[derive(Debug)]
pub enum Message {
    /// Schedules one task.
    Schedule(Order),
    /// Schedules tasks, all or none.
    ScheduleMany(Order),
    Cancel {
        task: i64,
        reason: Option<String>,
    },
    Status {
        task: i64,
    },
    Explain {
        task: i64,
    },
    /// Waits for the end of a task.
    Wait {
        task: i64,
        /// None: as long as the server waits at most.
        limit: Option<Duration>,
    },
}

/// Tasks to schedule.
#[derive(Debug)]
pub struct Order {
    /// The name of the request, under which it may be repeated.
    pub request_id: Option<String>,
    pub tasks: Vec<NewTask>,
}

impl Message {
    /// Whether a message of this name changes something. None: there is no such message.
    pub fn changes(name: &str) -> Option<bool> {
        match name {
            "Schedule" | "ScheduleMany" | "Cancel" => Some(true),
            "Status" | "Explain" | "Wait" => Some(false),
            _ => None,
        }
    }

    /// Reads a message.
    ///
    /// # Errors
    /// The message is not as it must be.
    pub fn read(name: &str, text: &str) -> Result<Self, Refused> {
        let mut all = Object::read(String::new(), text)?;
        let message = match name {
            "Schedule" => Self::Schedule(Order::of_one(&mut all)?),
            "ScheduleMany" => Self::ScheduleMany(Order::of_many(&mut all)?),
            "Cancel" => Self::Cancel { task: all.id()?, reason: all.text("reason")? },
            "Status" => Self::Status { task: all.id()? },
            "Explain" => Self::Explain { task: all.id()? },
            "Wait" => {
                let ms = all.take::<u64>("wait_ms", "a number of milliseconds")?;
                Self::Wait { task: all.id()?, limit: ms.map(Duration::from_millis) }
            }
            _ => return Err(Refused::message(name)),
        };
        all.end()?;
        Ok(message)
    }
}

impl Order {
    fn of_one(all: &mut Object<'_>) -> Result<Self, Refused> {
        let order = Self { request_id: all.text("request_id")?, tasks: vec![all.task()?] };
        match order.is_repeatable() {
            true => Ok(order),
            false => Err(Refused::not_repeatable(None)),
        }
    }

    fn of_many(all: &mut Object<'_>) -> Result<Self, Refused> {
        let request_id = all.text("request_id")?;
        let given: Vec<&RawValue> = all.needed("tasks", "a list of tasks")?;
        let read = |(at, text): (usize, &&RawValue)| {
            let mut one = Object::read(format!("tasks[{at}]"), text.get())?;
            let task = one.task()?;
            one.end()?;
            Ok(task)
        };
        let tasks = given.iter().enumerate().map(read).collect::<Result<Vec<_>, Refused>>()?;
        let order = Self { request_id, tasks };
        let first = || order.tasks.iter().position(|task| task.unique_key.is_none());
        match order.is_repeatable() {
            true => Ok(order),
            false => Err(Refused::not_repeatable(first().map(|at| format!("tasks[{at}]")))),
        }
    }

    /// Whether a repeated call schedules nothing.
    fn is_repeatable(&self) -> bool {
        self.request_id.is_some() || self.tasks.iter().all(|task| task.unique_key.is_some())
    }
}

/// The fields of an object that were not taken yet.
struct Object<'m> {
    /// Its place in the message.
    place: String,
    fields: BTreeMap<String, &'m RawValue>,
}

impl<'m> Object<'m> {
    fn read(place: String, text: &'m str) -> Result<Self, Refused> {
        match serde_json::from_str::<Fields<'m>>(text) {
            Ok(Fields(fields)) => Ok(Self { place, fields }),
            Err(error) => {
                let field = (!place.is_empty()).then_some(place);
                Err(Refused::invalid(format!("not an object in JSON: {error}"), field))
            }
        }
    }

    /// A field in the message.
    fn path(&self, name: &str) -> String {
        match self.place.as_str() {
            "" => name.to_owned(),
            place => format!("{place}.{name}"),
        }
    }

    /// A field, if it is there and not null.
    fn take<T: Deserialize<'m>>(&mut self, name: &str, kind: &str) -> Result<Option<T>, Refused> {
        let Some(value) = self.fields.remove(name) else { return Ok(None) };
        serde_json::from_str(value.get()).map_err(|_| {
            let field = self.path(name);
            Refused::invalid(format!("{field} must be {kind}"), Some(field))
        })
    }

    fn needed<T: Deserialize<'m>>(&mut self, name: &str, kind: &str) -> Result<T, Refused> {
        self.take(name, kind)?.ok_or_else(|| self.missing(name, kind))
    }

    fn missing(&self, name: &str, kind: &str) -> Refused {
        let field = self.path(name);
        Refused::invalid(format!("{field} is missing: it must be {kind}"), Some(field))
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, Refused> {
        let text: Option<String> = self.take(name, "a string")?;
        match text.as_ref().is_some_and(|text| text.contains('\0')) {
            true => {
                let field = self.path(name);
                Err(Refused::invalid(format!("{field} must not have a NUL character"), Some(field)))
            }
            false => Ok(text),
        }
    }

    /// The id of a task. A number is refused: many programs read it as a double.
    fn id(&mut self) -> Result<i64, Refused> {
        const KIND: &str = "the id of a task, a string of digits";
        let text: String = self.needed("task", KIND)?;
        let is_id = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| is_id).ok_or_else(|| {
            Refused::invalid(format!("task must be {KIND}"), Some("task".to_owned()))
        })
    }

    fn task(&mut self) -> Result<NewTask, Refused> {
        let delay: Option<i64> = self.take("delay_ms", "a number of milliseconds")?;
        Ok(NewTask {
            lambda: self.text("lambda")?.ok_or_else(|| self.missing("lambda", "a string"))?,
            payload: self.payload()?,
            priority: self.text("priority")?,
            collection: self.text("collection")?,
            scheduled_at: self.take::<DateTime<Utc>>(
                "scheduled_at",
                "a time with its zone, like \"2026-11-28T18:00:00Z\"",
            )?,
            delay_ms: delay.map(|ms| ms.clamp(-LONGEST_MS, LONGEST_MS)),
            ordering_key: self.text("ordering_key")?,
            limit_key: self.text("limit_key")?,
            fairness_key: self.text("fairness_key")?,
            unique_key: self.text("unique_key")?,
            traceparent: self.text("traceparent")?,
        })
    }

    fn payload(&mut self) -> Result<Option<String>, Refused> {
        let payload: Option<String> =
            self.take("payload", "JSON text within a string, like \"{\\\"to\\\":1}\"")?;
        let Some(text) = payload else { return Ok(None) };
        let parsed = serde_json::from_str::<&RawValue>(&text);
        let checked = match parsed {
            Ok(_) => check_payload(&text),
            Err(error) => Err((Code::InvalidPayload, format!("payload must be JSON: {error}"))),
        };
        checked.map_err(|(code, text)| Refused::coded(code, text, self.path("payload")))?;
        Ok(Some(text))
    }

    /// Refuses fields that nothing has read: a misspelt option must not be lost.
    fn end(self) -> Result<(), Refused> {
        match self.fields.keys().next() {
            None => Ok(()),
            Some(name) => {
                let name: String = name.chars().take(80).collect();
                let field = self.path(&name);
                Err(Refused::invalid(format!("there is no field {field}"), Some(field)))
            }
        }
    }
}

/// Fields by their names. A name that comes twice is an error: which one holds would be a guess.
struct Fields<'m>(BTreeMap<String, &'m RawValue>);

impl<'m> Deserialize<'m> for Fields<'m> {
    fn deserialize<D: Deserializer<'m>>(from: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'m> Visitor<'m> for Each {
            type Value = Fields<'m>;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("an object")
            }

            fn visit_map<A: MapAccess<'m>>(self, mut all: A) -> Result<Fields<'m>, A::Error> {
                let mut fields = BTreeMap::new();
                while let Some((name, value)) = all.next_entry::<String, &RawValue>()? {
                    let short: String = name.chars().take(80).collect();
                    if fields.insert(name, value).is_some() {
                        return Err(A::Error::custom(format_args!("field {short} comes twice")));
                    }
                }
                Ok(Fields(fields))
            }
        }
        from.deserialize_map(Each)
    }
}

#[cfg(test)]
mod tests;
