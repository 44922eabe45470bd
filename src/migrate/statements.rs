//! The statements of a migration, and the locks that each takes on relations that are there already.
//!
//! Only locks that another session may wait for are named: SHARE UPDATE EXCLUSIVE and stronger. A test runs
//! every statement and compares with `pg_locks`.

use serde::Serialize;

/// Mode of a lock on a relation, the weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Blocks VACUUM, ANALYZE and changes of the relation.
    ShareUpdateExclusive,
    /// Blocks writers, too.
    Share,
    /// The same, and itself.
    ShareRowExclusive,
    /// Blocks readers, too.
    AccessExclusive,
}

impl Mode {
    /// Its name in SQL.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ShareUpdateExclusive => "share update exclusive",
            Self::Share => "share",
            Self::ShareRowExclusive => "share row exclusive",
            Self::AccessExclusive => "access exclusive",
        }
    }

    /// The modes for which it waits, as `pg_locks` has them.
    pub fn waits_for(self) -> Vec<&'static str> {
        const ALL: [&str; 8] = [
            "AccessExclusiveLock",
            "ExclusiveLock",
            "ShareRowExclusiveLock",
            "ShareLock",
            "ShareUpdateExclusiveLock",
            "RowExclusiveLock",
            "RowShareLock",
            "AccessShareLock",
        ];
        match self {
            Self::ShareUpdateExclusive => ALL[..5].to_vec(),
            Self::Share => ALL[..6].iter().filter(|mode| **mode != "ShareLock").copied().collect(),
            Self::ShareRowExclusive => ALL[..6].to_vec(),
            Self::AccessExclusive => ALL.to_vec(),
        }
    }
}

/// Splits a file at the semicolons that end statements. Comments in front of a statement are left out.
pub fn split(text: &str) -> Vec<&str> {
    let (mut statements, mut from, mut at) = (Vec::new(), None, 0);
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        if rest.starts_with("--") {
            at += rest.find('\n').unwrap_or(rest.len());
            continue;
        }
        if c == ';' {
            statements.extend(from.take().map(|from| &text[from..at]));
        } else if !c.is_whitespace() && from.is_none() {
            from = Some(at);
        }
        at += quoted(rest).unwrap_or(c.len_utf8());
    }
    statements.extend(from.map(|from| text[from..].trim_end()));
    statements
}

/// Length of the quoted text that begins here.
fn quoted(rest: &str) -> Option<usize> {
    let quote = match rest.chars().next()? {
        '\'' => "'",
        '"' => "\"",
        '$' => &rest[..rest[1..].find('$')? + 2],
        _ => return None,
    };
    let is_tag = quote.trim_matches('$').chars().all(|c| c.is_alphanumeric() || c == '_');
    if quote.starts_with('$') && !is_tag {
        return None;
    }
    let body = &rest[quote.len()..];
    Some(body.find(quote).map_or(rest.len(), |end| end + 2 * quote.len()))
}

/// The first words of a statement, which tell its kind, for example `create or replace view`.
pub fn kind(statement: &str) -> String {
    let is_verb = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase());
    let words: Vec<&str> = statement.split_whitespace().take(4).take_while(is_verb).collect();
    match words.as_slice() {
        ["select" | "do" | "insert" | "delete" | "update", ..] => words[0].to_owned(),
        ["create", "or", "replace", what, ..] => format!("create or replace {what}"),
        _ => words[..words.len().min(2)].join(" "),
    }
}

/// The function or procedure that a statement creates, with its schema.
pub(super) fn function(statement: &str) -> &str {
    let name = statement.split_whitespace().nth(4).unwrap_or_default();
    name.split('(').next().unwrap_or_default()
}

/// The locks that a statement takes on relations that are there already.
pub fn locks(statement: &str) -> Vec<(Mode, String)> {
    let words: Vec<&str> = statement
        .split(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | ',' | ';'))
        .filter(|word| !word.is_empty())
        .collect();
    let mut locks: Vec<(Mode, String)> = match words.as_slice() {
        ["alter", "table" | "type", name, ..] => vec![(Mode::AccessExclusive, relation(name))],
        ["create", "or", "replace", "view", name, ..] => {
            vec![(Mode::AccessExclusive, relation(name))]
        }
        ["create", "unique", "index", ..] | ["create", "index", ..] => {
            after(&words, "on").map(|name| (Mode::Share, relation(name))).into_iter().collect()
        }
        ["comment", "on", "column", name, ..] => {
            let table = name.rsplit_once('.').map_or(*name, |(table, _)| table);
            vec![(Mode::ShareUpdateExclusive, relation(table))]
        }
        ["comment", "on", "table" | "view" | "sequence" | "index", name, ..] => {
            vec![(Mode::ShareUpdateExclusive, relation(name))]
        }
        ["do", ..] => words.windows(4).filter_map(comment_within).collect(),
        _ => Vec::new(),
    };
    if words.starts_with(&["create"]) && words.contains(&"table") {
        let referenced = words.windows(2).filter(|pair| pair[0] == "references");
        locks.extend(referenced.map(|pair| (Mode::ShareRowExclusive, relation(pair[1]))));
        let parent = words.windows(3).find(|three| three[..2] == ["partition", "of"]);
        locks.extend(parent.map(|three| (Mode::AccessExclusive, relation(three[2]))));
    }
    locks.sort();
    locks.dedup();
    locks
}

/// The lock of a comment within a block of PL/pgSQL.
fn comment_within(words: &[&str]) -> Option<(Mode, String)> {
    match words {
        ["comment", "on", "table", name] => Some((Mode::ShareUpdateExclusive, relation(name))),
        _ => None,
    }
}

fn after<'a>(words: &[&'a str], word: &str) -> Option<&'a str> {
    let at = words.iter().position(|one| *one == word)?;
    words.get(at + 1).copied()
}

fn relation(name: &str) -> String {
    name.trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_ends_at_a_semicolon_outside_quotes() {
        let text = "-- a;\nselect ';' || \"b;\";\ncreate function f() as $$ begin; end $$;\n\ndo $x$ $$;$$ $x$ ;";
        assert_eq!(
            split(text),
            [
                "select ';' || \"b;\"",
                "create function f() as $$ begin; end $$",
                "do $x$ $$;$$ $x$ "
            ]
        );
        assert_eq!(split("select 'it''s;' -- c;\n , 1"), ["select 'it''s;' -- c;\n , 1"]);
        assert_eq!(split("  -- only a comment"), [""; 0]);
    }

    #[test]
    fn the_kind_is_what_a_statement_does() {
        for (statement, expected) in [
            ("create or replace function tuskline.f()", "create or replace function"),
            ("comment on column a.b.c is 'x'", "comment on"),
            ("select tuskline.f()", "select"),
            ("alter table a.b add column c text", "alter table"),
        ] {
            assert_eq!(kind(statement), expected);
        }
    }

    #[test]
    fn the_function_is_named_with_its_schema() {
        let statement = "create or replace function tuskline_core.make_pop(p_queue integer)";
        assert_eq!(function(statement), "tuskline_core.make_pop");
        assert_eq!(function("create or replace procedure a.b () as"), "a.b");
    }

    #[test]
    fn a_lock_names_its_relation() {
        use Mode::{AccessExclusive, Share, ShareRowExclusive, ShareUpdateExclusive};
        for (statement, expected) in [
            ("alter table a.b add column c text", vec![(AccessExclusive, "a.b")]),
            ("create index i on a.b (c)", vec![(Share, "a.b")]),
            ("create unique index on a.b(c)", vec![(Share, "a.b")]),
            ("create table a.c (l text references a.b (n))", vec![(ShareRowExclusive, "a.b")]),
            (
                "create table a.c partition of a.b for values from (1) to (2)",
                vec![(AccessExclusive, "a.b")],
            ),
            ("comment on column a.b.c is 'references a.x'", vec![(ShareUpdateExclusive, "a.b")]),
            ("create or replace view a.v as select 1", vec![(AccessExclusive, "a.v")]),
            ("create function a.f() returns int", vec![]),
        ] {
            let found = locks(statement);
            let found: Vec<_> = found.iter().map(|(mode, name)| (*mode, name.as_str())).collect();
            assert_eq!(found, expected, "{statement}");
        }
    }
}
