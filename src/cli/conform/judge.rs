//! Judges a case that was played: by the database and by the wire, never by the subject's word.

use serde::Serialize;

use super::case::{Case, Ending, NONE, PAYLOAD};
use super::play::{Played, PlayedTask};
use super::wire::Joined;

/// Wire lines that a finding shows at most.
const LINES: usize = 12;
/// By so much the time until a task is due may differ.
const MINUTE_MS: i64 = 60_000;

/// A sentence that does not hold.
#[derive(Debug, Serialize)]
pub struct Finding {
    pub expected: String,
    pub seen: String,
    /// Lines of the wire log that concern it.
    pub wire: Vec<String>,
}

/// The abilities of an executor, as its Join and its lanes show them.
#[derive(Debug, Default)]
pub struct Abilities {
    pub joined: Option<Joined>,
    pub has_second_lane: bool,
}

impl Abilities {
    /// The ability that it lacks for a case.
    pub fn lack(&self, case: &Case) -> Option<String> {
        let Some(joined) = &self.joined else {
            return Some("it has not joined".to_owned());
        };
        if let Some(lambda) = case.lambdas().find(|name| !joined.slots.contains_key(*name)) {
            return Some(format!("it does not serve {lambda}"));
        }
        let slots = joined.slots.get("hold").copied().unwrap_or(0);
        if case.needs.slots > slots {
            return Some(format!("it has {slots} slots of {}", case.needs.slots));
        }
        let all: usize = joined.slots.values().sum();
        let is_deaf = all <= joined.slots.len() && !self.has_second_lane;
        (case.needs.hears_cancel && is_deaf).then(|| "it hears no cancel".to_owned())
    }
}

/// Sentences that do not hold. Empty: the case has passed.
pub fn judge(case: &Case, played: &Played) -> Vec<Finding> {
    let mut judge = Judge { played, findings: Vec::new() };
    if let Some(stuck) = &played.stuck {
        let (wanted, seen) = stuck.split_once("; ").unwrap_or((stuck, ""));
        judge.find(wanted, seen, None);
    }
    for (name, ending) in &case.expect.tasks {
        for task in played.tasks.get(name).into_iter().flatten() {
            judge.task(name, ending, task);
        }
    }
    judge.whole(case);
    judge.laws();
    judge.findings
}

struct Judge<'a> {
    played: &'a Played,
    findings: Vec<Finding>,
}

impl Judge<'_> {
    fn find(&mut self, expected: &str, seen: &str, task: Option<i64>) {
        let wire = &self.played.wire;
        let mut lines = match task {
            Some(task) => wire.of_task(&task.to_string()),
            None => wire.last(LINES),
        };
        lines.truncate(LINES);
        let finding = Finding { expected: expected.to_owned(), seen: seen.to_owned(), wire: lines };
        self.findings.push(finding);
    }

    fn must_be<T: PartialEq + std::fmt::Debug>(
        &mut self,
        what: &str,
        wanted: Option<T>,
        seen: T,
        task: i64,
    ) {
        if let Some(wanted) = wanted.filter(|wanted| *wanted != seen) {
            self.find(&format!("{what} {wanted:?}"), &format!("{seen:?}"), Some(task));
        }
    }

    fn task(&mut self, name: &str, ending: &Ending, played: &PlayedTask) {
        let PlayedTask { id, payload, task, begun } = played;
        let before = self.findings.len();
        self.must_be(&format!("{name}: status"), Some(&ending.status), &task.status, *id);
        self.must_be(&format!("{name}: attempt"), ending.attempt, task.attempt, *id);
        self.must_be(&format!("{name}: crashes"), ending.crashes, task.crashes, *id);
        self.output(name, ending, played);
        let (own, wire) = (id.to_string(), &self.played.wire);
        let handed = wire.handed_out();
        let handed: Vec<_> = handed.iter().filter(|one| one.0.0 == own).collect();
        let reported = wire.results().into_iter().filter(|one| one.0.0 == own);
        let reported: Vec<String> = reported.map(|one| one.1).collect();
        let fences: Vec<&str> = handed.iter().map(|one| &*one.0.1).collect();
        let strange = begun.iter().filter(|fence| !fences.contains(&&***fence)).count();
        let twice = begun.len() - begun.iter().collect::<std::collections::BTreeSet<_>>().len();
        self.must_be(&format!("{name}: handed out"), ending.handed_out, handed.len(), *id);
        self.must_be(&format!("{name}: begun"), ending.begun, begun.len(), *id);
        self.must_be(&format!("{name}: begun twice under a fence"), Some(0), twice, *id);
        self.must_be(&format!("{name}: begun, never handed out"), Some(0), strange, *id);
        self.must_be(&format!("{name}: reported"), ending.reported.as_ref(), &reported, *id);
        if let Some(failures) = &ending.failures {
            let wanted: Vec<String> = failures
                .iter()
                .zip(task.failures.iter().map(Some).chain(std::iter::repeat(None)))
                .map(|(wanted, seen)| {
                    // Fields that are not named may be anything.
                    let class = wanted.class.clone().or_else(|| seen?.class.clone());
                    let message = wanted.message.clone().or_else(|| seen?.message.clone());
                    format!("{} {class:?} {message:?}", wanted.outcome)
                })
                .collect();
            let seen = task.failures.iter();
            let seen = seen.map(|one| format!("{} {:?} {:?}", one.outcome, one.class, one.message));
            self.must_be(&format!("{name}: failures"), Some(wanted), seen.collect(), *id);
        }
        if let Some(due) = ending.due_in_ms.filter(|due| (task.due_in_ms - due).abs() > MINUTE_MS) {
            let seen = format!("in {} ms", task.due_in_ms);
            self.find(&format!("{name}: due in {due} ms"), &seen, Some(*id));
        }
        if let (Some(payload), true) = (payload, self.findings.len() > before) {
            let start: String = payload.chars().take(100).collect();
            self.findings[before].wire.insert(0, format!("  payload {start}"));
        }
    }

    fn output(&mut self, name: &str, ending: &Ending, played: &PlayedTask) {
        let Some(wanted) = ending.output.as_ref().map(|text| text.get()) else { return };
        let wanted = match wanted {
            PAYLOAD => played.payload.as_deref(),
            NONE => None,
            text => Some(text),
        };
        let seen = played.task.output.as_deref();
        if wanted != seen {
            let short = |text: Option<&str>| {
                text.map_or("none".to_owned(), |text| text.chars().take(100).collect::<String>())
            };
            let expected = format!("{name}: output {}", short(wanted));
            self.find(&expected, &short(seen), Some(played.id));
        }
    }

    fn whole(&mut self, case: &Case) {
        let (wire, expect) = (&self.played.wire, &case.expect);
        if self.played.exit != Some(expect.exit) && self.played.stuck.is_none() {
            let seen = format!("{:?}", self.played.exit);
            self.find(&format!("the controller ends with {}", expect.exit), &seen, None);
        }
        let joined = wire.joined().len();
        if let Some(wanted) = expect.executors.filter(|wanted| *wanted != joined) {
            let seen = format!("{joined} have joined");
            self.find(&format!("{wanted} executors in all"), &seen, None);
        }
        if case.nothing_defined && wire.refused_joins() != 1 {
            let seen = format!("{} processes were refused", wire.refused_joins());
            self.find("an executor that is refused does not try again", &seen, None);
        }
        if wire.repeats() < expect.repeats {
            let seen = format!("{} were", wire.repeats());
            self.find(&format!("{} messages are repeated", expect.repeats), &seen, None);
        }
        let at_once = wire.at_once();
        for (lambda, wanted) in &expect.at_once {
            let seen = at_once.get(lambda).copied().unwrap_or(0);
            if seen < *wanted {
                let expected = format!("{wanted} tasks of {lambda} are in hand at a time");
                self.find(&expected, &format!("{seen} were"), None);
            }
        }
        let (seen, wanted) = (wire.refusals(), expect.refusals.iter().cloned().collect());
        if seen != wanted {
            let said = |names: &std::collections::BTreeSet<String>| {
                if names.is_empty() { "no message".to_owned() } else { format!("{names:?}") }
            };
            self.find(&format!("refused: {}", said(&wanted)), &said(&seen), None);
        }
    }

    /// The laws of each case.
    fn laws(&mut self) {
        for breach in self.played.wire.breaches() {
            self.find("the executor keeps the laws of the wire", &format!("it {breach}"), None);
        }
        for joined in self.played.wire.joined() {
            for (lambda, most) in self.played.wire.at_once() {
                let slots = joined.slots.get(&lambda).copied().unwrap_or(0);
                if self.played.wire.joined().len() == 1 && most > slots {
                    let expected = format!("{lambda}: {slots} tasks in hand at most");
                    self.find(&expected, &format!("{most} were"), None);
                }
            }
        }
        if self.played.open_lanes == Some(0) {
            let expected = "an executor with a free slot waits for work";
            self.find(expected, "no message of it waits for an answer", None);
        }
        if self.played.said.contains("did not exit after the drain") {
            let expected = "an executor exits by itself after a drain";
            self.find(expected, "it went on, and was ended", None);
        }
    }
}
