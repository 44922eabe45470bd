//! Limits: how many tasks of a lambda run at a time, and start in a second.

use std::collections::HashMap;

use super::order::lambda;
use crate::history::{History, Row, Transition};
use crate::{Invariant, Rate, Status};

/// I24. A task counts once, even if several bodies of it run. A body that was stopped and resumed
/// runs beside its successor until its process has ended itself. The check ignores it.
pub(crate) fn limits_hold(history: &History) -> Invariant {
    let statement = "no more tasks of a limited lambda run at a time than its limit says";
    let mut check = Invariant::new("I24", "limits hold", statement);
    for (name, most) in &history.settings.limits {
        let mut edges = Vec::new();
        for body in history.bodies.all() {
            let over = history.over_at(body);
            let named = lambda(history, body).is_some_and(|own| history.words.key(own) == name);
            if named && !history.process(body.process).stopped.meet(body.at, over) {
                edges.extend([(body.at, 1_i32, body.task), (over, -1, body.task)]);
            }
        }
        edges.sort_unstable();
        let mut running: HashMap<u32, i32> = HashMap::new();
        for (_, change, task) in edges {
            let bodies = running.entry(task).or_default();
            *bodies += change;
            if *bodies == 0 {
                running.remove(&task);
            }
            if change > 0 {
                check.expect(running.len() <= *most as usize, history.id(task), || {
                    format!("started as number {} of {most} of {name}", running.len())
                });
            }
        }
    }
    check.done()
}

/// I30. A start is a claim that is not given back unstarted. Checked are all spans that begin with a start and
/// end with a start. When the database's clock is set back, the spans begin again.
pub(crate) fn rates_hold(history: &History) -> Invariant {
    let statement = "in any span no more tasks of a lambda start than its rate and its burst say";
    let mut check = Invariant::new("I30", "rates hold", statement);
    for rate in history.settings.rates.iter().chain(&history.rates) {
        let mut bucket = Bucket::new(rate);
        for start in starts_of(history, &rate.lambda) {
            if rate.from_us.is_some_and(|from| start.db_us < from)
                || rate.to_us.is_some_and(|to| start.db_us >= to)
            {
                continue;
            }
            let over = bucket.start(start.db_us);
            check.expect(over <= 0.0, history.id(start.task), || {
                format!(
                    "{:.2} above {}/s and a burst of {} of {}, at {} us",
                    over, rate.per_second, rate.burst, rate.lambda, start.db_us
                )
            });
        }
    }
    check.done()
}

/// The starts of a lambda, by their times; when the clock is set back, those before come first.
fn starts_of<'a>(history: &'a History, name: &str) -> Vec<&'a Transition> {
    let is_of = |row: &Row| history.words.key(row.lambda) == name;
    let mut starts = Vec::new();
    for task in history.tasks.all() {
        if !history.row(task).is_some_and(is_of) {
            continue;
        }
        let changes = history.transitions.of(task);
        for (at, change) in changes.iter().enumerate() {
            let next = changes[at + 1..].iter().find(|next| next.to != Status::Processing);
            let is_given_back = next
                .is_some_and(|next| next.to == Status::Enqueued && next.crashes == change.crashes);
            if change.to == Status::Claimed && !is_given_back {
                starts.push(change);
            }
        }
    }
    starts.sort_unstable_by_key(|start| start.step);
    // Claims write their changes a while after they have read the clock, not in its order.
    let mut from = 0;
    for at in 1..=starts.len() {
        let back = |at: usize| starts[at - 1].db_us - starts[at].db_us > STEP_BACK_US;
        if at == starts.len() || back(at) {
            starts[from..at].sort_by_key(|start| start.db_us);
            from = at;
        }
    }
    starts
}

/// A step back of this size is a clock that was set back, not an order of claims.
const STEP_BACK_US: i64 = 10_000_000;

/// The tokens that starts leave.
struct Bucket<'a> {
    rate: &'a Rate,
    tokens: f64,
    last_us: Option<i64>,
}

impl<'a> Bucket<'a> {
    fn new(rate: &'a Rate) -> Self {
        Self { rate, tokens: f64::from(rate.burst), last_us: None }
    }

    /// By how much this start is above what any span allows that ends with it; below 0: by nothing.
    fn start(&mut self, now_us: i64) -> f64 {
        let burst = f64::from(self.rate.burst);
        let span_us = self.last_us.map_or(0, |last| now_us - last);
        self.tokens = match span_us {
            ..0 => burst,
            _ => burst.min(self.tokens + self.rate.per_second * span_us as f64 / 1e6),
        };
        self.tokens -= 1.0;
        self.last_us = Some(now_us);
        -self.tokens - 1e-3 // the rounding of microseconds
    }
}
