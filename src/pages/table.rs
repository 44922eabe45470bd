//! Rows of a view as a table: a column says which field it shows, and as what.
//!
//! Promises: a field that is null is a dash; a field of a kind that does not fit is shown as it is.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde_json::Value;

use super::parts::{Frame, ago, encoded, number};
use super::words::{self, NOTHING};

/// The kind of a field.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A text.
    Text,
    /// A text of programs: a key, a cron, a version.
    Code,
    /// A number of things.
    Count,
    /// The same, counted to a bound: the field `and_more` says that there are more.
    Bounded,
    /// Milliseconds.
    Span,
    /// A time, shown as its age.
    Age,
    /// A state of a task or an operation.
    State,
    /// A name that leads to its page, below this path.
    Link(&'static str),
}

/// A column.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    head: &'static str,
    field: &'static str,
    kind: Kind,
    is_wide: bool,
    below: Option<&'static str>,
}

impl Column {
    /// A column of every screen.
    pub const fn new(head: &'static str, field: &'static str, kind: Kind) -> Self {
        Self { head, field, kind, is_wide: false, below: None }
    }

    /// The same, left out on a narrow screen.
    pub const fn wide(head: &'static str, field: &'static str, kind: Kind) -> Self {
        Self { head, field, kind, is_wide: true, below: None }
    }

    /// With the text of another field in a second line.
    pub const fn above(self, field: &'static str) -> Self {
        Self { below: Some(field), ..self }
    }

    fn is_number(self) -> bool {
        matches!(self.kind, Kind::Count | Kind::Bounded | Kind::Span | Kind::Age)
    }
}

/// A table. `act` adds a last cell to a row.
pub fn table(
    frame: &Frame,
    columns: &[Column],
    rows: &[Value],
    act: impl Fn(&Value) -> Option<Markup>,
) -> Markup {
    let acts: Vec<Option<Markup>> = rows.iter().map(act).collect();
    let has_acts = acts.iter().any(Option::is_some);
    html! {
        table {
            thead { tr {
                @for one in columns {
                    th scope="col" class=[class(one.is_number(), one.is_wide)] { (one.head) }
                }
                @if has_acts { th .n scope="col" { span .sr { "Act" } } }
            } }
            tbody {
                @for (row, act) in rows.iter().zip(acts) {
                    tr {
                        @for one in columns { (cell(frame, *one, row)) }
                        @if has_acts { td .n { @if let Some(act) = act { (act) } } }
                    }
                }
            }
        }
    }
}

/// [`table`] without acts.
pub fn plain(frame: &Frame, columns: &[Column], rows: &[Value]) -> Markup {
    table(frame, columns, rows, |_| None)
}

fn class(is_number: bool, is_wide: bool) -> Option<&'static str> {
    match (is_number, is_wide) {
        (true, true) => Some("n wide"),
        (true, false) => Some("n"),
        (false, true) => Some("wide"),
        (false, false) => None,
    }
}

fn cell(frame: &Frame, column: Column, row: &Value) -> Markup {
    let field = &row[column.field];
    let class = class(column.is_number(), column.is_wide);
    let below = column.below.map(|name| text(&row[name])).filter(|text| text != NOTHING);
    if field.is_null() {
        return html! { td class=[class] { (NOTHING) @if let Some(text) = below { span .why { (text) } } } };
    }
    let shown = match column.kind {
        Kind::Count | Kind::Bounded => {
            let is_bound = matches!(column.kind, Kind::Bounded) && row["and_more"] == true;
            let shown = field.as_i64().map_or_else(|| text(field), words::count);
            let shown = if is_bound { format!("{shown}+") } else { shown };
            return number(&shown, column.is_wide, false);
        }
        Kind::Span => return number(&words::span_of(field.as_i64()), column.is_wide, false),
        Kind::Age => moment(field).map(|at| ago(frame, at)),
        Kind::Code => Some(html! { code { (text(field)) } }),
        Kind::State => Some(state(&text(field))),
        Kind::Link(path) => {
            let name = text(field);
            Some(html! { a href=(frame.to(&format!("{path}/{}", encoded(&name)))) { (name) } })
        }
        Kind::Text => None,
    };
    let longest = longest_word(&text(field)).max(below.as_deref().map_or(0, longest_word));
    let breaks = match longest {
        25.. => Some("text"),
        13.. => Some("name"),
        _ => None,
    };
    let class = [class, breaks].into_iter().flatten().collect::<Vec<_>>();
    html! {
        td class=[(!class.is_empty()).then(|| class.join(" "))] {
            @match shown { Some(shown) => (shown), None => (text(field)) }
            @if let Some(text) = below { span .why { (text) } }
        }
    }
}

/// Characters of the longest word. A word above 24 may be broken, one above 12 on a narrow screen.
fn longest_word(text: &str) -> usize {
    text.split_whitespace().map(|word| word.chars().count()).max().unwrap_or(0)
}

/// A field as a text: a list with commas, a null as a dash.
pub fn text(field: &Value) -> String {
    match field {
        Value::Null => NOTHING.to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(", "),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        other => other.to_string(),
    }
}

/// A field of a row that is shown whole: its name says the unit.
pub fn fact(name: &str, field: &Value) -> String {
    match (name.ends_with("_ms"), field.as_i64(), field.as_f64()) {
        (true, _, Some(ms)) => words::span(ms as i64),
        (false, Some(number), _) => words::count(number),
        (false, None, Some(number)) => words::rate(number),
        _ => moment(field).map_or_else(|| text(field), words::moment),
    }
}

/// A field that is a time.
pub fn moment(field: &Value) -> Option<DateTime<Utc>> {
    field.as_str().and_then(|text| text.parse().ok())
}

/// The state of a task or an operation: a shape and a word, spelled as in the database.
pub fn state(name: &str) -> Markup {
    let shape = match name {
        "success" | "done" => "done",
        "claimed" | "processing" | "running" => "run",
        "cancelled" | "dropped" | "new" => "idle",
        "dead" | "fatal_failure" | "failed" => "ended",
        _ => "ok",
    };
    html! { span class={ "state " (shape) } { (name) } }
}
