//! Random graphs of tasks that end in random order. Every task ends once, as the ends of its
//! parents and its own conditions require. No task runs before the tasks it waits for. A retried
//! chain ends as it should.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Db, ScriptedWorker, Task};

const GRAPHS: u64 = 30;
const MOST_NODES: usize = 40;

/// A task of a graph, as the test thinks of it.
#[derive(Debug)]
struct Node {
    id: i64,
    policy: &'static str,
    parents: Vec<(usize, &'static str)>,
    /// Whether the body returns success.
    succeeds: bool,
}

/// The expected end of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Success,
    Failure,
    Cancelled,
    /// The task waits for a held task, or is held itself.
    Waits,
}

impl Fate {
    fn of(status: &str) -> Self {
        match status {
            "success" => Self::Success,
            "fatal_failure" | "dead" => Self::Failure,
            "cancelled" => Self::Cancelled,
            _ => Self::Waits,
        }
    }
}

struct Graph {
    db: Db,
    worker: ScriptedWorker,
    rng: fastrand::Rng,
    nodes: Vec<Node>,
    by_id: HashMap<i64, usize>,
}

impl Graph {
    async fn schedule(db: Db, worker: ScriptedWorker, seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let count = rng.usize(1..=MOST_NODES);
        let mut nodes: Vec<Node> = Vec::new();
        for place in 0..count {
            let mut parents = Vec::new();
            for _ in 0..rng.usize(0..4).min(place) {
                let parent = rng.usize(place.saturating_sub(8)..place);
                if parents.iter().all(|(other, _)| *other != parent) {
                    let condition =
                        *rng.choice(&["success", "success", "failure", "always"]).unwrap();
                    parents.push((parent, condition));
                }
            }
            let policy = rng.choice(["cancel", "cancel", "hold", "run"]).unwrap();
            nodes.push(Node { id: 0, policy, parents, succeeds: rng.u32(0..4) > 0 });
        }
        let tasks: Vec<Value> = nodes
            .iter()
            .enumerate()
            .map(|(place, node)| {
                let after: Vec<Value> = node
                    .parents
                    .iter()
                    .map(|(parent, on)| json!({"task": format!("n{parent}"), "on": on}))
                    .collect();
                json!({"lambda": "work", "name": format!("n{place}"), "after": after,
                       "on_parent_failure": node.policy})
            })
            .collect();
        let text = Value::from(tasks).to_string();
        let ids: Vec<i64> =
            db.ask("select ids from tuskline.schedule_chain($1::text::json)", &[&text]).await;
        let by_id = ids.iter().enumerate().map(|(place, id)| (*id, place)).collect();
        for (node, id) in nodes.iter_mut().zip(ids) {
            node.id = id;
        }
        Self { db, worker, rng, nodes, by_id }
    }

    /// The expected end of each task, in graph order. `kept` marks the tasks that have succeeded
    /// already.
    fn fates(&self, kept: &[bool]) -> Vec<Fate> {
        let mut fates: Vec<Fate> = Vec::new();
        for (place, node) in self.nodes.iter().enumerate() {
            let mut broken =
                node.parents.iter().filter(|(parent, on)| match (fates[*parent], *on) {
                    (Fate::Waits, _) | (_, "always") => false,
                    (end, "failure") => end == Fate::Success,
                    (end, _) => end != Fate::Success && node.policy != "run",
                });
            let fate = if kept[place] {
                Fate::Success
            } else if broken.clone().any(|(_, on)| *on == "failure" || node.policy == "cancel") {
                Fate::Cancelled
            } else if broken.next().is_some()
                || node.parents.iter().any(|(parent, _)| fates[*parent] == Fate::Waits)
            {
                Fate::Waits
            } else if node.succeeds {
                Fate::Success
            } else {
                Fate::Failure
            };
            fates.push(fate);
        }
        fates
    }

    /// Runs every task that becomes ready, in random order, until none has been ready for 100 s.
    async fn run(&mut self) {
        let (mut held, mut idle) = (Vec::<Task>::new(), 0);
        for _ in 0..self.nodes.len() * 4 + 20 {
            while self.db.enqueue_due().await > 0 {}
            for task in self.worker.claim(self.rng.i32(1..6)).await {
                self.check_start(task.id).await;
                held.push(task);
            }
            idle = if held.is_empty() { idle + 1 } else { 0 };
            if idle > 10 {
                break;
            }
            if self.rng.u32(0..8) == 0 {
                self.db.assert_invariants().await;
            }
            if !held.is_empty() {
                let task = held.swap_remove(self.rng.usize(0..held.len()));
                let succeeds = self.nodes[self.by_id[&task.id]].succeeds;
                match (succeeds, self.rng.u32(0..6)) {
                    (_, 0) => drop(self.worker.fail(&task).await),
                    (true, _) => drop(self.worker.succeed(&task).await),
                    (false, _) => drop(self.worker.fail_for_good(&task).await),
                }
            }
            self.db.advance(Duration::from_secs(10)).await;
        }
        assert!(held.is_empty());
    }

    async fn check_start(&self, id: i64) {
        let node = &self.nodes[self.by_id[&id]];
        for (parent, on) in &node.parents {
            let status = self.db.status(self.nodes[*parent].id).await;
            let met = match (*on, Fate::of(&status)) {
                (_, Fate::Waits) => false,
                ("always", _) => true,
                ("failure", end) => end != Fate::Success,
                (_, end) => end == Fate::Success || node.policy == "run",
            };
            assert!(met, "task {id} started, and its parent is {status}, wanted {on}");
        }
    }

    async fn check(&self, fates: &[Fate]) {
        for (place, node) in self.nodes.iter().enumerate() {
            let status = self.db.status(node.id).await;
            assert_eq!(Fate::of(&status), fates[place], "n{place} of {:#?}", self.nodes);
        }
        let left: i64 = self.db.one("select count(*) from tuskline.timer").await;
        assert_eq!(left, 0);
    }

    async fn succeeded(&self) -> Vec<bool> {
        let mut succeeded = Vec::new();
        for node in &self.nodes {
            succeeded.push(self.db.status(node.id).await == "success");
        }
        succeeded
    }
}

#[tokio::test]
async fn every_task_of_a_random_graph_ends_as_its_parents_ends_say() {
    let mut db = Db::new().await;
    db.define_with("work", "p_retry_base => '1 second', p_retry_cap => '1 second'").await;
    db.pin().await;
    for seed in 0..GRAPHS {
        db.empty().await;
        let worker = db.worker("work").await;
        let mut graph = Graph::schedule(db, worker, seed).await;
        let none = vec![false; graph.nodes.len()];
        graph.run().await;
        graph.check(&graph.fates(&none)).await;
        // The retry covers the whole chain, after the cause is fixed.
        let kept = graph.succeeded().await;
        for node in &mut graph.nodes {
            node.succeeds = true;
        }
        let first = graph.nodes[0].id;
        graph.db.run(&format!("select tuskline.retry_chain({first})")).await;
        graph.run().await;
        graph.check(&graph.fates(&kept)).await;
        db = graph.db;
    }
}
