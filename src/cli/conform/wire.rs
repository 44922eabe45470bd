//! The wire log of a case, as the judge reads it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Deserialize;
use serde_json::Value;

/// A line of the log: see `controller/wire_log.rs`.
#[derive(Debug, Deserialize)]
pub struct Line {
    pub pid: u32,
    pub message: String,
    pub direction: String,
    #[serde(default)]
    pub lane: Option<u32>,
    #[serde(default)]
    pub no: Option<u64>,
    #[serde(default)]
    pub executor: Option<String>,
    #[serde(default)]
    pub status: Option<u16>,
    #[serde(default)]
    pub lost: bool,
    pub body: Value,
}

impl Line {
    fn is_up(&self) -> bool {
        self.direction == "up"
    }

    fn list(&self, name: &str) -> &[Value] {
        self.body.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// The chain of NextWork that it belongs to.
    fn chain(&self) -> Option<(&str, u32)> {
        Some((self.executor.as_deref()?, self.lane?))
    }
}

/// A task and a fence.
pub type Attempt = (String, String);

/// An executor that has joined.
#[derive(Debug)]
pub struct Joined {
    pub name: String,
    pub pid: u32,
    pub sdk: Option<String>,
    /// Slots by lambda.
    pub slots: BTreeMap<String, usize>,
}

/// All lines of a case so far.
#[derive(Debug, Default)]
pub struct Wire {
    pub lines: Vec<Line>,
}

impl Wire {
    /// Executors, in the order in which they joined.
    pub fn joined(&self) -> Vec<Joined> {
        let mut asked: HashMap<u32, &Value> = HashMap::new();
        let mut joined: Vec<Joined> = Vec::new();
        for line in self.lines.iter().filter(|line| line.message == "Join") {
            if line.is_up() {
                asked.insert(line.pid, &line.body);
                continue;
            }
            let (Some(join), Some(name)) = (asked.get(&line.pid), text(&line.body, "executor"))
            else {
                continue;
            };
            if joined.iter().any(|known| known.name == name) {
                continue;
            }
            let lambdas = join.get("lambdas").and_then(Value::as_array);
            let slots = lambdas.into_iter().flatten().filter_map(|served| {
                let slots = served.get("slots").and_then(Value::as_u64).unwrap_or(1);
                Some((text(served, "name")?, usize::try_from(slots).ok()?))
            });
            let pid = join.get("pid").and_then(Value::as_u64);
            joined.push(Joined {
                name,
                pid: pid.and_then(|pid| u32::try_from(pid).ok()).unwrap_or(line.pid),
                sdk: text(join, "sdk"),
                slots: slots.collect(),
            });
        }
        joined
    }

    /// How often a process came, and was refused.
    pub fn refused_joins(&self) -> usize {
        let joins = |line: &&Line| matches!(&*line.message, "Join" | "NextFork");
        let refused = |line: &&Line| line.status.is_some_and(|status| status >= 400);
        self.lines.iter().filter(joins).filter(refused).count()
    }

    /// Some executor has spoken on another lane than 0.
    pub fn has_second_lane(&self) -> bool {
        self.lines.iter().any(|line| line.lane.is_some_and(|lane| lane > 0))
    }

    /// Attempts that were handed out, with their lambdas. A repeated answer hands out nothing new.
    pub fn handed_out(&self) -> Vec<(Attempt, String)> {
        let mut seen = BTreeSet::new();
        let tasks =
            self.lines.iter().filter(|line| !line.is_up()).flat_map(|line| line.list("tasks"));
        let all = tasks.filter_map(|task| Some((attempt(task)?, text(task, "lambda")?)));
        all.filter(|(attempt, _)| seen.insert(attempt.clone())).collect()
    }

    /// Results, each once, in their order.
    pub fn results(&self) -> Vec<(Attempt, String)> {
        let mut seen = BTreeSet::new();
        let fresh = self.lines.iter().filter(|line| line.is_up() && line.message == "NextWork");
        let fresh = fresh.filter(|line| seen.insert((line.chain(), line.no)));
        let results = fresh.flat_map(|line| line.list("results"));
        results.filter_map(|one| Some((attempt(one)?, text(one, "status")?))).collect()
    }

    /// Messages that were sent again.
    pub fn repeats(&self) -> usize {
        let mut seen = BTreeSet::new();
        let ups = self.lines.iter().filter(|line| line.is_up() && line.no.is_some());
        ups.filter(|line| !seen.insert((line.chain(), line.no))).count()
    }

    /// Most tasks of each lambda that were in hand at a time.
    pub fn at_once(&self) -> BTreeMap<String, usize> {
        let mut lambdas: HashMap<Attempt, String> = HashMap::new();
        let mut now: BTreeMap<String, usize> = BTreeMap::new();
        let mut most = now.clone();
        for line in &self.lines {
            for task in line.list("tasks").iter().filter(|_| !line.is_up()) {
                let (Some(attempt), Some(lambda)) = (attempt(task), text(task, "lambda")) else {
                    continue;
                };
                if lambdas.insert(attempt, lambda.clone()).is_none() {
                    let count = now.entry(lambda.clone()).or_default();
                    *count += 1;
                    let most = most.entry(lambda).or_default();
                    *most = (*most).max(*count);
                }
            }
            for lambda in line.list("results").iter().filter_map(|one| lambdas.get(&attempt(one)?))
            {
                now.entry(lambda.clone()).and_modify(|count| *count = count.saturating_sub(1));
            }
        }
        most
    }

    /// The names of all refusals, each once. A client that outlives its executor may hear that it is unknown.
    pub fn refusals(&self) -> BTreeSet<String> {
        let joined = self.joined();
        let earlier = &joined[..joined.len().saturating_sub(1)];
        let was = |line: &Line| earlier.iter().any(|one| line.executor.as_ref() == Some(&one.name));
        let refused = |line: &&Line| match line.status {
            Some(410) => !was(line),
            status => status.is_some_and(|status| status >= 400),
        };
        let lines = self.lines.iter().filter(refused);
        lines.map(|line| text(&line.body, "name").unwrap_or_default()).collect()
    }

    /// An executor has heard that nothing more is handed out.
    pub fn is_draining(&self) -> bool {
        self.lines.iter().any(|line| !line.is_up() && line.body["draining"] == true)
    }

    /// Lanes of this executor on which a message waits for its answer.
    pub fn open_lanes(&self, executor: &str) -> usize {
        let mut open: BTreeMap<u32, bool> = BTreeMap::new();
        for line in &self.lines {
            if let Some((name, lane)) = line.chain().filter(|(name, _)| *name == executor)
                && line.message == "NextWork"
            {
                debug_assert_eq!(name, executor);
                open.insert(lane, line.is_up());
            }
        }
        open.values().filter(|open| **open).count()
    }

    /// Breaches of the laws that hold in each case: what the executor did, in a sentence.
    pub fn breaches(&self) -> Vec<String> {
        let mut breaches = Vec::new();
        let mut lanes: HashMap<(&str, u32), Lane<'_>> = HashMap::new();
        let mut all_in_hand: HashMap<&str, BTreeSet<Attempt>> = HashMap::new();
        for line in self.lines.iter().filter(|line| line.message == "NextWork") {
            let Some(chain) = line.chain() else { continue };
            let in_hand = all_in_hand.entry(chain.0).or_default();
            if line.is_up() {
                lanes.entry(chain).or_default().hear(line, in_hand, &mut breaches);
                continue;
            }
            let has_unanswered = lanes.iter().any(|(other, lane)| {
                other.0 == chain.0 && *other != chain && !lane.answered && !lane.results.is_empty()
            });
            let lane = lanes.entry(chain).or_default();
            if !lane.has_answer(line) {
                in_hand.extend(line.list("tasks").iter().filter_map(attempt));
            }
            lane.answer(line, in_hand.is_empty() && !has_unanswered);
        }
        breaches
    }

    /// The lines that name a task, at most so many.
    pub fn of_task(&self, task: &str) -> Vec<String> {
        let names = |line: &&Line| {
            let lists = ["tasks", "results", "cancel", "refused", "progress"];
            lists.iter().any(|list| line.list(list).iter().any(|one| one["task"] == task))
                || line.body["task"] == task
        };
        self.lines.iter().filter(names).map(Line::shown).collect()
    }

    /// The last lines.
    pub fn last(&self, count: usize) -> Vec<String> {
        self.lines[self.lines.len().saturating_sub(count)..].iter().map(Line::shown).collect()
    }
}

impl Line {
    fn shown(&self) -> String {
        let arrow = if self.is_up() { ">" } else { "<" };
        let status = self.status.map(|status| format!(" {status}")).unwrap_or_default();
        let lost = if self.lost { " (lost)" } else { "" };
        let lane = self.lane.zip(self.no).map(|(lane, no)| format!(" {lane}/{no}"));
        let mut body = self.body.to_string();
        if let Some((at, _)) = body.char_indices().nth(300) {
            body.truncate(at);
            body.push('…');
        }
        format!("{arrow} {}{}{status}{lost} {body}", self.message, lane.unwrap_or_default())
    }
}

/// A chain of NextWork, as far as it was read.
#[derive(Default)]
struct Lane<'a> {
    no: u64,
    results: &'a [Value],
    /// It was answered, and the executor may have read the answer.
    answered: bool,
    /// Its answer has been written once.
    known: bool,
    /// It has heard of a drain while nothing was in hand.
    is_over: bool,
}

impl<'a> Lane<'a> {
    fn hear(
        &mut self,
        line: &'a Line,
        in_hand: &mut BTreeSet<Attempt>,
        breaches: &mut Vec<String>,
    ) {
        let (no, results) = (line.no.unwrap_or_default(), line.list("results"));
        let lane = line.lane.unwrap_or_default();
        if no == self.no && no > 0 {
            if results != self.results {
                breaches.push(format!("repeated number {no} of lane {lane} with other results"));
            }
            return;
        }
        if no != self.no + 1 {
            breaches
                .push(format!("sent number {no} on lane {lane}, where {} comes next", self.no + 1));
        } else if no > 1 && !self.answered {
            breaches.push(format!(
                "sent number {no} on lane {lane} before it had the answer to {}",
                self.no
            ));
        }
        if self.is_over {
            breaches
                .push(format!("asked again on lane {lane} after a drain, with nothing in hand"));
        }
        let statuses =
            ["success", "retriable_failure", "fatal_failure", "snoozed", "cancelled", "returned"];
        for result in results {
            let Some(attempt) = attempt(result) else {
                breaches.push("sent a result that names no task and fence".to_owned());
                continue;
            };
            if !text(result, "status").is_some_and(|status| statuses.contains(&&*status)) {
                breaches.push(format!("sent a result of task {} without a status", attempt.0));
            }
            if !in_hand.remove(&attempt) {
                breaches.push(format!(
                    "sent a result of task {} under fence {}, which it did not have in hand",
                    attempt.0, attempt.1
                ));
            }
        }
        (self.no, self.results, self.answered, self.known) = (no, results, false, false);
    }

    /// The answer to this number is there already: it is repeated.
    fn has_answer(&self, line: &Line) -> bool {
        self.known && line.no == Some(self.no)
    }

    fn answer(&mut self, line: &Line, has_nothing: bool) {
        if line.no != Some(self.no) {
            return;
        }
        self.known = true;
        if !line.lost {
            self.answered = true;
            self.is_over = line.body["draining"] == true && has_nothing;
        }
    }
}

fn attempt(of: &Value) -> Option<Attempt> {
    Some((text(of, "task")?, text(of, "fence")?))
}

fn text(of: &Value, name: &str) -> Option<String> {
    of.get(name)?.as_str().map(str::to_owned)
}
