//! Plays an order: which session takes a step, which waits, which may go on.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_postgres::{Client, SimpleQueryMessage, Statement};

use super::Patience;
use crate::support::{refusal, within};

/// The result of an order.
#[derive(Default)]
pub struct Played {
    pub sum: i64,
    pub waits: u64,
    /// A verb waited that would have given up in time.
    pub would_give_up: bool,
    pub errors: Vec<String>,
}

/// A session and where it stands.
pub struct Session {
    client: Arc<Client>,
    pid: i32,
    todo: VecDeque<String>,
    /// Steps whose turn has come.
    turns: usize,
    step: String,
    under_way: Option<JoinHandle<Result<i64, String>>>,
}

/// Whether a step stops waiting for a lock by itself.
fn gives_up(step: &str) -> bool {
    ["claim", "exchange", "release", "enqueue_due"]
        .iter()
        .any(|verb| step.contains(&format!("tuskline.{verb}(")))
}

impl Session {
    pub async fn new(client: Client) -> Self {
        client.batch_execute("set deadlock_timeout = '20ms'").await.unwrap();
        let pid = client.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
        Self {
            client: Arc::new(client),
            pid,
            todo: VecDeque::new(),
            turns: 0,
            step: String::new(),
            under_way: None,
        }
    }

    /// Gives the session its steps, within one transaction.
    pub fn prepare(&mut self, steps: Vec<String>) {
        self.todo = steps.into();
        self.turns = 0;
        self.todo[0].insert_str(0, "begin; ");
    }

    /// Takes the next step if its turn has come and the last one is over.
    fn go_on(&mut self) -> bool {
        if self.turns == 0 || self.under_way.is_some() {
            return false;
        }
        self.turns -= 1;
        self.step = self.todo.pop_front().expect("a step for every turn");
        let (client, step) = (self.client.clone(), self.step.clone());
        self.under_way = Some(tokio::spawn(async move {
            let said = client.simple_query(&step).await.map_err(|error| refusal(&error))?;
            Ok(said.iter().map(number).sum())
        }));
        true
    }

    fn is_over(&self) -> bool {
        self.under_way.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Notes the answer of the step once it is over.
    async fn collect(&mut self, played: &mut Played) -> bool {
        if self.under_way.is_none() || !self.is_over() {
            return false;
        }
        self.wait(played).await;
        true
    }

    async fn wait(&mut self, played: &mut Played) {
        let Some(step) = self.under_way.take() else { return };
        match within(step).await.expect("no panic in a step") {
            Ok(number) => played.sum += number,
            Err(error) => {
                played.errors.push(error);
                // The rest of the transaction is void.
                self.client.batch_execute("rollback").await.unwrap();
                self.todo.iter_mut().for_each(|step| "select 0".clone_into(step));
            }
        }
    }
}

/// The number that a statement answered, if it did.
fn number(said: &SimpleQueryMessage) -> i64 {
    let SimpleQueryMessage::Row(row) = said else { return 0 };
    row.get(0).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Plays one order.
pub async fn play(
    sessions: &mut [Session],
    eye: &Watcher,
    order: &[usize],
    patience: Patience,
) -> Played {
    let mut played = Played::default();
    for turn in order {
        sessions[*turn].turns += 1;
        settle(sessions, eye, patience, &mut played).await;
    }
    // A session that waits now waits for an ended session, or for one that blocks it for good.
    while sessions.iter().any(|session| session.under_way.is_some() || session.turns > 0) {
        settle(sessions, eye, patience, &mut played).await;
        tokio::task::yield_now().await;
    }
    played
}

/// Until every step under way is over or waits for another session.
async fn settle(sessions: &mut [Session], eye: &Watcher, patience: Patience, played: &mut Played) {
    loop {
        let mut moved = false;
        for session in sessions.iter_mut() {
            moved |= session.go_on();
        }
        let waiting = within(waiting(sessions, eye)).await;
        if moved {
            played.waits += waiting.len() as u64;
        }
        for session in sessions.iter_mut() {
            let would_give_up = gives_up(&session.step) && waiting.contains(&session.pid);
            played.would_give_up |= would_give_up;
            if would_give_up && patience == Patience::UntilItGivesUp {
                session.wait(played).await;
                moved = true;
            }
            moved |= session.collect(played).await;
        }
        if !moved {
            return;
        }
    }
}

/// A session that sees which session waits for which.
pub struct Watcher {
    client: Client,
    look: Statement,
}

impl Watcher {
    pub async fn new(client: Client) -> Self {
        let sql = "select pid from unnest($1::integer[]) as pid where cardinality(pg_blocking_pids(pid)) > 0";
        let look = client.prepare(sql).await.unwrap();
        Self { client, look }
    }
}

/// The sessions that wait for a lock of another session, once no session is moving any more.
async fn waiting(sessions: &[Session], eye: &Watcher) -> Vec<i32> {
    let pids: Vec<_> = sessions.iter().map(|session| session.pid).collect();
    loop {
        let rows = eye.client.query(&eye.look, &[&pids]).await.unwrap();
        let waiting: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
        if sessions.iter().all(|session| session.is_over() || waiting.contains(&session.pid)) {
            return waiting;
        }
        tokio::task::yield_now().await;
    }
}
