//! The bound of a claim: how many tasks all lambdas of one claim are asked for together, and which
//! lambdas come first when it is too small for all. Likewise how many bytes of payloads.
//!
//! Without it a worker of 1,000 lambdas with backlogs made claims of 33,364 tasks. They took longer than
//! the server's statement timeout, were rolled back, and were repeated as they were.

use std::time::Duration;

use crate::worker::config::WorkerConfig;

/// Fewest tasks that a lambda is asked for while the bound allows it. A lambda has four queues, and a
/// claim visits each: to visit four empty queues costs as much as to claim a few tasks.
const LEAST_SHARE: usize = 25;
/// A claim that visits so many queues visits no further lambda. To visit 80 empty queues takes 1.3 ms, 400
/// take 24 ms and 2,000 take 130 ms; where the connection has not visited them before, 150 and 750 ms.
pub(super) const MOST_QUEUES: usize = 200;
/// The bound grows by this part of `max_batch` with each claim that was answered early.
const STEP: usize = 16;
/// Early: within this part of the time that a call may take.
const EARLY: u32 = 4;

#[derive(Debug)]
pub(super) struct ClaimBound {
    /// Most tasks in one claim at present.
    pub tasks: usize,
    /// Number of the latest claim.
    claim: u64,
    /// Per lambda, the latest claim that asked for its tasks.
    asked_by: Vec<u64>,
}

impl ClaimBound {
    pub(super) fn new(config: &WorkerConfig, lambdas: usize) -> Self {
        Self { tasks: config.max_batch, claim: 0, asked_by: vec![0; lambdas] }
    }

    /// Sorts lambdas for the next claim: the one that was asked longest ago comes first.
    pub(super) fn sort(&mut self, lambdas: &mut [usize]) {
        self.claim += 1;
        lambdas.sort_by_key(|lambda| self.asked_by[*lambda]);
    }

    /// This claim asks for tasks of the lambda. Answers with the claim that did so before.
    pub(super) fn ask(&mut self, lambda: usize) -> u64 {
        std::mem::replace(&mut self.asked_by[lambda], self.claim)
    }

    /// The bytes of a claim were used up before the lambda's turn: as if it had not been asked. So it
    /// comes before those that were.
    pub(super) fn left_out(&mut self, lambda: usize, asked_before: u64) {
        self.asked_by[lambda] = self.asked_by[lambda].min(asked_before);
    }

    /// Bytes of payloads that a claim may bring while so many are here or asked for. None: it may bring
    /// one task of a lambda that has a free slot and nothing else.
    pub(super) fn bytes(config: &WorkerConfig, taken: usize) -> Option<usize> {
        let left = config.max_buffer_bytes.saturating_sub(taken);
        (left > 0).then(|| left.min(config.max_batch_bytes).max(1))
    }

    /// The most that one of so many lambdas may claim, if so much is left of the bound.
    pub(super) fn share(left: usize, lambdas: usize) -> usize {
        (left / lambdas.max(1)).max(LEAST_SHARE).min(left)
    }

    /// A claim of so many tasks was not answered in time: the next ones ask for half as much.
    pub(super) fn halve(&mut self, asked: usize) {
        if asked > 0 {
            self.tasks = (self.tasks.min(asked) / 2).max(1);
        }
    }

    /// A claim was answered after so long.
    pub(super) fn recover(&mut self, config: &WorkerConfig, took: Duration) {
        if took <= config.request_timeout / EARLY {
            let step = (config.max_batch / STEP).max(1);
            self.tasks = (self.tasks + step).min(config.max_batch);
        }
    }
}
