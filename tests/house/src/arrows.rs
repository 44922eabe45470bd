//! Which nodes a node reaches, and circles.

use std::collections::{BTreeMap, BTreeSet};

/// The nodes to which each node has an arrow. Every node is a key.
pub type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The nodes that one reaches, not beyond those of `stop`.
pub fn reached<'a>(arrows: &'a Arrows, from: &str, stop: &[&str]) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut open: Vec<&str> = arrows[from].iter().map(String::as_str).collect();
    while let Some(next) = open.pop() {
        if seen.insert(next) && !stop.contains(&next) {
            open.extend(arrows[next].iter().map(String::as_str));
        }
    }
    seen
}

/// The largest sets of nodes that reach each other; a node with an arrow to itself is one.
pub fn circles(arrows: &Arrows) -> Vec<Vec<&str>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        arrows.keys().map(|name| (name.as_str(), reached(arrows, name, &[]))).collect();
    let (mut found, mut placed) = (Vec::new(), BTreeSet::new());
    for (name, reached) in &reach {
        if reached.contains(name) && !placed.contains(name) {
            let back = |other: &&str| reach[other].contains(name);
            let circle: Vec<&str> = reached.iter().copied().filter(back).collect();
            placed.extend(circle.iter().copied());
            found.push(circle);
        }
    }
    found
}
