//! An edit of the SQL: an anchor, and its replacement.

use std::collections::BTreeMap;

use crate::source::{Hit, Sources, Statement};
use crate::token::{GAP, tokens};

/// The separator of an anchor and its replacement.
pub const ARROW: &str = "==>";

/// The function that makes each queue's own functions again.
const RENEW: &str = "make_leaf_verbs";

/// `[all] [in name:] anchor ==> text`.
#[derive(Debug, Clone)]
pub struct Edit {
    /// The only function or view that is looked at.
    pub within: Option<String>,
    /// Whether the anchor may be there more than once.
    every: bool,
    anchor: String,
    pub text: String,
}

impl Edit {
    /// Reads an edit.
    pub fn read(line: &str) -> Result<Self, String> {
        let (place, text) = line.split_once(ARROW).ok_or_else(|| format!("no {ARROW}: {line}"))?;
        let (every, place) = match place.strip_prefix("all in ") {
            Some(rest) => (true, ["in ", rest].concat()),
            None => (false, place.to_owned()),
        };
        let named = place.strip_prefix("in ").and_then(|rest| rest.split_once(": "));
        let named = named.filter(|(name, _)| name.chars().all(|c| c == '_' || c.is_alphanumeric()));
        let (within, anchor) = match named {
            Some((name, anchor)) => (Some(name.to_owned()), anchor),
            None => (None, &*place),
        };
        let (anchor, text) = (anchor.trim().to_owned(), text.trim().to_owned());
        if anchor.is_empty() {
            return Err(format!("no anchor: {line}"));
        }
        Ok(Self { within, every, anchor, text })
    }

    /// The statements in which the anchor fits, by number.
    ///
    /// It must fit once, in all functions or in the named one. In functions with one name it may
    /// fit once in each.
    fn find(&self, pages: &Pages) -> Result<Vec<usize>, String> {
        let wanted = |name: &str| self.within.as_ref().is_none_or(|within| within == name);
        let anchor: Vec<_> = tokens(&self.anchor).iter().map(|t| t.text(&self.anchor)).collect();
        let (mut found, mut often) = (Vec::new(), false);
        for at in 0..pages.sources.statements.len() {
            let statement = pages.get(at);
            let hits = if wanted(&statement.name) { statement.hits(&anchor).len() } else { 0 };
            often |= hits > 1;
            found.extend((hits > 0).then_some(at));
        }
        let mut names: Vec<_> = found.iter().map(|at| &*pages.get(*at).name).collect();
        names.dedup();
        match (names.len(), often && !self.every) {
            (0, _) => Err(format!("nowhere is: {}", self.anchor)),
            (1, false) => Ok(found),
            (1, true) => Err(format!("more than once in {}: {}", names[0], self.anchor)),
            _ => Err(format!("in {}: {}", names.join(", "), self.anchor)),
        }
    }

    /// Puts the text in the place of the anchor.
    fn apply(&self, pages: &mut Pages) -> Result<(), String> {
        let anchor: Vec<_> = tokens(&self.anchor).iter().map(|t| t.text(&self.anchor)).collect();
        for at in self.find(pages)? {
            let mut statement = pages.get(at).clone();
            for hit in statement.hits(&anchor).iter().rev() {
                statement = statement.with(hit.place.clone(), &self.filled(&statement, hit));
            }
            pages.edited.insert(at, statement);
        }
        Ok(())
    }

    /// The text, with what the anchor's gaps stood for in its own gaps.
    fn filled(&self, statement: &Statement, hit: &Hit) -> String {
        let mut text = self.text.clone();
        for gap in &hit.gaps {
            text = text.replacen(GAP, &statement.text[gap.clone()], 1);
        }
        text
    }
}

/// The statements, some of them edited.
struct Pages<'a> {
    sources: &'a Sources,
    edited: BTreeMap<usize, Statement>,
}

impl Pages<'_> {
    fn get(&self, at: usize) -> &Statement {
        self.edited.get(&at).unwrap_or(&self.sources.statements[at])
    }
}

/// SQL that makes edited functions and views, and each queue's own functions again.
pub fn sql<'a>(
    sources: &Sources,
    edits: impl IntoIterator<Item = &'a Edit>,
) -> Result<String, String> {
    let mut pages = Pages { sources, edited: BTreeMap::new() };
    for edit in edits {
        edit.apply(&mut pages)?;
    }
    let mut renew = sources.statements.iter().filter(|statement| statement.name == RENEW);
    let renew = renew.next().ok_or_else(|| format!("no function {RENEW}"))?;
    let made = pages.edited.values().map(|statement| format!("{}\n", statement.text));
    let renewed = made.len() > 0;
    let renewed = renewed.then(|| format!("select {}.{RENEW}();\n", renew.schema));
    Ok(made.chain(renewed).collect())
}
