//! One log line for each attempt that failed: at level WARN if the task runs again, at level ERROR if it does not.
//!
//! Promises: a lambda that always fails writes [`LINES`] lines of a level in each [`WINDOW`] at most; what has no
//! line is counted in a later one. Must never: log the text of an error, a payload or an output.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::db::hsc::{AttemptResult, Failed};

/// Lines of one lambda and level in one window.
const LINES: u32 = 5;
const WINDOW: Duration = Duration::from_secs(10);

/// A lambda whose failures are logged, and how many lines it has left.
#[derive(Debug)]
struct LambdaLog {
    lambda: Arc<str>,
    /// A task whose attempts fail so often is dead. As at the registration; none: unknown.
    max_attempts: Option<i32>,
    again: Budget,
    last: Budget,
}

/// The lines of one lambda and level.
#[derive(Debug, Default)]
struct Budget {
    since: Option<Instant>,
    lines: u32,
    left_out: u64,
}

#[derive(Debug)]
pub(crate) struct FailureLog(Vec<LambdaLog>);

/// A line of the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Failed {
        lambda: Arc<str>,
        task: i64,
        failed: Failed,
        /// The status to which it leads.
        status: &'static str,
        is_last: bool,
        left_out: Option<u64>,
    },
    /// Failures that had no line of their own, since the last one.
    LeftOut { lambda: Arc<str>, is_last: bool, left_out: u64 },
}

impl FailureLog {
    pub(crate) fn new(lambdas: impl Iterator<Item = Arc<str>>) -> Self {
        let log = |lambda| LambdaLog {
            lambda,
            max_attempts: None,
            again: Budget::default(),
            last: Budget::default(),
        };
        Self(lambdas.map(log).collect())
    }

    /// The attempts after which a task of each lambda is dead.
    pub(crate) fn learn_max_attempts(&mut self, known: &[(String, i32)]) {
        for log in &mut self.0 {
            let found = known.iter().find(|(lambda, _)| **lambda == *log.lambda);
            log.max_attempts = found.map(|(_, most)| *most);
        }
    }

    /// The line for a result that is recorded, if it is a failure and has one.
    pub(crate) fn recorded(
        &mut self,
        lambda: &str,
        result: &AttemptResult,
        now: Instant,
    ) -> Option<Line> {
        let failed = result.failed.clone()?;
        let log = self.0.iter_mut().find(|log| *log.lambda == *lambda)?;
        let retries = result.status.is_retried();
        let dies =
            retries && log.max_attempts.is_some_and(|most| i32::from(failed.attempt) >= most);
        let is_last = dies || !retries;
        let budget = if is_last { &mut log.last } else { &mut log.again };
        let left_out = budget.line(now)?;
        Some(Line::Failed {
            lambda: Arc::clone(&log.lambda),
            task: result.attempt.task,
            failed,
            status: if dies { "dead" } else { result.status.name() },
            is_last,
            left_out,
        })
    }

    /// The counts of failures without a line, once their window is over.
    pub(crate) fn left_out(&mut self, now: Instant) -> Vec<Line> {
        self.counts(|budget| budget.is_over(now))
    }

    /// All of these counts: nothing more will be recorded.
    pub(crate) fn rest(&mut self) -> Vec<Line> {
        self.counts(|_| true)
    }

    fn counts(&mut self, ripe: impl Fn(&Budget) -> bool) -> Vec<Line> {
        let mut lines = Vec::new();
        for LambdaLog { lambda, again, last, .. } in &mut self.0 {
            for (budget, is_last) in [(again, false), (last, true)] {
                if budget.left_out > 0 && ripe(budget) {
                    let left_out = std::mem::take(&mut budget.left_out);
                    lines.push(Line::LeftOut { lambda: Arc::clone(lambda), is_last, left_out });
                }
            }
        }
        lines
    }
}

impl Budget {
    fn is_over(&self, now: Instant) -> bool {
        self.since.is_none_or(|since| now >= since + WINDOW)
    }

    /// Some: there is room for a line, which says how many had none.
    fn line(&mut self, now: Instant) -> Option<Option<u64>> {
        if self.is_over(now) {
            (self.since, self.lines) = (Some(now), 0);
        }
        if self.lines == LINES {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        let left_out = std::mem::take(&mut self.left_out);
        Some((left_out > 0).then_some(left_out))
    }
}

/// Writes the lines. Not under a lock: whatever takes them may wait.
pub(crate) fn write(lines: Vec<Line>) {
    for line in lines {
        match line {
            Line::Failed { lambda, task, failed, status, is_last: false, left_out } => {
                let Failed { attempt, kind } = failed;
                let kind = &*kind;
                tracing::warn!(%lambda, task, attempt, kind, status, left_out, "attempt failed");
            }
            Line::Failed { lambda, task, failed, status, is_last: true, left_out } => {
                let Failed { attempt, kind } = failed;
                let kind = &*kind;
                tracing::error!(%lambda, task, attempt, kind, status, left_out, "task failed for good");
            }
            Line::LeftOut { lambda, is_last: false, left_out } => {
                tracing::warn!(%lambda, left_out, "more attempts failed");
            }
            Line::LeftOut { lambda, is_last: true, left_out } => {
                tracing::error!(%lambda, left_out, "more tasks failed for good");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::hsc::Attempt;
    use crate::worker::outcome::Outcome;
    use crate::worker::work::Work;

    fn log() -> FailureLog {
        let mut log = FailureLog::new([Arc::from("work")].into_iter());
        log.learn_max_attempts(&[("work".to_owned(), 3)]);
        log
    }

    fn result(attempt: i16, outcome: Outcome) -> AttemptResult {
        let work = Work::of(Attempt { task: 1, fence: 7 }, Instant::now());
        AttemptResult::of(&Work { attempt, ..work }, outcome, None)
    }

    /// Kind, status and left out failures of each line.
    fn texts(lines: impl IntoIterator<Item = Line>) -> Vec<(bool, String)> {
        let text = |line| match line {
            Line::Failed { failed, status, is_last, left_out, .. } => {
                let Failed { attempt, kind } = failed;
                (is_last, format!("{attempt} {kind} {status} {left_out:?}"))
            }
            Line::LeftOut { is_last, left_out, .. } => (is_last, format!("{left_out} more")),
        };
        lines.into_iter().map(text).collect()
    }

    #[test]
    fn the_last_failure_of_a_task_is_an_error() {
        let (mut log, now) = (log(), Instant::now());
        for (attempt, outcome, expected) in [
            (2, Outcome::retriable("x"), (false, "2 error retriable_failure None")),
            (3, Outcome::retriable("x"), (true, "3 error dead None")),
            (1, Outcome::fatal("x"), (true, "1 fatal fatal_failure None")),
        ] {
            let line = log.recorded("work", &result(attempt, outcome), now);
            assert_eq!(texts(line), [(expected.0, expected.1.to_owned())]);
        }
        for outcome in [Outcome::Success(None), Outcome::Snooze(WINDOW)] {
            assert_eq!(log.recorded("work", &result(1, outcome), now), None);
        }
    }

    #[test]
    fn a_lambda_that_always_fails_has_few_lines_and_a_count() {
        let (mut log, now) = (log(), Instant::now());
        let fail = || result(1, Outcome::retriable("x"));
        let lines: Vec<_> = (0..1_000).filter_map(|_| log.recorded("work", &fail(), now)).collect();
        assert_eq!(lines.len(), LINES as usize);
        assert_eq!(texts(log.recorded("work", &result(1, Outcome::fatal("x")), now)).len(), 1);
        assert_eq!(texts(log.left_out(now)), []);
        let next = now + WINDOW;
        assert_eq!(texts(log.left_out(next)), [(false, "995 more".to_owned())]);
        let lines: Vec<_> = (0..7).filter_map(|_| log.recorded("work", &fail(), next)).collect();
        assert_eq!(lines.len(), LINES as usize);
        let line = log.recorded("work", &fail(), next + WINDOW);
        assert_eq!(texts(line), [(false, "1 error retriable_failure Some(2)".to_owned())]);
        for _ in 0..5 {
            log.recorded("work", &fail(), next + WINDOW);
        }
        assert_eq!(texts(log.rest()), [(false, "1 more".to_owned())]);
        assert_eq!(texts(log.rest()), []);
    }
}
