//! Imports between the modules of a Rust crate.
//!
//! Arrows join siblings: a module that names something of `a::b::c` from within `a::d` has an arrow
//! from `a::d` to `a::b`. A parent and its own children are one room and have none.

use std::collections::BTreeSet;
use std::path::Path;

use crate::arrows::Arrows;
use crate::rust::{is_code, is_test, without_tests};
use crate::tree::Tree;

/// Fewest rooms of a dispatcher.
const ROOMS: usize = 10;

/// The imports of a crate.
#[derive(Debug, Default)]
pub struct Imports {
    /// Between siblings.
    pub arrows: Arrows,
    /// Names that a module takes from the root of its crate, not from the module that owns them.
    pub from_root: Vec<String>,
    /// Arrows up: a room takes a name from the file of the module around it, and that file is a
    /// dispatcher. It has at least `ROOMS` rooms and calls them, so the two import each other. A
    /// type whose methods stand in several files (`state`, `state::keys`) makes no arrow up.
    pub up: BTreeSet<String>,
}

impl Imports {
    /// Reads the imports of a crate from its sources.
    pub fn of(tree: &Tree) -> Self {
        let files: Vec<_> = tree.files.iter().filter(|(path, _)| !is_test(path)).collect();
        let modules: Vec<Vec<String>> = files.iter().map(|(path, _)| module(path)).collect();
        let mut found = Self::default();
        for ((_, text), from) in files.iter().zip(&modules) {
            let text = without_tests(text);
            let code: Vec<&str> = text.lines().filter(is_code).collect();
            for path in paths(&code.join("\n")) {
                found.add(from, &path, &modules);
            }
        }
        found
    }

    fn add(&mut self, from: &[String], path: &[String], modules: &[Vec<String>]) {
        let Some(path) = absolute(from, path) else { return };
        let owner = (0..=path.len()).rev().find(|length| {
            *length == 0 || modules.iter().any(|module| module[..] == path[..*length])
        });
        let to = &path[..owner.unwrap_or(0)];
        if to.is_empty() && !from.is_empty() {
            self.from_root.push(format!("{}: {}", from.join("::"), path.join("::")));
        }
        let rooms = |of: &[String]| modules.iter().filter(|module| is_room(module, of)).count();
        if !to.is_empty() && to.len() < from.len() && from.starts_with(to) && rooms(to) >= ROOMS {
            self.up.insert(format!("{} {}", from[..=to.len()].join("::"), to.join("::")));
        }
        let shared = from.iter().zip(to).take_while(|(a, b)| a == b).count();
        if shared < from.len() && shared < to.len() {
            let [from, to] = [from, to].map(|side| side[..=shared].join("::"));
            self.arrows.entry(to.clone()).or_default();
            self.arrows.entry(from).or_default().insert(to);
        }
    }
}

/// Whether a module is a child of another.
fn is_room(module: &[String], of: &[String]) -> bool {
    module.split_last().is_some_and(|(_, parent)| parent == of)
}

/// The module that a file is: `a/b.rs` and `a/b/mod.rs` are `a::b`.
fn module(path: &Path) -> Vec<String> {
    let path = path.with_extension("");
    let mut parts: Vec<String> =
        path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        parts.pop();
    }
    parts
}

/// A path from the root of the crate.
fn absolute(from: &[String], path: &[String]) -> Option<Vec<String>> {
    let mut base = from.to_vec();
    for (at, part) in path.iter().enumerate() {
        match part.as_str() {
            "crate" => base.clear(),
            "self" => {}
            "super" => drop(base.pop()?),
            _ => return Some(base.into_iter().chain(path[at..].iter().cloned()).collect()),
        }
    }
    Some(base)
}

/// The paths of a text that begin at the crate or at a parent.
fn paths(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for begin in ["crate::", "super::"] {
        for (at, _) in code.match_indices(begin) {
            let before = code[..at].chars().next_back();
            if before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':' && c != '$') {
                tree(&code[at..], &mut Vec::new(), &mut found);
            }
        }
    }
    found
}

/// Reads `a::b`, `a::*` or `a::{b, c::d}`; what follows it.
fn tree<'a>(text: &'a str, outer: &mut Vec<String>, found: &mut Vec<Vec<String>>) -> &'a str {
    let depth = outer.len();
    let mut rest = text.trim_start();
    loop {
        if let Some(list) = rest.strip_prefix('{') {
            rest = list.trim_start();
            while !rest.is_empty() && !rest.starts_with('}') {
                rest = tree(rest, outer, found).trim_start();
                let after = rest.trim_start_matches(|c: char| c != ',' && c != '}');
                rest = after.strip_prefix(',').unwrap_or(after).trim_start();
            }
            rest = rest.strip_prefix('}').unwrap_or(rest);
            break;
        }
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        if !name.is_empty() {
            outer.push(name.to_owned());
        }
        match after.strip_prefix("::") {
            Some(next) if !name.is_empty() => rest = next,
            _ => {
                found.push(outer.clone());
                rest = after;
                break;
            }
        }
    }
    outer.truncate(depth);
    rest
}
