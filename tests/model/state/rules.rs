//! The rules that are most likely to change, each in one place.

use super::{Executor, Lambda, State, Status, TaskNo, When};
use crate::step::Word;

/// Whether an executor may claim, beat and start. It may, however long it was silent, until it is
/// ended.
pub fn is_alive(executor: &Executor) -> bool {
    !executor.ended
}

/// Whether `rescue`, left to the database's clock, ends an executor.
pub fn is_silent(executor: &Executor, now: i64) -> bool {
    !executor.ended && executor.expires <= now
}

/// Whether `rescue` takes an executor's leases back, once it has ended the silent.
pub fn are_over(executor: &Executor) -> bool {
    executor.ended
}

/// The status after a result for the attempt that holds the task.
pub fn outcome(word: Word, asked_to_stop: bool, attempt: i16, lambda: &Lambda) -> Status {
    match word {
        Word::Success | Word::SuccessWith(_) => Status::Success,
        Word::Fatal => Status::Fatal,
        Word::Cancelled => Status::Cancelled,
        Word::Retriable(_) if asked_to_stop => Status::Cancelled,
        Word::Retriable(_) if attempt >= lambda.max_attempts => Status::Dead,
        Word::Retriable(_) => Status::Retriable,
    }
}

/// Whether a result that comes again finds what it once led to.
pub fn already_says(status: Status, word: Word) -> bool {
    match word {
        Word::Success | Word::SuccessWith(_) => status == Status::Success,
        Word::Fatal => status == Status::Fatal,
        Word::Cancelled => status == Status::Cancelled,
        Word::Retriable(_) => matches!(status, Status::Retriable | Status::Dead),
    }
}

/// When the next attempt is due: as the lambda asked, or after the backoff with a quarter of jitter.
pub fn retry_at(now: i64, after: Option<i64>, attempt: i16, lambda: &Lambda) -> When {
    if let Some(after) = after {
        return When::exactly(now + after);
    }
    let doubled = lambda.retry_base << (attempt - 1).min(30);
    let delay = doubled.min(lambda.retry_cap);
    When { earliest: now + delay * 3 / 4, latest: now + (delay * 5 + 3) / 4 }
}

/// The effect of a worker's death on a task that it held: the crashes counted now, and the status.
pub fn after_a_death(state: &State, no: TaskNo) -> (i16, Status) {
    let task = &state.tasks[&no];
    let charge = i16::from(task.status == Status::Processing || task.crashes == 0);
    let status = if state.requests.get(&no) == task.fence.as_ref() {
        Status::Cancelled
    } else if task.crashes + charge >= state.lambdas[task.lambda].max_crashes {
        Status::Dead
    } else {
        Status::Enqueued
    };
    (charge, status)
}
