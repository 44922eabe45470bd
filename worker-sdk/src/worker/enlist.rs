//! Registering: a worker's first connections, the schema, its queues, and a number of its own.
//!
//! Promises: the heartbeat's connection is opened first. With that one, one for rare calls and
//! one for exchanges the worker registers. If the server has fewer for it, it keeps none and waits.

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tokio_postgres::error::SqlState;

use crate::db::address::Address;
use crate::db::backoff::Backoff;
use crate::db::connect::Session;
use crate::db::hsc;
use crate::db::hsc::{Registration, Served};
use crate::db::version;
use crate::error::ErrorKind::{self, Unavailable, Unknown};
use crate::error::{Error, TlsRefusal, queues_not_rebuilt};
use crate::worker::Worker;
use crate::worker::opener::{open, recover};
use crate::worker::outage_log::REPEAT;
use crate::worker::pooler::{ECHO_GRACE, FirstSession};
use crate::worker::watchdog::clock_ns;

/// Connections of a worker that make no exchanges: heartbeat, control and watch.
const FURTHER_CONNECTIONS: usize = 3;
/// Most tries to register for the first time whose connection broke.
const BROKEN_TRIES: u32 = 5;

/// A worker that has registered.
#[derive(Debug)]
pub(crate) struct Enlisted {
    /// Its sessions have the role from their start, unless a pooler stands between.
    pub address: Address,
    /// The role that is set for each call, behind a pooler.
    pub role: Option<Arc<str>>,
    pub executor: i64,
    /// When the registration was sent: T counts from there.
    pub sent_ns: u64,
    pub served: Vec<Served>,
    /// By lambda; empty if the database does not tell.
    pub max_attempts: Vec<(String, i32)>,
    pub functions: i32,
    pub pooled: bool,
    pub heartbeat: Session,
    pub control: Session,
    pub exchange: Session,
}

/// Why a registration failed.
enum Refusal {
    /// The server is there, but it has no connection for us, or it starts up. Try again.
    Later(Error),
    /// The server was restarted or promoted, or the database restored: run the recovery first.
    Unrecovered(Error),
    /// The connection broke: a server that is full may close it without an answer.
    Broken(Error),
    /// The server refuses for a reason that waiting does not remove.
    Final(Error),
}

impl Refusal {
    fn of(error: tokio_postgres::Error, broken: ErrorKind) -> Self {
        let later = [
            SqlState::TOO_MANY_CONNECTIONS,
            SqlState::CONFIGURATION_LIMIT_EXCEEDED,
            SqlState::CANNOT_CONNECT_NOW,
        ];
        let cause = std::error::Error::source(&error).and_then(|cause| cause.downcast_ref());
        let broke = cause.is_some_and(|cause: &io::Error| {
            !matches!(cause.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
        });
        let refusal = match error.code() {
            _ if TlsRefusal::of(&error).is_some() => Self::Final,
            Some(code) if later.contains(code) => Self::Later,
            _ if queues_not_rebuilt(&error) => Self::Unrecovered,
            None if broke || error.is_closed() => Self::Broken,
            _ => Self::Final,
        };
        refusal(Error::of_postgres(error, broken))
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Final(error)
    }
}

/// Registers the worker. The first time it waits for a server that is full or starts up; anything else is
/// an error. With a `former` number it waits without limit. `None`: it was told to end meanwhile.
///
/// # Errors
/// As [`Worker::run`], where there is no former number.
pub(crate) async fn enlist(
    worker: &Worker,
    former: Option<i64>,
) -> Result<Option<Enlisted>, Error> {
    let mut backoff = Backoff::default();
    let mut log = RegistrationLog::default();
    let mut tries = 0;
    loop {
        let refused = tokio::select! {
            () = worker.shutdown.cancelled() => return Ok(None),
            answer = attempt(worker, former) => match answer {
                Ok(enlisted) => {
                    note(worker, without(worker, &enlisted.served));
                    return Ok(Some(enlisted));
                }
                Err(Refusal::Unrecovered(error)) => {
                    let limit = worker.config.request_timeout;
                    Refusal::Later(recover(&worker.database, worker.role.as_ref(), limit).await.err().unwrap_or(error))
                }
                Err(refused) => refused,
            },
        };
        let error = match refused {
            Refusal::Later(error) | Refusal::Unrecovered(error) => error,
            Refusal::Broken(error) | Refusal::Final(error) if former.is_some() => error,
            Refusal::Broken(error) if tries < BROKEN_TRIES => error,
            Refusal::Broken(error) | Refusal::Final(error) => return Err(error),
        };
        tries += 1;
        let pause = backoff.rest();
        log.waiting(&error, pause);
        note(worker, Some(format!("{error:#}")));
        tokio::select! {
            () = worker.shutdown.cancelled() => return Ok(None),
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// For the probe.
fn note(worker: &Worker, refusal: Option<String>) {
    *worker.refusal.lock().unwrap_or_else(PoisonError::into_inner) = refusal;
}

/// Names the lambdas on which the role has no right.
fn without(worker: &Worker, served: &[Served]) -> Option<String> {
    let names = worker.lambdas.iter().map(|lambda| &*lambda.name);
    let lost: Vec<&str> =
        names.filter(|name| served.iter().all(|one| one.lambda != **name)).collect();
    (!lost.is_empty()).then(|| format!("without the right to work on {}", lost.join(", ")))
}

async fn attempt(worker: &Worker, former: Option<i64>) -> Result<Enlisted, Refusal> {
    let limit = worker.config.request_timeout;
    // A pooler is recognised by a notification that does not arrive, and that takes ECHO_GRACE.
    let first = FirstSession::open(&worker.database, worker.role.as_ref());
    let first = in_time(limit + ECHO_GRACE, Unavailable, first).await?;
    let FirstSession { address, role, pooled, session: heartbeat } = first;
    if pooled {
        tracing::warn!("a transaction pooler stands between: polling instead of listening");
    }
    let functions = in_time(limit, Unavailable, hsc::version(&heartbeat)).await?;
    version::check(functions)?;
    let functions = functions.unwrap_or(0);
    worker.statistics.registered(functions);
    let control = in_time(limit, Unavailable, open(&address, role.as_ref(), limit, pooled)).await?;
    let exchange =
        in_time(limit, Unavailable, open(&address, role.as_ref(), limit, pooled)).await?;
    let names: Vec<String> = worker.lambdas.iter().map(|lambda| lambda.name.to_string()).collect();
    if worker.define {
        for name in &names {
            in_time(limit, Unknown, hsc::define_lambda(&control, name)).await?;
        }
    }
    let (names, sent_ns, executor) = register(worker, &control, names, former).await?;
    let served = in_time(limit, Unavailable, hsc::executor_lambdas(&control, &names)).await?;
    let max_attempts = in_time(limit, Unavailable, hsc::max_attempts(&control, &names)).await?;
    let limit = worker.config.self_termination;
    if Duration::from_nanos(clock_ns().saturating_sub(sent_ns)) >= limit {
        // T counts from its sending: it is over already, and holds nothing.
        let text = format!("the registration was answered after more than {limit:?}");
        return Err(Refusal::Later(Error::unavailable(text)));
    }
    // A test that keeps a history of the worker reads this from the trace.
    tracing::trace!(executor, beat = sent_ns, "registration answered");
    match former {
        None => tracing::info!(executor, lambdas = ?names, "worker registered"),
        Some(former) => tracing::info!(executor, former, "worker registered again"),
    }
    Ok(Enlisted {
        address,
        role,
        executor,
        sent_ns,
        served,
        max_attempts,
        functions,
        pooled,
        heartbeat,
        control,
        exchange,
    })
}

/// Registers for the lambdas on which the role has the right `work`. Returns them, when the registration was
/// sent, and its number. The role is asked about only when the database refuses it.
///
/// The lambdas that are left out are logged. They are tried again with the next registration.
async fn register(
    worker: &Worker,
    control: &Session,
    names: Vec<String>,
    former: Option<i64>,
) -> Result<(Vec<String>, u64, i64), Refusal> {
    let (config, limit) = (&worker.config, worker.config.request_timeout);
    let installation = config.installation();
    let register = async |lambdas: &[String]| {
        let registration = Registration {
            lambdas,
            lease: config.lease,
            installation: &installation,
            connections: i32::try_from(config.exchange_connections + FURTHER_CONNECTIONS)
                .unwrap_or(i32::MAX),
            former,
        };
        let sent_ns = clock_ns();
        let registered = hsc::register_executor(control, &registration);
        in_time(limit, Unknown, registered).await.map(|executor| (sent_ns, executor))
    };
    let refused = match register(&names).await {
        Err(Refusal::Final(error)) if error.kind() == ErrorKind::Denied => error,
        answered => return answered.map(|(sent_ns, executor)| (names, sent_ns, executor)),
    };
    // An error here tells less than the refusal.
    let asked = in_time(limit, Unavailable, hsc::lambdas_to_work_on(control, &names)).await;
    let (left, lost): (Vec<_>, Vec<_>) = match asked {
        Ok(left) => names.into_iter().partition(|name| left.contains(name)),
        Err(_) => return Err(Refusal::Final(refused)),
    };
    if left.is_empty() || lost.is_empty() {
        return Err(Refusal::Final(refused));
    }
    let (sent_ns, executor) = register(&left).await?;
    let refusal = format!("{refused:#}");
    tracing::warn!(lambdas = ?lost, refusal, "the worker goes on without lambdas that its role may not work on");
    Ok((left, sent_ns, executor))
}

/// The answer of a server that may accept a connection and send nothing; an error after `limit`. `broken`:
/// what a call without an answer has done.
async fn in_time<T>(
    limit: Duration,
    broken: ErrorKind,
    asked: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, Refusal> {
    match tokio::time::timeout(limit, asked).await {
        Ok(answered) => answered.map_err(|error| Refusal::of(error, broken)),
        Err(_) => Err(Error::new(broken, format!("no answer within {limit:?}")).into()),
    }
}

/// Logs the reason of the wait at once, then now and then.
#[derive(Debug, Default)]
struct RegistrationLog {
    logged_at: Option<Instant>,
}

impl RegistrationLog {
    fn waiting(&mut self, error: &Error, pause: Duration) {
        let error = format!("{error:#}");
        if self.logged_at.is_none_or(|at| at.elapsed() >= REPEAT) {
            tracing::warn!(error, ?pause, "the worker cannot register yet; it tries again");
            self.logged_at = Some(Instant::now());
        } else {
            tracing::debug!(error, ?pause, "the worker cannot register yet; it tries again");
        }
    }
}
