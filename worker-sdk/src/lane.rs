//! A lane: one connection that exchanges results for new tasks, as the controller orders.
//!
//! A result is never dropped: when a call breaks, its outcome is unknown, and the same results are
//! sent again, which their fences make harmless. The claim of a broken call is forgotten; had it been
//! made, the heartbeat finds its lease and gives it back.

use std::sync::Arc;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::connect::{Session, Trouble};
use crate::connections;
use crate::controller::{Controller, Order};
use crate::database::{Database, Opener, recover};
use crate::error::queues_not_rebuilt;
use crate::hsc::{self, Reply};
use crate::watchdog::Verdict;

/// A lane of a registered worker.
pub(crate) struct Lane {
    pub controller: Arc<Controller>,
    pub db: Arc<Database>,
    pub draining: CancellationToken,
}

impl Lane {
    /// Exchanges until the controller is drained; with `session`, if it is given one.
    pub(crate) async fn run(self, session: Option<Session>) {
        let opener = &self.db.opener;
        let mut lane = match session {
            Some(session) => hsc::Lane::on(session, opener.pooled).await.ok(),
            None => None,
        };
        // Outlives an order: claims that are refused for ever rest longer each time.
        let mut backoff = Backoff::default();
        loop {
            let order = tokio::select! {
                order = self.controller.next_order() => order,
                () = opener.connections.wanted(), if lane.is_some() => {
                    lane = None;
                    self.rest(&mut Order::default()).await;
                    continue;
                }
            };
            let Some(mut order) = order else { return };
            self.fill(&mut lane, &mut order, &mut backoff).await;
        }
    }

    /// Exchanges until the results of the order are recorded, or another lane sends them.
    async fn fill(&self, lane: &mut Option<hsc::Lane>, order: &mut Order, backoff: &mut Backoff) {
        loop {
            match exchange(lane, &self.db, order).await {
                Ok(reply) => {
                    if settle(&self.controller, &self.db, order, reply).await {
                        backoff.reset();
                        return;
                    }
                    order.forget_claim();
                }
                Err(trouble) => {
                    tracing::warn!(%trouble, "exchange failed; its results will be sent again");
                    if trouble.late {
                        self.controller.was_late(order);
                    }
                    self.controller.unclaim(order);
                    if trouble.shortage && self.rest(order).await {
                        return;
                    }
                    if order.request.is_empty() {
                        self.controller.acknowledged(order);
                        tokio::time::sleep(backoff.rest()).await;
                        return;
                    }
                }
            }
            tokio::time::sleep(backoff.rest()).await;
        }
    }

    /// Does without a connection for a while. False: no other lane is left, or the worker drains.
    async fn rest(&self, order: &mut Order) -> bool {
        if self.draining.is_cancelled() || !self.controller.rest_lane(order) {
            return false;
        }
        tokio::select! {
            () = tokio::time::sleep(connections::rest()) => {}
            () = self.draining.cancelled() => {}
        }
        self.controller.lane_returns();
        true
    }
}

/// False: the results were committed in doubt and shall be sent again. Their fences make that harmless,
/// and a standby that was promoted without them still wants them. What was claimed stands, as after
/// any failover, until its fences are refused.
async fn settle(controller: &Controller, db: &Database, order: &mut Order, reply: Reply) -> bool {
    if !reply.alive {
        db.opener.pulse.watchdog.condemn(Verdict::Ended);
    }
    for task in &reply.refused {
        tracing::debug!(task, "result refused: the attempt is no longer ours");
    }
    if let Some(lease) = reply.lease {
        let tasks = || reply.tasks.iter().map(|task| task.id).collect::<Vec<_>>();
        tracing::trace!(lease, tasks = ?tasks(), "claimed");
    }
    let settled = !(reply.doubtful && order.request.has_results());
    if settled {
        controller.held_back(order, &reply.held);
        controller.refused(order.leases_of(&reply.refused));
        controller.acknowledged(order);
    }
    if let Some(lease) = controller.claimed(order, reply) {
        // Claimed while the worker began to drain: nobody will start these.
        db.side.release_lease(lease).await;
    }
    settled
}

async fn exchange(
    lane: &mut Option<hsc::Lane>,
    db: &Database,
    order: &Order,
) -> Result<Reply, Trouble> {
    let limit = db.opener.limit;
    let open = match lane.take() {
        Some(open) if !open.client.is_closed() => open,
        _ => open_lane(&db.opener).await?,
    };
    match timeout(limit, open.exchange(db.executor, &order.request)).await {
        Ok(Ok(reply)) => {
            *lane = Some(open);
            Ok(reply)
        }
        Ok(Err(error)) => {
            if queues_not_rebuilt(&error) {
                recover(&db.opener.config, limit).await;
            }
            // The lane stays empty: whatever is wrong with this session goes with it.
            Err(error.into())
        }
        // The lane stays empty: an answer that comes later has nobody to go to.
        Err(_) => Err(Trouble::no_answer()),
    }
}

async fn open_lane(opener: &Opener) -> Result<hsc::Lane, Trouble> {
    let session = opener.open().await?;
    let prepare = hsc::Lane::on(session, opener.pooled);
    match timeout(opener.limit, prepare).await {
        Ok(lane) => Ok(lane?),
        Err(_) => Err("no answer in time".into()),
    }
}
