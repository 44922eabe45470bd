//! One exchange to be made: results to send, and tasks to claim.
//!
//! A plan is a value that the controller hands to one exchange connection and gets back with the answer.
//! Until then the plan's results, its claim and its room stay counted, so no second connection sends or
//! claims the same.

use std::time::Instant;

use crate::db::hsc::{AttemptResult, Claim, Request};

use super::lease_ledger::Sent;

#[derive(Debug, Default)]
pub(crate) struct ExchangePlan {
    pub(super) sent: Sent<AttemptResult>,
    pub(super) claim: Option<ClaimPlan>,
    /// It has a batch of results, or claims from lambdas that have a backlog.
    pub(super) bulk: bool,
}

/// The claim of a plan.
#[derive(Debug)]
pub(super) struct ClaimPlan {
    pub claim: Claim,
    /// For each lambda of the claim, the claim that asked it before.
    pub asked_before: Vec<u64>,
    pub planned_at: Instant,
}

impl ExchangePlan {
    /// The results and claims to send.
    pub(crate) fn request(&self) -> Request<'_> {
        Request {
            results: self.sent.items(),
            ended_leases: self.sent.last_leases(),
            claim: self.claim.as_ref().map(|plan| &plan.claim),
        }
    }

    /// It has a backlog or a batch of results: the next exchange shall not wait for it.
    pub(crate) fn is_long(&self) -> bool {
        self.bulk
    }

    /// It has results to send.
    pub(crate) fn has_results(&self) -> bool {
        !self.sent.items().is_empty()
    }
}
