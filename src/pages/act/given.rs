//! The address of an act: arguments of its function, as values and as SQL to copy.
//!
//! Promises: a field that the act does not have is refused, not left out, because a filter with a
//! misspelt field would match more tasks. An empty field is not given.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDateTime, SecondsFormat, Utc};
use serde_json::{Map, Value, json};

use super::verbs::{ActKind, FILTER, Field, Kind, Of};
use crate::duration;
use crate::pages::words;

/// Longest value of a field that is not a list of ids.
const LONGEST: usize = 1_000;
/// Members of an address that belong to the page, not to the act.
const OF_PAGE: [&str; 4] = ["form", "format", "live", "theme"];

/// An act with its arguments.
#[derive(Debug)]
pub struct Given {
    pub act: &'static ActKind,
    values: Vec<(&'static Field, Value)>,
    texts: BTreeMap<&'static str, String>,
}

impl Given {
    /// Reads the members of an address.
    ///
    /// # Errors
    /// The sentence that says what is wrong.
    pub fn of(act: &'static ActKind, query: &BTreeMap<String, String>) -> Result<Self, String> {
        for name in query.keys().filter(|name| !OF_PAGE.contains(&name.as_str())) {
            if !act.fields().any(|field| field.name == name) {
                return Err(format!("{} takes no {name:?}", act.name));
            }
        }
        let is_fresh = query.get("form").is_none();
        let (mut values, mut texts) = (Vec::new(), BTreeMap::new());
        for field in act.fields() {
            let default = field.default.filter(|_| is_fresh);
            let text = query.get(field.name).map(String::as_str).or(default).unwrap_or_default();
            let text = text.trim();
            if text.is_empty() {
                continue;
            }
            let value = field.kind.value(text);
            values.push((field, value.map_err(|why| format!("{}: {why}", field.name))?));
            texts.insert(field.name, text.to_owned());
        }
        Ok(Self { act, values, texts })
    }

    /// The text of a field.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.texts.get(name).map(String::as_str)
    }

    /// The arguments that are still missing, in a sentence.
    pub fn missing(&self) -> Option<String> {
        let needed = self.act.fields().filter(|field| field.is_required);
        let lacks = |field: &&Field| self.text(field.name).is_none();
        if let Some(field) = needed.into_iter().find(lacks) {
            return Some(format!("{} is needed.", field.label));
        }
        let chooses = FILTER.iter().any(|field| field.name != "limit" && self.has(field));
        (self.act.of == Of::Tasks && !chooses)
            .then(|| "Say which tasks: an empty filter is refused.".to_owned())
    }

    fn has(&self, field: &Field) -> bool {
        self.text(field.name).is_some()
    }

    /// The arguments, without a reason.
    pub fn arguments(&self) -> Map<String, Value> {
        let fixed = self.act.fixed.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
        let given =
            self.values.iter().map(|(field, value)| (field.argument.to_owned(), value.clone()));
        fixed.chain(given).collect()
    }

    /// The arguments that choose tasks, for a count of at most so many.
    pub fn filter(&self, most: i64) -> Value {
        let mut chosen = self.arguments();
        let is_filter = |name: &str| FILTER.iter().any(|field| field.argument == name);
        chosen.retain(|name, _| {
            is_filter(name) || ["action", "value", "ended_to"].contains(&name.as_str())
        });
        let limit = self.text("limit").and_then(|text| text.parse().ok()).unwrap_or(most);
        chosen.insert("limit".to_owned(), json!(limit.min(most).to_string()));
        Value::Object(chosen)
    }

    /// Heading and button.
    pub fn title(&self, tasks: Option<&str>) -> String {
        let mut title = self.act.title.to_owned();
        for field in self.act.fields() {
            let name = format!("{{{}}}", field.name);
            title = title.replace(&name, self.text(field.name).unwrap_or("…"));
        }
        if tasks == Some("1") {
            title = title.replace("{tasks} tasks", "1 task");
        }
        title.replace("{tasks} ", &tasks.map_or_else(String::new, |number| format!("{number} ")))
    }

    /// The statement that does the same.
    pub fn sql(&self, reason: &str) -> String {
        let fixed = self.act.fixed.iter();
        let fixed = fixed.map(|(name, value)| format!("p_{name} => {}", literal(value)));
        let given = self
            .values
            .iter()
            .map(|(field, value)| format!("p_{} => {}", field.argument, field.kind.literal(value)));
        let reason = self.act.has_reason.then(|| format!("p_reason => {}", literal(reason)));
        let all: Vec<String> = fixed.chain(given).chain(reason).collect();
        format!("select tuskline.{}({});", self.act.verb.name, all.join(", "))
    }
}

impl Kind {
    /// The value of a field, of the type that its function takes.
    fn value(self, text: &str) -> Result<Value, String> {
        if text.len() > LONGEST && self != Self::Ids {
            return Err(format!("at most {} bytes", words::count(LONGEST as i64)));
        }
        let parts = |by: char| text.split(by).map(str::trim).filter(|one| !one.is_empty());
        Ok(match self {
            Self::Text => json!(text),
            Self::Id => json!(id(text)?.to_string()),
            Self::Ids => json!(
                parts(',')
                    .map(|one| Ok(id(one)?.to_string()))
                    .collect::<Result<Vec<_>, String>>()?
            ),
            Self::Texts => json!(parts(',').collect::<Vec<_>>()),
            Self::Path => json!(parts('.').collect::<Vec<_>>()),
            Self::Integer => {
                json!(
                    text.parse::<i32>()
                        .map_err(|_| format!("must be a whole number, got {text}"))?
                )
            }
            Self::Decimal => match text.parse::<f64>() {
                Ok(number) if number.is_finite() => json!(number.to_string()),
                _ => return Err(format!("must be a number, got {text}")),
            },
            Self::Span => {
                duration::parse(text)?;
                json!(text)
            }
            Self::Time => json!(instant(text)?.to_rfc3339_opts(SecondsFormat::Millis, true)),
            Self::Flag => match text {
                "yes" | "true" => json!(true),
                "no" | "false" => json!(false),
                _ => return Err(format!("must be yes or no, got {text}")),
            },
            Self::Choice(of) if of.contains(&text) => json!(text),
            Self::Choice(of) => return Err(format!("must be {}, got {text}", of.join(" or "))),
        })
    }

    fn literal(self, value: &Value) -> String {
        let text = value.as_str();
        match (self, value, text) {
            (Self::Id | Self::Decimal, _, Some(number)) => number.to_owned(),
            (Self::Ids, Value::Array(ids), _) => {
                let ids: Vec<&str> = ids.iter().filter_map(Value::as_str).collect();
                format!("'{{{}}}'", ids.join(","))
            }
            (_, Value::Array(all), _) => {
                let all: Vec<String> = all.iter().filter_map(Value::as_str).map(literal).collect();
                format!("array[{}]", all.join(", "))
            }
            (_, _, Some(text)) => literal(text),
            (_, other, None) => other.to_string(),
        }
    }
}

/// A text as SQL. A backslash stands for itself.
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A name as SQL.
pub fn identifier(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let starts_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    match starts_plain && name.chars().all(is_plain) {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

fn id(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| format!("must be a number, got {text}"))
}

/// A time with its zone, or one in UTC as a form sends it.
fn instant(text: &str) -> Result<DateTime<Utc>, String> {
    let with_zone = DateTime::parse_from_rfc3339(text).map(|at| at.to_utc());
    let plain = || {
        let forms = ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M"];
        forms.iter().find_map(|form| NaiveDateTime::parse_from_str(text, form).ok())
    };
    with_zone
        .ok()
        .or_else(|| plain().map(|at| at.and_utc()))
        .ok_or_else(|| format!("must be a time as 2026-12-24T08:00:00Z, got {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(name: &str, query: &[(&str, &str)]) -> Result<Given, String> {
        let query = query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Given::of(ActKind::named(name).expect("an act"), &query.collect())
    }

    #[test]
    fn an_act_is_the_same_as_its_statement() {
        let said = [("lambda", "o'hara"), ("fingerprint", "bb2b"), ("ids", "7, 8")];
        let given = given("redrive", &said).expect("arguments");
        assert_eq!(
            given.sql("it's mended"),
            "select tuskline.start_operation(p_action => 'redrive', p_lambda => 'o''hara', \
             p_fingerprint => 'bb2b', p_ids => '{7,8}', p_canary => true, \
             p_reason => 'it''s mended');"
        );
        assert_eq!(given.title(Some("2,816")), "Redrive 2,816 tasks");
        assert_eq!(given.title(Some("1")), "Redrive 1 task");
        assert_eq!(given.title(None), "Redrive tasks");
    }

    #[test]
    fn a_field_that_is_not_of_the_act_or_not_a_value_is_refused() {
        for (name, query) in [
            ("purge", [("lambda", "a"), ("statuss", "dead")]),
            ("cancel", [("task", "x"), ("live", "off")]),
            ("cancel", [("task", "9223372036854775808"), ("live", "off")]),
            ("gate", [("lambda", "a"), ("action", "stop")]),
            ("gate", [("lambda", "a"), ("for", "2 weeks")]),
            ("gate", [("lambda", "a"), ("until", "tomorrow")]),
            ("throttle", [("lambda", "a"), ("per_second", "NaN")]),
            ("set_limit", [("lambda", "a"), ("at_a_time", "1e9")]),
            ("priority", [("lambda", "a"), ("to", "urgent")]),
        ] {
            assert!(given(name, &query).is_err(), "{name} {query:?}");
        }
        let long = "x".repeat(LONGEST + 1);
        assert!(given("gate", &[("lambda", &long)]).is_err());
    }

    #[test]
    fn an_empty_filter_is_refused() {
        for (query, is_missing) in [
            (&[][..], true),
            (&[("lambda", ""), ("limit", "5")], true),
            (&[("lambda", "a")], false),
            (&[("ids", "7")], false),
        ] {
            let found = given("purge", query).expect("arguments").missing();
            assert_eq!(found.is_some(), is_missing, "{query:?}");
        }
    }
}
