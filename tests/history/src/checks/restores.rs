//! A database replaced by an earlier copy of itself. Tasks accepted before the copy exist (I1), and
//! numbers issued after it are never issued again.

use std::collections::HashMap;

use serde::Serialize;

use super::acceptance::same_batch;
use crate::Invariant;
use crate::history::{Accepted, History, Restored};

/// The effects of restores.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Restores {
    /// How many there were.
    pub done: u64,
    /// Tasks that had been accepted before the last copy was taken.
    pub accepted_before: u64,
    /// Tasks that were accepted after a copy was taken, and are in none.
    pub gone: u64,
    /// Claims that were answered after a copy was taken, and are in none.
    pub claims_gone: u64,
    /// Ids that copies issued again in which nothing tells that they are copies.
    pub ids_again: u64,
    /// Ids that copies issued again before a worker had registered there, and so before the recovery.
    pub ids_before_recovery: u64,
}

/// I29.
pub(crate) fn ids_are_issued_once(history: &History) -> (Invariant, Restores) {
    let statement =
        "no two schedules were told one id, or one in another's row, once a copy has recovered";
    let mut check = Invariant::new("I29", "ids are issued once", statement);
    let mut found = figures(history);
    let mut ids: HashMap<i64, Vec<&Accepted>> = HashMap::new();
    for accepted in &history.accepted {
        ids.entry(*history.tasks.key(accepted.task)).or_default().push(accepted);
    }
    let rows = history.rows.all().iter();
    let rows: HashMap<i64, u32> = rows.map(|row| (*history.tasks.key(row.task), row.op)).collect();
    for (id, accepted) in ids {
        let sent = |accepted: &&&Accepted| history.batches[accepted.op as usize].sent;
        let last = accepted.iter().max_by_key(sent).map(|accepted| accepted.op);
        let Some(owner) = rows.get(&id).copied().or(last) else { continue };
        let others: Vec<u32> = accepted
            .iter()
            .map(|accepted| accepted.op)
            .filter(|op| !same_batch(history, *op, owner))
            .collect();
        // A row under another op without any restore is what I1 speaks of.
        let twice = !others.is_empty() && (accepted.len() > 1 || !history.restores.is_empty());
        let lost = |op: &u32| history.lost_batch(*op);
        let untold = others.iter().all(|op| lost(op).is_some_and(|restored| restored.ids_again));
        let sent = history.batches[owner as usize].sent;
        let early = |restored: &Restored| sent < first_registration(history, restored.lost.to);
        let early = others.iter().all(|op| lost(op).is_some_and(|r| r.ids_again || early(r)));
        found.ids_again += u64::from(twice && untold);
        found.ids_before_recovery += u64::from(twice && early && !untold);
        check.expect(!twice || untold || early, Some(id), || {
            let ops = others.iter().chain([&owner]).map(|op| history.ops.key(*op).to_string());
            format!("issued for the ops {}", ops.collect::<Vec<_>>().join(" and "))
        });
    }
    (check.done(), found)
}

/// The first registration after a moment: a copy registers no executor before it has recovered.
fn first_registration(history: &History, after: u64) -> u64 {
    let all = history.processes.iter().flat_map(|process| &process.enlisted);
    all.copied().filter(|at| *at > after).min().unwrap_or(u64::MAX)
}

fn figures(history: &History) -> Restores {
    let last = history.restores.iter().map(|restored| restored.lost.from).max();
    let before = |accepted: &&Accepted| {
        last.is_some_and(|last| history.batches[accepted.op as usize].answered < last)
    };
    let gone = |accepted: &&Accepted| {
        history.row(accepted.task).is_none() && history.lost_batch(accepted.op).is_some()
    };
    let claims = history.claims.all().iter();
    let claims = claims.filter(|claim| history.is_lost(claim.task, claim.fence, claim.at));
    Restores {
        done: history.restores.len() as u64,
        accepted_before: history.accepted.iter().filter(before).count() as u64,
        gone: history.accepted.iter().filter(gone).count() as u64,
        claims_gone: claims.count() as u64,
        ids_again: 0,
        ids_before_recovery: 0,
    }
}
