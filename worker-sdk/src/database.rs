//! Where the database is, and who we are to it: what every part of a running worker shares.

use std::time::Duration;

use tokio_postgres::Config;

use crate::controller::Controller;
use crate::side::Side;
use crate::work::Work;

/// What every part of the worker needs to reach the database.
#[derive(Debug)]
pub(crate) struct Database {
    pub config: Config,
    pub executor: i64,
    pub request_timeout: Duration,
    pub pooled: bool,
    pub side: Side,
}

impl Database {
    /// Gives work back; what the database did not answer for, or what others have locked, stays
    /// abandoned, to be tried again.
    pub(crate) async fn give_back(&self, controller: &Controller, back: Vec<Work>) {
        if back.is_empty() {
            return;
        }
        let mut leases = controller.last_leases(&back);
        let Some(moved) = self.side.release(&back, &leases).await else {
            return controller.keep_abandoned(back);
        };
        let (kept, given): (Vec<_>, Vec<_>) =
            back.into_iter().partition(|work| moved.held.contains(&work.task));
        leases.retain(|lease| kept.iter().all(|work| work.lease != *lease));
        let strange = given.iter().filter(|work| !moved.tasks.contains(&work.task));
        controller.refused(strange.map(|work| work.lease));
        controller.given_back(&given, &leases);
        controller.keep_abandoned(kept);
    }
}
