//! Writes to standard output: tables for people, JSON for programs.
//!
//! Promises: a reader that closes early ends us quietly; a table fits the terminal it is shown on
//! and is plain when piped; no control character of a payload or an error reaches the terminal.

use std::io::{ErrorKind, IsTerminal, Write};

use comfy_table::{Cell, ColumnConstraint, ContentArrangement, Table, Width, presets};
use serde_json::Value;

use super::global::Global;
use crate::duration;

/// Columns when the width of the output is unknown.
const USUAL_WIDTH: u16 = 80;

/// Longest value shown on a terminal, in characters: some ten lines. A payload may have a million.
const SHOWN_CHARS: usize = 700;

/// Writes a text and a line end, if it lacks one.
pub fn put(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    match write!(out, "{text}{end}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Writes a value as JSON, indented on a terminal. Ids are strings in it.
pub fn put_json(value: &Value) -> std::io::Result<()> {
    let value = crate::ids::as_strings(value.clone());
    if std::io::stdout().is_terminal() {
        put_json_text(&format!("{value:#}"))
    } else {
        put_json_text(&value.to_string())
    }
}

/// Writes a text that is JSON already.
pub fn put_json_text(text: &str) -> std::io::Result<()> {
    put(&escaped(text))
}

/// The same JSON, with escapes for what a terminal would act upon. JSON itself asks for that below
/// U+0020 only, and a terminal obeys U+009B as it does ESC `[`.
pub fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if misleads(c) || (c.is_control() && !c.is_ascii_control()) || c == '\u{7f}' {
            for unit in c.encode_utf16(&mut [0; 2]) {
                text.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            text.push(c);
        }
    }
    text
}

/// Characters that change what a person reads, and show nothing themselves: they turn the direction of the text
/// round, end a line, have no width (two names look alike), or are tags, which hide a text in a text.
fn misleads(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// Writes what was done: a value for programs, or a sentence.
///
/// # Errors
/// Standard output takes no more, and not because its reader has closed it.
pub fn answer(global: &Global, value: &Value, text: &str) -> anyhow::Result<()> {
    match global.json {
        true => Ok(put_json(value)?),
        false => Ok(put(text)?),
    }
}

/// Writes a list: an array for programs, or a table. `columns` are those of
/// [`put_rows`]; `fill` adds the fields of a row that only the table has.
///
/// # Errors
/// As [`answer`].
pub fn put_list(
    global: &Global,
    mut list: Vec<Value>,
    columns: &str,
    none: &str,
    fill: impl FnMut(&mut Value),
) -> anyhow::Result<()> {
    if global.json {
        return Ok(put_json(&Value::Array(list))?);
    }
    list.iter_mut().for_each(fill);
    Ok(put_rows(&list, columns, none)?)
}

/// Writes rows as a table. Columns have commas between them: `heading: name` of a [`field`], or one word for both.
///
/// # Errors
/// As [`answer`].
pub fn put_rows(list: &[Value], columns: &str, none: &str) -> std::io::Result<()> {
    let (heading, names): (Vec<_>, Vec<_>) = titled(columns).unzip();
    let cells = |row: &Value| names.iter().map(|name| field(row, name)).collect();
    put_table(&heading, list.iter().map(cells).collect(), none)
}

/// Writes the fields of a row that are not null, each behind its title.
///
/// # Errors
/// As [`answer`].
pub fn put_fields(row: &Value, fields: &str) -> std::io::Result<()> {
    put_pairs(titled(fields).map(|(title, name)| (title, filled(row, name))).collect())
}

fn titled(columns: &str) -> impl Iterator<Item = (&str, &str)> {
    columns.split(", ").map(|column| column.split_once(": ").unwrap_or((column, column)))
}

/// Writes rows under a heading. An empty list says so. On a terminal, a column without values is left out, and
/// rows of which the words are too long for its columns are lists of pairs.
pub fn put_table(heading: &[&str], rows: Vec<Vec<String>>, none: &str) -> std::io::Result<()> {
    if rows.is_empty() {
        return put(none);
    }
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|text| clean(text)).collect()).collect();
    let is_shown = |at: &usize| {
        !std::io::stdout().is_terminal() || rows.iter().any(|row| !row[*at].is_empty())
    };
    let columns: Vec<usize> = (0..heading.len()).filter(is_shown).collect();
    let words = |at: usize| rows.iter().map(move |row| longest_word(&row[at]));
    let least = |at: usize| words(at).max().unwrap_or(0).max(heading[at].len());
    if std::io::stdout().is_terminal()
        && columns.iter().map(|at| least(*at) + 2).sum::<usize>() > usize::from(width()) + 2
    {
        for (number, row) in rows.iter().enumerate() {
            if number > 0 {
                put("")?;
            }
            let filled = |at: &usize| Some(row[*at].clone()).filter(|text| !text.is_empty());
            put_pairs(columns.iter().map(|at| (heading[*at], filled(at))).collect())?;
        }
        return Ok(());
    }
    let mut table = plain_table();
    table.set_header(columns.iter().map(|at| heading[*at].to_uppercase()));
    for row in &rows {
        table.add_row(columns.iter().map(|at| Cell::new(&row[*at])));
    }
    for (shown, at) in columns.iter().enumerate() {
        let least = u16::try_from(least(*at) + 2).unwrap_or(u16::MAX);
        if let Some(column) = table.column_mut(shown) {
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(least)));
        }
    }
    put(&trimmed(table))
}

/// Characters of the longest word, which no line may break: an id in two lines cannot be copied.
fn longest_word(text: &str) -> usize {
    text.split(' ').map(|word| word.chars().count()).max().unwrap_or(0)
}

/// Writes names and values, one pair a line; a pair without value is left out, and one too long for
/// a terminal is cut there.
pub fn put_pairs(pairs: Vec<(&str, Option<String>)>) -> std::io::Result<()> {
    let mut table = plain_table();
    let most = if std::io::stdout().is_terminal() { SHOWN_CHARS } else { usize::MAX };
    for (name, value) in pairs {
        if let Some(value) = value {
            table.add_row([Cell::new(name), Cell::new(shortened(&clean(&value), most))]);
        }
    }
    whole(&mut table, 0);
    put(&trimmed(table))
}

/// Columns of the terminal.
pub fn width() -> u16 {
    Table::new().width().unwrap_or(USUAL_WIDTH)
}

fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if std::io::stdout().is_terminal() {
        table.set_content_arrangement(ContentArrangement::Dynamic);
        if table.width().is_none() {
            table.set_width(USUAL_WIDTH);
        }
    }
    table
}

/// Never breaks a cell of this column in two: an id in two lines cannot be copied.
fn whole(table: &mut Table, column: usize) {
    if let Some(column) = table.column_mut(column) {
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
}

/// A text in lines of at most so many characters, broken between words. A longer word has its own line.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The beginning of a text, and how long it was.
fn shortened(text: &str, most_chars: usize) -> String {
    match text.char_indices().nth(most_chars) {
        None => text.to_owned(),
        Some((at, _)) => {
            let chars = text.chars().count();
            format!("{}… ({chars} characters, --json prints them all)", &text[..at])
        }
    }
}

fn trimmed(mut table: Table) -> String {
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 2));
    });
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Without control characters; a line end or tab becomes a space.
pub fn clean(text: &str) -> String {
    let shown = |c: char| match c {
        '\n' | '\t' | '\r' | '\u{2028}' | '\u{2029}' => Some(' '),
        c if c.is_control() || misleads(c) => None,
        c => Some(c),
    };
    text.chars().filter_map(shown).collect()
}

/// A field of a JSON row as text; null and absent are empty.
pub fn field(row: &Value, name: &str) -> String {
    filled(row, name).unwrap_or_default()
}

/// A field of a JSON row as text, if it is not null. `x_ms` is a duration, `x_ms_ago` was so long ago, and
/// `left_ms` is what is left.
pub fn filled(row: &Value, name: &str) -> Option<String> {
    match row.get(name)? {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => {
            let texts =
                items.iter().map(|item| item.as_str().map_or(item.to_string(), str::to_owned));
            Some(texts.collect::<Vec<_>>().join(", "))
        }
        other => Some(match other.as_i64().map(|ms| (ms, duration::show(ms))) {
            Some((0.., shown)) if name.ends_with("_ms_ago") => format!("{shown} ago"),
            Some((_, shown)) if name.ends_with("_ms_ago") || name == "left_ms" => {
                format!("in {shown}")
            }
            Some((_, shown)) if name.ends_with("_ms") => shown,
            _ => other.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_means_the_same_after_its_control_characters_are_escaped() {
        let value = serde_json::json!({"a": "\u{9b}2J\u{7f}\u{202e}\u{200b}\u{2028}\u{e0041}\u{1b}\n\u{e4}\u{1f600}"});
        let text = escaped(&format!("{value:#}"));
        assert!(!text.contains(|c: char| misleads(c) || (c.is_control() && c != '\n')), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }

    #[test]
    fn a_long_value_is_cut_between_characters() {
        assert_eq!(shortened("äöü", 3), "äöü");
        assert_eq!(shortened("äöü", 2), "äö… (3 characters, --json prints them all)");
    }

    #[test]
    fn a_narrow_terminal_does_not_break_an_id() {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(60).add_row(["1125899906842624", &"x".repeat(63), &"y".repeat(63)]);
        whole(&mut table, 0);
        let text = trimmed(table);
        assert!(text.starts_with("1125899906842624  "), "{text}");
        assert!(text.lines().all(|line| line.len() <= 60), "{text}");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(clean("a\u{1b}[31mred\u{7}\nb\tc\u{9b}\u{202e}d"), "a[31mred b cd");
    }

    #[test]
    fn what_has_no_width_and_what_ends_a_line_does_not_reach_the_terminal() {
        assert_eq!(
            clean("pay\u{200b}ment\u{2060}\u{feff}\u{ad}\u{e0068}\u{e0069}\u{fe0f}"),
            "payment"
        );
        assert_eq!(clean("one\u{2028}two\u{2029}three"), "one two three");
        assert_eq!(
            clean("naïve e\u{301} 漢字 \u{1f600} \u{fffd}"),
            "naïve e\u{301} 漢字 \u{1f600} \u{fffd}"
        );
    }
}
