//! A chain as a tree for a terminal, and as a graph for Graphviz.

use std::collections::HashMap;

use serde_json::Value;
use tuskline_sdk::Status;

use crate::cli::output::{clean, field};

/// Tasks of a chain; the first ones wait for no task.
pub struct Drawing {
    nodes: Vec<Node>,
    by_id: HashMap<i64, usize>,
}

struct Node {
    id: i64,
    name: String,
    lambda: String,
    status: String,
    /// The tasks that it waits for, and the end that each must have.
    parents: Vec<(i64, String)>,
}

impl Drawing {
    /// From rows of `tuskline.chain_tasks`, by depth.
    pub fn of(tasks: &[Value]) -> Self {
        let nodes: Vec<Node> = tasks.iter().map(Node::read).collect();
        let by_id = nodes.iter().enumerate().map(|(at, node)| (node.id, at)).collect();
        Self { nodes, by_id }
    }

    /// Each task once, under the last of its parents; its further parents are named beside it.
    pub fn tree(&self) -> String {
        let mut below: HashMap<Option<usize>, Vec<usize>> = HashMap::new();
        for (at, node) in self.nodes.iter().enumerate() {
            below.entry(self.trunk(node)).or_default().push(at);
        }
        let mut lines = vec![self.heading()];
        // From the top down, without recursion: a chain may be a thousand deep.
        let mut open: Vec<(usize, String, String)> = Vec::new();
        let roots = below.get(&None).cloned().unwrap_or_default();
        open.extend(roots.into_iter().rev().map(|at| (at, String::new(), String::new())));
        while let Some((at, lead, further)) = open.pop() {
            lines.push(self.line(at, &lead));
            let children = below.get(&Some(at)).map(Vec::as_slice).unwrap_or_default();
            for (place, child) in children.iter().enumerate().rev() {
                let last = place + 1 == children.len();
                let (branch, rest) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
                open.push((*child, format!("{further}{branch}"), format!("{further}{rest}")));
            }
        }
        lines.join("\n")
    }

    /// For `dot -Tsvg`.
    pub fn dot(&self) -> String {
        let mut lines = vec!["digraph chain {".to_owned(), "  node [shape=box];".to_owned()];
        for node in &self.nodes {
            let color = match node.status.as_str() {
                "success" => "palegreen",
                "dead" | "fatal_failure" => "salmon",
                "claimed" | "processing" => "lightblue",
                _ if node.is_ended() => "lightgrey",
                _ => "white",
            };
            let label = quoted(&format!("{}\n{} {}", node.name, node.id, node.status));
            lines.push(format!("  {} [label={label}, style=filled, fillcolor={color}];", node.id));
            for (parent, condition) in &node.parents {
                let style = if condition == "success" { "solid" } else { "dashed" };
                let label = if condition == "success" { "" } else { condition.as_str() };
                lines.push(format!(
                    "  {parent} -> {} [style={style}, label={}];",
                    node.id,
                    quoted(label)
                ));
            }
        }
        lines.push("}".to_owned());
        lines.join("\n")
    }

    fn heading(&self) -> String {
        let count = |words: &[&str]| {
            self.nodes.iter().filter(|node| words.contains(&node.status.as_str())).count()
        };
        let succeeded = count(&["success"]);
        let failed = count(&["dead", "fatal_failure"]);
        let ended = self.nodes.iter().filter(|node| node.is_ended()).count();
        format!("{ended} of {} ended, {succeeded} succeeded, {failed} failed", self.nodes.len())
    }

    /// The parent that it is drawn under: the last one of this chain.
    fn trunk(&self, node: &Node) -> Option<usize> {
        node.parents.iter().filter_map(|(parent, _)| self.by_id.get(parent).copied()).max()
    }

    fn line(&self, at: usize, lead: &str) -> String {
        let node = &self.nodes[at];
        let trunk = self.trunk(node);
        let others: Vec<String> = node
            .parents
            .iter()
            .filter_map(|(parent, condition)| {
                let place = self.by_id.get(parent).copied();
                let named =
                    place.map_or_else(|| parent.to_string(), |at| self.nodes[at].name.clone());
                let usual = condition == "success";
                let text = if usual { named } else { format!("{condition} of {named}") };
                (place != trunk || !usual).then_some(text)
            })
            .collect();
        let mut line = format!("{lead}{}  {}  {}", node.name, node.id, node.status);
        if !node.name.starts_with(&node.lambda) {
            line += &format!("  {}", node.lambda);
        }
        match others.len() {
            0 => {}
            1..=3 => line += &format!("  (after {})", others.join(", ")),
            many => line += &format!("  (after {} and {} more)", others[..2].join(", "), many - 2),
        }
        clean(&line)
    }
}

impl Node {
    fn is_ended(&self) -> bool {
        self.status.parse().is_ok_and(Status::is_terminal)
    }

    fn read(task: &Value) -> Self {
        let list = |name: &str| task[name].as_array().cloned().unwrap_or_default();
        let parents = list("parents").into_iter().zip(list("conditions"));
        Self {
            id: task["task_id"].as_i64().unwrap_or_default(),
            name: field(task, "name"),
            lambda: field(task, "lambda"),
            status: task["status"].as_str().unwrap_or("gone").to_owned(),
            parents: parents
                .map(|(id, condition)| {
                    let condition = condition.as_str().unwrap_or_default().to_owned();
                    (id.as_i64().unwrap_or_default(), condition)
                })
                .collect(),
        }
    }
}

fn quoted(text: &str) -> String {
    let text: Vec<String> = text
        .split('\n')
        .map(|part| clean(part).replace('\\', "\\\\").replace('"', "\\\""))
        .collect();
    format!("\"{}\"", text.join("\\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn drawing() -> Drawing {
        let task = |id: i64, name: &str, status: &str, parents: &[i64], conditions: &[&str]| {
            json!({"task_id": id, "name": name, "lambda": "work", "status": status,
                   "parents": parents, "conditions": conditions})
        };
        Drawing::of(&[
            task(1, "fetch", "success", &[], &[]),
            task(2, "work_2", "success", &[1], &["success"]),
            task(3, "work_3", "dead", &[1], &["success"]),
            task(4, "join", "cancelled", &[2, 3], &["success", "success"]),
            task(5, "clean", "enqueued", &[4], &["always"]),
        ])
    }

    #[test]
    fn a_tree_shows_each_task_once() {
        assert_eq!(
            drawing().tree(),
            "4 of 5 ended, 2 succeeded, 1 failed\n\
             fetch  1  success  work\n\
             ├─ work_2  2  success\n\
             └─ work_3  3  dead\n   \
                └─ join  4  cancelled  work  (after work_2)\n      \
                   └─ clean  5  enqueued  work  (after always of join)"
        );
    }

    #[test]
    fn a_graph_names_every_arrow() {
        let dot = drawing().dot();
        assert_eq!(dot.matches(" -> ").count(), 5);
        assert!(dot.contains(r#"4 -> 5 [style=dashed, label="always"];"#), "{dot}");
        assert!(
            dot.contains(r#"3 [label="work_3\n3 dead", style=filled, fillcolor=salmon];"#),
            "{dot}"
        );
    }
}
