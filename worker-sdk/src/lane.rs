//! A lane: one connection that exchanges results for new tasks, as the controller orders.
//!
//! A result is never dropped: when a call breaks, its outcome is unknown, and the same results are
//! sent again, which their fences make harmless. The claim of a broken call is forgotten; had it been
//! made, the heartbeat finds its lease and gives it back.

use std::sync::Arc;

use tokio::time::timeout;

use crate::connect::{Backoff, connect, settle_session};
use crate::controller::{Controller, Order};
use crate::database::Database;
use crate::error::queues_not_rebuilt;
use crate::hsc::{self, Lane, Reply};
use crate::watchdog::Watchdog;

/// Exchanges until the controller is drained.
pub(crate) async fn run(controller: Arc<Controller>, db: Arc<Database>, watchdog: Arc<Watchdog>) {
    let mut lane = None;
    while let Some(mut order) = controller.next_order().await {
        let mut backoff = Backoff::default();
        loop {
            match exchange(&mut lane, &db, &order).await {
                Ok(reply) => {
                    if settle(&controller, &db, &watchdog, &mut order, reply).await {
                        break;
                    }
                    order.forget_claim();
                }
                Err(trouble) => {
                    tracing::warn!(%trouble, "exchange failed; its results will be sent again");
                    controller.unclaim(&mut order);
                    if order.request.is_empty() {
                        controller.acknowledged(&order);
                        tokio::time::sleep(backoff.next()).await;
                        break;
                    }
                }
            }
            tokio::time::sleep(backoff.next()).await;
        }
    }
}

/// False: the results were committed in doubt and shall be sent again. Their fences make that harmless,
/// and a standby that was promoted without them still wants them. What was claimed stands, as after
/// any failover, until its fences are refused.
async fn settle(
    controller: &Controller,
    db: &Database,
    watchdog: &Watchdog,
    order: &mut Order,
    reply: Reply,
) -> bool {
    if !reply.alive {
        watchdog.condemn();
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

async fn exchange(lane: &mut Option<Lane>, db: &Database, order: &Order) -> Result<Reply, String> {
    let open = match lane.take() {
        Some(open) if !open.client.is_closed() => open,
        _ => {
            let fresh = timeout(db.request_timeout, open_lane(db)).await;
            fresh.map_err(|_| "connecting took too long")?.map_err(|error| error.to_string())?
        }
    };
    match timeout(db.request_timeout, open.exchange(db.executor, &order.request)).await {
        Ok(Ok(reply)) => {
            *lane = Some(open);
            Ok(reply)
        }
        Ok(Err(error)) => {
            let mut trouble = error.to_string();
            if let Some(said) = error.as_db_error() {
                trouble = format!("{} {}", said.code().code(), said.message());
            }
            if queues_not_rebuilt(&error) {
                rebuild_queues(db).await;
            }
            // The lane stays empty: whatever is wrong with this session goes with it.
            Err(trouble)
        }
        // The lane stays empty: an answer that comes later has nobody to go to.
        Err(_) => Err("no answer in time".into()),
    }
}

/// On a session of its own without a deadline for statements: it reads every open segment.
async fn rebuild_queues(db: &Database) {
    tracing::info!("the server restarted or was promoted; rebuilding the queues");
    let rebuild = async {
        let client = connect(&db.config, db.request_timeout).await?;
        hsc::rebuild_queues(&client).await
    };
    let rebuilt = timeout(db.request_timeout * 4, rebuild).await;
    tracing::info!(ok = matches!(rebuilt, Ok(Ok(()))), "queues rebuilt");
}

async fn open_lane(db: &Database) -> Result<Lane, tokio_postgres::Error> {
    let client = connect(&db.config, db.request_timeout).await?;
    if !db.pooled {
        settle_session(&client, db.request_timeout).await?;
    }
    Lane::on(client, db.pooled).await
}
