//! Tasks as a table.

use maud::{Markup, html};
use serde_json::Value;

use super::Found;
use crate::pages::parts::{Frame, ago, encoded, number};
use crate::pages::table::{moment, state, text};

/// The tasks of a look. A payload is not shown.
pub fn of(frame: &Frame, found: &Found, tasks: &[Value]) -> Markup {
    html! {
        table {
            thead { tr {
                th scope="col" { "Task" } th .wide scope="col" { "Lambda" } th scope="col" { "Status" }
                th .wide scope="col" { "Priority" } th .wide scope="col" { "Collection" }
                th .n.wide scope="col" { "Attempt" } th .n scope="col" { "Due" }
                th .wide scope="col" { "Last error" }
            } }
            tbody { @for task in tasks { (row(frame, found, task)) } }
        }
    }
}

fn row(frame: &Frame, found: &Found, task: &Value) -> Markup {
    let (id, lambda) = (text(&task["id"]), text(&task["lambda"]));
    let due = match task["status"].as_str() {
        Some("retriable_failure") => &task["next_trigger_at"],
        _ => &task["due_at"],
    };
    html! {
        tr {
            td .text {
                a .mono href=(frame.to(&format!("tasks/{id}"))) { (id) }
                span .why { span .narrow { (lambda) } }
            }
            td .wide { a href=(frame.to(&format!("lambdas/{}", encoded(&lambda)))) { (lambda) } }
            td { (state(&text(&task["status"]))) }
            td .wide { (text(&task["priority"])) }
            td .wide { (text(&task["collection"])) }
            (number(&text(&task["attempt"]), true, false))
            td .n { @if let Some(at) = moment(due) { (ago(frame, at)) } }
            td .text.wide { @if let Some(error) = task["error"].as_str() { (marked(error, &found.words)) } }
        }
    }
}

/// A text with the words of the search marked.
fn marked(text: &str, words: &[String]) -> Markup {
    let lower = text.to_ascii_lowercase();
    let first = words.iter().filter_map(|word| {
        let word = word.to_ascii_lowercase();
        lower.find(&word).map(|at| (at, at + word.len()))
    });
    match first.min() {
        Some((from, to)) => {
            let (before, rest) = text.split_at(from);
            let (word, behind) = rest.split_at(to - from);
            html! { (before) mark { (word) } (behind) }
        }
        None => html! { (text) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_marked_where_it_stands_first() {
        let words = ["TIMEOUT".to_owned(), "answer".to_owned()];
        let shown = marked("no ánswer: Timeout <b> timeout", &words).into_string();
        assert_eq!(shown, "no ánswer: <mark>Timeout</mark> &lt;b&gt; timeout");
        assert_eq!(marked("a<b", &[]).into_string(), "a&lt;b");
    }
}
