//! Reads the database repeatedly, and sends the answers to the screen.
//!
//! Promises: the screen shows that a connection is lost, and a new one is opened, which reads
//! the same thing. The database is busy with these statements for at most a tenth of the time,
//! whatever the interval is. Must never: repeat a command.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, UnboundedSender};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::{Client, Error};
use tuskline_sdk::Address;
use tuskline_sdk::verbs::{GATE, PREVIEW_OPERATION, START_OPERATION, UNGATE};

use super::command::{Command, Meant};
use super::state::{Event, Inside, Request};
use super::view::Target;
use crate::facts::FactsReader;
use crate::session::{Deadlines, ErrorChain, Session};
use crate::store::overview;

/// Longest wait for an answer. After it, the connection counts as lost.
const PATIENCE: Duration = Duration::from_secs(20);
/// Pause before a new connection is opened.
const RECONNECT: Duration = Duration::from_secs(1);
/// The pause after a reading is this many times as long as the reading took.
const REST: u32 = 9;

/// How often to read, and how far back.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Time between two readings.
    pub interval: Duration,
    /// Span of rates and delays.
    pub since: Duration,
}

/// Works until the screen has ended.
pub async fn run(
    address: Address,
    pace: Pace,
    mut requests: Receiver<Request>,
    events: UnboundedSender<Event>,
) {
    let mut target = None;
    while !events.is_closed() {
        let opened = Session::open(&address, "top", Deadlines::USUAL).await;
        while let Ok(request) = requests.try_recv() {
            put_off(request, &mut target, &events);
        }
        let lost = match opened {
            Ok(session) => {
                let client = session.client();
                match serve(client, pace, &mut target, &mut requests, &events).await {
                    Ok(()) => return,
                    Err(why) => why,
                }
            }
            Err(error) => ErrorChain(&error).to_string(),
        };
        let _ = events.send(Event::Lost(lost));
        let until = Instant::now() + RECONNECT;
        while let Ok(request) = timeout_at(until, requests.recv()).await {
            let Some(request) = request else { return };
            put_off(request, &mut target, &events);
        }
    }
}

/// Takes a request without a connection. The next connection reads the target. A command is
/// refused, not kept for later.
fn put_off(request: Request, target: &mut Option<Target>, events: &UnboundedSender<Event>) {
    match request {
        Request::Open(wanted) => *target = wanted,
        Request::Foresee(_) | Request::Do(..) => {
            let text = "There is no connection: nothing was changed.".to_owned();
            let _ = events.send(Event::Refused(text));
        }
    }
}

/// FactsReader and commands on one connection. Ok: the screen is gone.
async fn serve(
    client: &Client,
    pace: Pace,
    target: &mut Option<Target>,
    requests: &mut Receiver<Request>,
    events: &UnboundedSender<Event>,
) -> Result<(), String> {
    let mut reader = FactsReader::default();
    loop {
        let begun = Instant::now();
        let facts = within(client, reader.read(client, pace.since)).await?;
        let rest = pace.interval.max(begun.elapsed() * (REST + 1));
        if let Some(mut facts) = value_of(facts, events) {
            facts.every = rest;
            let _ = events.send(Event::Facts(Box::new(facts)));
        }
        look_into(client, target, events).await?;
        let until = begun + rest;
        // Requests are answered at once, and a command is followed by a reading.
        while let Ok(request) = timeout_at(until, requests.recv()).await {
            match request {
                None => return Ok(()),
                Some(Request::Open(wanted)) => {
                    *target = wanted;
                    look_into(client, target, events).await?;
                }
                Some(Request::Foresee(command)) => foresee(client, command, events).await?,
                Some(Request::Do(command, reason)) => {
                    perform(client, command, &reason, events).await?;
                    reader.forget();
                    break;
                }
            }
        }
    }
}

/// The answer, or why the connection is lost. A statement that is refused leaves the connection.
async fn within<T>(
    client: &Client,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<Result<T, String>, String> {
    match timeout(PATIENCE, answer).await {
        Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
        Ok(Ok(answer)) => Ok(Ok(answer)),
        Ok(Err(error)) if client.is_closed() || error.as_db_error().is_none() => {
            Err(ErrorChain(&error).to_string())
        }
        Ok(Err(error)) => Ok(Err(ErrorChain(&error).to_string())),
    }
}

/// Returns the answer, or sends the refusal to the screen.
fn value_of<T>(answer: Result<T, String>, events: &UnboundedSender<Event>) -> Option<T> {
    match answer {
        Ok(answer) => Some(answer),
        Err(refused) => {
            let _ = events.send(Event::Refused(refused));
            None
        }
    }
}

async fn look_into(
    client: &Client,
    target: &Option<Target>,
    events: &UnboundedSender<Event>,
) -> Result<(), String> {
    let Some(target) = target else { return Ok(()) };
    let looking = async {
        Ok(match target {
            Target::Lambda(lambda) => Inside::Lambda(
                overview::dead_groups(client, Some(lambda), overview::DEAD_GROUPS).await?,
            ),
            Target::Executor(executor) => {
                Inside::Executor(overview::held_by(client, *executor).await?)
            }
            Target::Dead(_, _, id) => Inside::Dead(overview::letter(client, *id).await?),
        })
    };
    if let Some(inside) = value_of(within(client, looking).await?, events) {
        let _ = events.send(Event::Inside(target.clone(), inside));
    }
    Ok(())
}

/// A status, and how many of its tasks a redrive would release: two columns of lists.
const MEANT: &str = "coalesce(array_agg(v.status order by v.status), '{}'), \
                     coalesce(array_agg(v.tasks order by v.status), '{}')";

/// Which dead letters a redrive releases.
fn redrive(lambda: &str, fingerprint: &str) -> Value {
    json!({ "action": "redrive", "lambda": lambda, "fingerprint": fingerprint })
}

async fn foresee(
    client: &Client,
    command: Command,
    events: &UnboundedSender<Event>,
) -> Result<(), String> {
    let counting = async {
        match &command {
            Command::Redrive { lambda, fingerprint } => {
                let redrive = redrive(lambda, fingerprint);
                let row = PREVIEW_OPERATION.row(client, MEANT, &redrive).await?;
                let statuses = row.get::<_, Vec<String>>(0).into_iter();
                let meant = statuses.zip(row.get::<_, Vec<i64>>(1));
                Ok(meant.map(|(status, tasks)| Meant { status, tasks }).collect())
            }
            Command::Pause { .. } | Command::Open { .. } => Ok(Vec::<Meant>::new()),
        }
    };
    if let Some(meant) = value_of(within(client, counting).await?, events) {
        let _ = events.send(Event::Foreseen(command, meant));
    }
    Ok(())
}

/// Executes the command once. If the connection breaks meanwhile, the screen says that the result
/// is unknown.
async fn perform(
    client: &Client,
    command: Command,
    reason: &str,
    events: &UnboundedSender<Event>,
) -> Result<(), String> {
    let doing = async {
        Ok(match &command {
            Command::Pause { lambda } => {
                let pause = json!({ "lambda": lambda, "action": "pause", "reason": reason });
                let gate: i64 = GATE.call(client, &pause).await?;
                format!("Gate {gate} pauses {lambda}.")
            }
            Command::Open { gate, .. } => {
                match UNGATE.call(client, &json!({ "gate": gate, "reason": reason })).await? {
                    true => format!("Gate {gate} is open."),
                    false => format!("Gate {gate} was not set any more."),
                }
            }
            Command::Redrive { lambda, fingerprint } => {
                let mut redrive = redrive(lambda, fingerprint);
                redrive["canary"] = true.into();
                redrive["reason"] = reason.into();
                let operation: i64 = START_OPERATION.call(client, &redrive).await?;
                format!("Operation {operation} redrives: tuskline operation wait {operation}")
            }
        })
    };
    let done = within(client, doing).await.inspect_err(|_| {
        let text = format!("The connection was lost. Check whether it did {}.", command.verb());
        let _ = events.send(Event::Refused(text));
    })?;
    if let Some(text) = value_of(done, events) {
        let _ = events.send(Event::Done(text));
    }
    Ok(())
}
