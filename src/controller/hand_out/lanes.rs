//! Lanes: chains of NextWork of which one is under way at a time. Their numbers make each message repeatable.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tuskline_sdk::Outcome;

use super::executor::Executor;
use super::{HandOut, State, unknown_executor};
use crate::controller::wire::{self, Attempt, AttemptResult, Refusal, ResultStatus};

/// Longest wait of a NextWork: shorter than what proxies and clients give up on.
const LONGEST_WAIT: Duration = Duration::from_secs(25);
/// Lanes of one executor.
const MOST_LANES: usize = 16;

/// A lane that waits counts as one that takes tasks, until it is dropped.
struct Waiting<'a> {
    hand_out: &'a HandOut,
    executor: &'a str,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(executor) = self.hand_out.lock().executors.get_mut(self.executor) {
            executor.waiting -= 1;
            executor.asked_at = Instant::now();
        }
    }
}

impl HandOut {
    /// NextWork: takes results, and answers with tasks, cancels or nothing. The answer is JSON.
    ///
    /// # Errors
    /// The executor is unknown, or the message is out of turn.
    pub async fn next_work(&self, asked: wire::NextWork<'_>) -> Result<Bytes, Refusal> {
        let name = asked.executor;
        let changed = self.lock().take(&asked)?;
        if !asked.results.is_empty() || !asked.progress.is_empty() {
            self.busy.notify_one();
        }
        let max = asked.max.unwrap_or(usize::MAX);
        let until =
            tokio::time::Instant::now() + LONGEST_WAIT.min(Duration::from_millis(asked.wait_ms));
        let mut waiting = None;
        loop {
            let notified = changed.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            {
                let mut state = self.lock();
                let is_due = tokio::time::Instant::now() >= until;
                if let Some(answer) = state.answer(name, asked.lane, asked.no, max, is_due)? {
                    return Ok(answer);
                }
                if waiting.is_none()
                    && max > 0
                    && let Some(executor) = state.executors.get_mut(name)
                {
                    executor.waiting += 1;
                    waiting = Some(Waiting { hand_out: self, executor: name });
                }
            }
            tokio::select! {
                () = notified => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }
}

impl State {
    /// A message arrives: takes what it brings, unless it is a repetition.
    fn take(&mut self, asked: &wire::NextWork<'_>) -> Result<Arc<Notify>, Refusal> {
        let executor = self.executors.get_mut(asked.executor).ok_or_else(unknown_executor)?;
        if !executor.lanes.contains_key(&asked.lane) && executor.lanes.len() >= MOST_LANES {
            let text = format!("an executor has at most {MOST_LANES} lanes");
            return Err(Refusal::invalid("lane", text));
        }
        executor.asked_at = Instant::now();
        let lane = executor.lanes.entry(asked.lane).or_default();
        if asked.no == lane.no + 1 {
            lane.no = asked.no;
            lane.answer = None;
            let refused = take_results(executor, &asked.results);
            if let Some(lane) = executor.lanes.get_mut(&asked.lane) {
                lane.refused = refused;
            }
        } else if asked.no != lane.no || lane.no == 0 {
            return Err(wrong_number(lane.no + 1, asked.no));
        }
        for progress in &asked.progress {
            if let Some(held) = executor.in_hand.get_mut(&progress.attempt) {
                held.progress = Some((progress.percent, progress.text.clone()));
            }
        }
        Ok(Arc::clone(&executor.changed))
    }

    /// The answer to a message. None: there is nothing to say yet.
    fn answer(
        &mut self,
        name: &str,
        lane: u32,
        no: u64,
        max: usize,
        is_due: bool,
    ) -> Result<Option<Bytes>, Refusal> {
        let lane_of = |state: &mut Self| -> Result<(bool, Option<Bytes>), Refusal> {
            let executor = state.executors.get_mut(name).ok_or_else(unknown_executor)?;
            let is_over = state.draining || executor.leaving;
            let Some(lane) = executor.lanes.get(&lane).filter(|lane| lane.no == no) else {
                let expected = executor.lanes.get(&lane).map_or(1, |lane| lane.no + 1);
                return Err(wrong_number(expected, no));
            };
            Ok((is_over && !lane.is_told, lane.answer.clone()))
        };
        let (is_news, kept) = lane_of(self)?;
        if kept.is_some() {
            return Ok(kept);
        }
        let tasks = if self.draining { Vec::new() } else { self.hand_out(name, max) };
        let draining = self.draining;
        let executor = self.executors.get_mut(name).ok_or_else(unknown_executor)?;
        let draining = draining || executor.leaving;
        let Some(lane) = executor.lanes.get_mut(&lane) else { return Ok(None) };
        let cancel = std::mem::take(&mut lane.cancels);
        let refused = std::mem::take(&mut lane.refused);
        let work = wire::Work { tasks, cancel, refused, draining };
        if work.is_empty() && !is_due && !is_news {
            return Ok(None);
        }
        lane.is_told = draining;
        // Numbers and texts: it cannot fail.
        let answer = Bytes::from(serde_json::to_vec(&work).unwrap_or_default());
        lane.answer = Some(answer.clone());
        Ok(Some(answer))
    }
}

/// Takes results, each by itself. Returns the attempts that are not in hand.
fn take_results(executor: &mut Executor, results: &[&RawValue]) -> Vec<Attempt> {
    let mut refused = Vec::new();
    for result in results {
        let attempt: Attempt = match serde_json::from_str(result.get()) {
            Ok(attempt) => attempt,
            Err(error) => {
                tracing::warn!(pid = executor.pid, %error, "a result that names no attempt is lost");
                continue;
            }
        };
        if executor.finish(attempt, outcome(result)).is_none() {
            refused.push(attempt);
        }
    }
    refused
}

/// A result that is malformed fails its task for good, and no other.
fn outcome(result: &RawValue) -> Outcome {
    let result: AttemptResult = match serde_json::from_str(result.get()) {
        Ok(result) => result,
        Err(error) => return malformed(&error.to_string()),
    };
    let AttemptResult { status, output, message, error_class, after_ms } = result;
    let after = after_ms.map(Duration::from_millis);
    let reason = message.unwrap_or_default();
    let class = error_class.map(Into::into);
    match (status, after) {
        (ResultStatus::Success, _) => match output {
            Some(output) if output != "null" => Outcome::SuccessJson(output),
            _ => Outcome::Success(None),
        },
        (ResultStatus::RetriableFailure, after) => Outcome::Retriable { after, class, reason },
        (ResultStatus::FatalFailure, _) => Outcome::Fatal { class, reason },
        (ResultStatus::Snoozed, Some(after)) => Outcome::Snooze(after),
        (ResultStatus::Snoozed, None) => malformed("snoozed needs after_ms"),
        // Where a stop was asked for, the worker knows what it leads to.
        (ResultStatus::Cancelled, _) => {
            let reason = "the executor stopped the attempt unasked".to_owned();
            Outcome::Retriable { after: None, class: Some("cancelled".into()), reason }
        }
        (ResultStatus::Returned, _) => Outcome::Returned,
    }
}

fn malformed(error: &str) -> Outcome {
    Outcome::Fatal {
        class: Some("result".into()),
        reason: format!("the result is malformed: {error}"),
    }
}

fn wrong_number(expected: u64, got: u64) -> Refusal {
    let text = format!("the next number of this lane is {expected}, got {got}");
    Refusal::new(400, "wrong_number", text).at("no").with("expected", expected)
}
