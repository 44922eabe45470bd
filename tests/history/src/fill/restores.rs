//! A task that was lost with a copy's future, and the one that was given its id afterwards, are two.

use std::collections::{HashMap, HashSet};

use super::Filling;
use crate::span::Span;

impl Filling {
    /// Gives each lost task whose id was issued again a number of its own.
    pub(super) fn tell_ids_apart(&mut self) {
        for (at, lost) in self.lost_and_issued_again() {
            let (task, op) = (self.accepted[at].task, self.accepted[at].op);
            let renamed = self.tasks.another(task);
            self.accepted[at].task = renamed;
            let mut attempts = HashSet::new();
            for body in self.bodies.iter_mut().filter(|body| (body.task, body.op) == (task, op)) {
                attempts.insert((body.process, body.fence));
                body.task = renamed;
            }
            for claim in self.claims.iter_mut().filter(|claim| claim.task == task) {
                let attempt = (claim.process, claim.fence);
                if lost.meets(claim.at, claim.at) || attempts.contains(&attempt) {
                    attempts.insert(attempt);
                    claim.task = renamed;
                }
            }
            for end in self.ends.iter_mut().filter(|end| end.task == task) {
                if attempts.contains(&(end.process, end.fence)) {
                    end.task = renamed;
                }
            }
        }
    }

    /// Places of what was accepted and lost, while another batch has the id: its row, or the answer to it.
    fn lost_and_issued_again(&self) -> Vec<(usize, Span)> {
        if self.restores.is_empty() {
            return Vec::new();
        }
        let mut owners: HashMap<u32, HashSet<u32>> = HashMap::new();
        let named = self.accepted.iter().map(|accepted| (accepted.task, accepted.op));
        for (task, op) in named.chain(self.rows.iter().map(|row| (row.task, row.op))) {
            owners.entry(task).or_default().insert(op);
        }
        let rows: HashMap<u32, u32> = self.rows.iter().map(|row| (row.task, row.op)).collect();
        let places = self.accepted.iter().enumerate().filter(|(_, accepted)| {
            owners[&accepted.task].len() > 1 && rows.get(&accepted.task) != Some(&accepted.op)
        });
        places
            .filter_map(|(at, accepted)| {
                let batch = &self.batches[accepted.op as usize];
                let lost = self.restores.iter().map(|restored| restored.lost);
                let lost = lost.into_iter().find(|lost| lost.meets(batch.sent, batch.answered));
                lost.map(|lost| (at, lost))
            })
            .collect()
    }
}
