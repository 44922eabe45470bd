//! A worker process: the SDK as users link it, with bodies that write down what they do.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::Layer as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tuskline_history::{Event, Writer};
use tuskline_sdk::{Context, Lambda, Worker};

use super::body::Bodies;
use super::trace::Trace;
use super::{Order, body, poison};

/// Lambdas of a run. Short bodies, long ones, some that fail, some on threads of their own, and
/// poison pills.
pub const LAMBDAS: [&str; 5] = ["quick", "slow", "flaky", "blocking", PILL];
/// The lambda that kills its worker.
pub const PILL: &str = "pill";

/// Lambdas that keep an order, have a limit or a rate, or meet gates.
pub const CONTROLLED: [&str; 4] = [ORDERED, LIMITED, RATED, GATED];
/// Tasks of a key one at a time, in order.
pub const ORDERED: &str = "ordered";
/// So many tasks at a time as [`crate::stage::MOST`].
pub const LIMITED: &str = "limited";
/// So many tasks a second as [`crate::stage::rate`].
pub const RATED: &str = "rated";
/// Paused now and then.
pub const GATED: &str = "gated";

/// The lambda whose tasks each need a part, and fail for good while it is broken.
pub const BRITTLE: &str = "brittle";
/// The parts. A task that needs the last part fails retriably, and dies of too many attempts.
pub const PARTS: [&str; 3] = ["pump", "valve", "fan"];

/// The file that stands, below the directory of the locks, for as long as a part is broken.
pub fn broken(locks: &Path, part: &str) -> PathBuf {
    locks.join(format!("broken-{part}"))
}

/// The instructions for a task.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Payload {
    /// Number of the call that scheduled it.
    pub op: u64,
    /// Its place in that call's batch.
    pub n: u32,
    /// How long its body takes.
    pub ms: u64,
    /// Attempts up to this one fail.
    #[serde(default)]
    pub fail_until: i16,
    /// It fails for good.
    #[serde(default)]
    pub fatal: bool,
    /// It needs this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Makes the payload large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pad: Option<String>,
    /// The schedule that made the task; a reader of the record needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
}

pub(super) async fn work(order: &Order, writer: Writer) -> anyhow::Result<()> {
    let quiet = tracing_subscriber::EnvFilter::new("warn,tuskline_sdk=info");
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_filter(quiet);
    tracing_subscriber::registry().with(Trace::new(writer.clone())).with(log).init();
    let mut requests = signal(SignalKind::user_defined1())?;
    tokio::spawn(async move {
        requests.recv().await;
        poison::run_out_of_memory();
    });
    let bodies = Arc::new(Bodies::new(&order.locks, writer.clone()));
    let mut worker = Worker::builder(&order.url).config(order.timings.worker_config());
    for name in LAMBDAS.into_iter().chain(CONTROLLED).chain([BRITTLE]) {
        worker = worker.serve(lambda(name, &bodies).slots(8));
    }
    worker.run().await?;
    writer.note(Event::Exit);
    Ok(())
}

fn lambda(name: &str, bodies: &Arc<Bodies>) -> Lambda {
    let bodies = Arc::clone(bodies);
    match name {
        PILL => Lambda::named(name, move |payload: Payload, context: Context| {
            let _running = bodies.begin(&payload, &context);
            poison::die(payload.op);
            #[allow(unreachable_code, reason = "gives the closure its type")]
            std::future::ready(())
        }),
        "blocking" => Lambda::blocking_named(name, move |payload: Payload, context: Context| {
            body::blocking(&bodies, &payload, &context)
        }),
        _ => Lambda::named(name, move |payload: Payload, context: Context| {
            let bodies = Arc::clone(&bodies);
            async move { body::waiting(&bodies, &payload, &context).await }
        }),
    }
}
