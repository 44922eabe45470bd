//! Text of a search, as a filter of tasks.
//!
//! Promises: it is pure; what it does not understand is one sentence. Must never: allocate more than a
//! small multiple of the text.

use chrono::{DateTime, Utc};
use tuskline_sdk::{Priority, Status};

use super::times::time;
use crate::store::tasks::Filter;

/// Longest text, in bytes.
pub const LONGEST: usize = 1_000;
/// Most values of a token, and most words.
const MOST_VALUES: usize = 20;
const MOST_WORDS: usize = 8;

/// The tokens, for the page.
pub const TOKENS: [(&str, &str); 5] = [
    (
        "lambda: status: collection: priority:",
        "one name, or several with commas; quote a name with a space",
    ),
    (
        "key:",
        "ordering, limit, fairness or unique key; with lambda:, an index finds the tasks that wait \
         with it or hold it",
    ),
    (
        "cause:",
        "fingerprint of the last failure of dead letters; with lambda:, an index finds them",
    ),
    (
        "before: after:",
        "when it was scheduled: 14:30, 2026-11-27T14:30Z, or 90m for 90 minutes ago",
    ),
    (
        "other words",
        "text in the last error or in the payload, if your role may read them; quote words that \
         belong together",
    ),
];

/// The values of `status:`.
pub fn statuses() -> Vec<&'static str> {
    Status::ALL.iter().map(|one| one.as_str()).collect()
}

/// The values of `priority:`.
pub fn priorities() -> Vec<&'static str> {
    Priority::ALL.iter().map(|one| one.as_str()).collect()
}

/// A text that was understood.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// The text is the number of a task.
    pub id: Option<i64>,
    pub filter: Filter,
}

/// Reads a text at a time. Its mistake is a sentence.
pub fn parse(text: &str, now: DateTime<Utc>) -> Result<Query, String> {
    if text.len() > LONGEST {
        return Err(format!("A search has at most {LONGEST} bytes, this one has {}.", text.len()));
    }
    let items = items(text)?;
    let mut query = Query::default();
    if let [Item { token: None, values, .. }] = items.as_slice()
        && let [value] = values.as_slice()
        && !value.is_quoted
        && value.text.bytes().all(|byte| byte.is_ascii_digit())
    {
        let id = value.text.parse().ok().filter(|id| *id > 0);
        query.id = Some(id.ok_or_else(|| "The number of a task is below 2^63.".to_owned())?);
        return Ok(query);
    }
    for item in items {
        read(&mut query.filter, item, now)?;
    }
    Ok(query)
}

/// The text with other values of a token, or without it.
pub fn with(text: &str, token: &str, value: Option<&str>) -> String {
    let items = items(text).unwrap_or_default();
    let others = items.iter().filter(|item| item.token.as_deref() != Some(token));
    let others = others.map(|item| item.raw.to_owned());
    let parts = others.chain(value.map(|value| format!("{token}:{value}")));
    parts.collect::<Vec<_>>().join(" ")
}

/// A token with its values, or a word.
#[derive(Debug)]
struct Item<'a> {
    raw: &'a str,
    token: Option<String>,
    values: Vec<Value>,
}

#[derive(Debug, Default)]
struct Value {
    text: String,
    is_quoted: bool,
}

impl Value {
    fn is_empty(&self) -> bool {
        self.text.is_empty() && !self.is_quoted
    }
}

/// Splits at spaces outside of quotes. A token ends at its first colon, its values at commas.
fn items(text: &str) -> Result<Vec<Item<'_>>, String> {
    let mut items = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (item, behind) = item(rest)?;
        items.push(item);
        rest = behind.trim_start();
    }
    Ok(items)
}

fn item(text: &str) -> Result<(Item<'_>, &str), String> {
    let mut item = Item { raw: text, token: None, values: vec![Value::default()] };
    let mut is_quoting = false;
    for (at, one) in text.char_indices() {
        let Some(last) = item.values.last_mut() else { break };
        match one {
            '"' if is_quoting => is_quoting = false,
            '"' => (is_quoting, last.is_quoted) = (true, true),
            _ if is_quoting => last.text.push(one),
            ' ' | '\t' | '\n' | '\r' => {
                item.raw = &text[..at];
                return Ok((item, &text[at..]));
            }
            ':' if item.token.is_none() && !last.is_quoted && is_name(&last.text) => {
                item.token = Some(std::mem::take(&mut last.text));
            }
            ',' if item.token.is_some() => item.values.push(Value::default()),
            _ => last.text.push(one),
        }
    }
    match is_quoting {
        true => Err("A quote is open: put a second \" where the words end.".to_owned()),
        false => Ok((item, "")),
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

fn read(filter: &mut Filter, item: Item<'_>, now: DateTime<Utc>) -> Result<(), String> {
    let Some(token) = item.token else {
        filter.words.extend(item.values.into_iter().map(|value| value.text));
        filter.words.retain(|word| !word.is_empty());
        return match filter.words.len() {
            ..=MOST_WORDS => Ok(()),
            _ => Err(format!(
                "A search has at most {MOST_WORDS} words; quote those that belong together."
            )),
        };
    };
    if item.values.iter().any(Value::is_empty) {
        return Err(format!("A value is missing after {token}: or a comma."));
    }
    let values: Vec<String> = item.values.into_iter().map(|value| value.text).collect();
    if values.len() > MOST_VALUES {
        return Err(format!("{token}: has at most {MOST_VALUES} values."));
    }
    match token.as_str() {
        "lambda" => put(&mut filter.lambdas, values),
        "status" => {
            known(&token, &values, &statuses())?;
            put(&mut filter.statuses, values)
        }
        "priority" => {
            known(&token, &values, &priorities())?;
            put(&mut filter.priorities, values)
        }
        "collection" => put(&mut filter.collections, values),
        "key" => put(&mut filter.keys, values),
        "cause" => put(&mut filter.causes, values),
        "before" => filter.before = Some(only(filter.before, &token, &values, now)?),
        "after" => filter.after = Some(only(filter.after, &token, &values, now)?),
        _ => {
            return Err(format!(
                "{token}: is no token of a search. Quote the word if the text has a colon."
            ));
        }
    }
    Ok(())
}

/// A token that stands twice has the values of both.
fn put(list: &mut Option<Vec<String>>, values: Vec<String>) {
    list.get_or_insert_default().extend(values);
}

fn known(token: &str, values: &[String], labels: &[&str]) -> Result<(), String> {
    match values.iter().find(|value| !labels.contains(&value.as_str())) {
        Some(value) => {
            Err(format!("{token}: is one of {}; \"{}\" is none.", labels.join(", "), short(value)))
        }
        None => Ok(()),
    }
}

fn only(
    said: Option<DateTime<Utc>>,
    token: &str,
    values: &[String],
    now: DateTime<Utc>,
) -> Result<DateTime<Utc>, String> {
    match (said, values) {
        (None, [value]) => time(value, now).ok_or_else(|| {
            format!(
                "{token}: is a time: 14:30, 2026-11-27T14:30Z, or 90m for 90 minutes ago; \"{}\" is \
                 none.",
                short(value)
            )
        }),
        _ => Err(format!("{token}: has one value.")),
    }
}

/// A value as a sentence quotes it.
fn short(value: &str) -> String {
    value.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> DateTime<Utc> {
        "2026-11-27T14:00:00Z".parse().unwrap()
    }

    fn refused(text: &str) -> String {
        parse(text, now()).unwrap_err()
    }

    fn list(values: &[&str]) -> Option<Vec<String>> {
        Some(values.iter().map(|one| (*one).to_owned()).collect())
    }

    #[test]
    fn tokens_have_values_and_other_words_are_text() {
        let text = "lambda:charge_card,refund status:dead  timeout \"no answer: 3 s\" lambda:mail";
        let filter = parse(text, now()).unwrap().filter;
        assert_eq!(filter.lambdas, list(&["charge_card", "refund", "mail"]));
        assert_eq!(filter.statuses, list(&["dead"]));
        assert_eq!(filter.words, ["timeout", "no answer: 3 s"]);
        let filter = parse("key:\"a b,c\",d collection:\"\" error:7", now());
        assert!(filter.unwrap_err().starts_with("error: is no token"));
        let filter = parse("key:\"a b,c\",d collection:\"\" E:7 a,b", now()).unwrap().filter;
        assert_eq!(filter.keys, list(&["a b,c", "d"]));
        assert_eq!(filter.collections, list(&[""]));
        assert_eq!(filter.words, ["E:7", "a,b"]);
        assert!(parse("  ", now()).unwrap().filter.is_empty());
    }

    #[test]
    fn a_token_is_replaced_and_the_rest_stays_as_it_is_typed() {
        let text = "status:dead lambda:\"a b\" \"no answer\"";
        assert_eq!(with(text, "status", Some("new")), "lambda:\"a b\" \"no answer\" status:new");
        assert_eq!(with(text, "status", None), "lambda:\"a b\" \"no answer\"");
        assert_eq!(with("", "status", Some("new")), "status:new");
    }

    #[test]
    fn a_number_alone_is_a_task() {
        assert_eq!(parse(" 41887733 ", now()).unwrap().id, Some(41_887_733));
        assert_eq!(parse("\"41887733\"", now()).unwrap().filter.words, ["41887733"]);
        assert_eq!(parse("41887733 timeout", now()).unwrap().filter.words.len(), 2);
        for wrong in ["0", "99999999999999999999"] {
            assert_eq!(refused(wrong), "The number of a task is below 2^63.");
        }
    }

    #[test]
    fn a_wrong_search_says_what_is_wrong() {
        let said = [
            ("fp:1", "fp: is no token of a search. Quote the word if the text has a colon."),
            ("lambda:", "A value is missing after lambda: or a comma."),
            ("lambda:a,,b", "A value is missing after lambda: or a comma."),
            ("before:1h before:2h", "before: has one value."),
            ("\"open", "A quote is open: put a second \" where the words end."),
            (
                "a b c d e f g h i",
                "A search has at most 8 words; quote those that belong together.",
            ),
        ];
        for (text, wanted) in said {
            assert_eq!(refused(text), wanted);
        }
        assert!(refused("status:broken").starts_with("status: is one of new, enqueued,"));
        assert!(refused("priority:urgent").ends_with("\"urgent\" is none."));
        assert!(refused("after:noon").starts_with("after: is a time: 14:30"));
        assert!(refused(&format!("key:{}", ["k"; 21].join(","))).ends_with("at most 20 values."));
        assert_eq!(
            refused(&"x".repeat(10_000)),
            "A search has at most 1000 bytes, this one has 10000."
        );
    }
}
