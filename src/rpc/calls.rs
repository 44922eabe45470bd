//! Calls of the database, each in one transaction as the role of its sender.
//!
//! Promises: a call is one round trip and ends within [`PATIENCE`]; a commit that a synchronous standby may not
//! have is no success. Must never: act as the login of the server.

use std::time::Duration;

use serde_json::json;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::{Client as Session, Error};
use tuskline_sdk::{Address, Client, Connection};

use super::message::{Message, Order};
use super::refusal::Refused;
use crate::identity::Person;
use crate::store::frontend::{self, RoleError};

/// Longest time for a call, with the wait for a connection. The server ends its statements before.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// The connections of all calls, opened when the first one comes.
#[derive(Debug)]
pub struct Calls {
    address: Address,
    client: OnceCell<Client>,
}

/// The begin of a transaction that changes nothing, and of one that may.
const READS: &str = "begin read only";
const CHANGES: &str = "begin";

impl Calls {
    /// Opens no connection yet.
    pub fn new(address: Address) -> Self {
        let address = address.with(|config| {
            config.application_name("tuskline rpc");
        });
        Self { address, client: OnceCell::new() }
    }

    /// The connections.
    pub async fn client(&self) -> Result<&Client, Refused> {
        let connect = || Client::connect(self.address.clone());
        let connecting = timeout(PATIENCE, self.client.get_or_try_init(connect));
        match connecting.await {
            Ok(client) => client.map_err(|error| Refused::error(&error)),
            Err(_) => Err(late()),
        }
    }

    async fn connection(&self) -> Result<Connection, Refused> {
        let connection = self.client().await?.connection().await;
        connection.map_err(|error| Refused::error(&error))
    }

    /// Does what a message says. Returns the JSON of the answer.
    pub async fn perform(&self, person: &Person, message: Message) -> Result<String, Refused> {
        match message {
            Message::Schedule(order) => {
                let ids = self.schedule(person, &order).await?;
                Ok(json!({ "task": ids.first().map(i64::to_string) }).to_string())
            }
            Message::ScheduleMany(order) => {
                let ids = self.schedule(person, &order).await.map_err(Refused::in_tasks)?;
                let ids: Vec<String> = ids.iter().map(i64::to_string).collect();
                Ok(json!({ "tasks": ids }).to_string())
            }
            Message::Cancel { task, reason } => {
                let call = async |session: &Session| {
                    frontend::cancel(session, &person.role, task, reason.as_deref()).await
                };
                let outcome = self.of(person, CHANGES, call).await?;
                Ok(json!({ "outcome": outcome }).to_string())
            }
            Message::Explain { task } => {
                let call =
                    async |session: &Session| frontend::explain(session, &person.role, task).await;
                let reasons = self.of(person, READS, call).await?;
                Ok(format!("{{\"reasons\":{reasons}}}"))
            }
            Message::Status { task } | Message::Wait { task, .. } => {
                self.status(person, task).await
            }
        }
    }

    async fn schedule(&self, person: &Person, order: &Order) -> Result<Vec<i64>, Refused> {
        let Order { request_id, tasks } = order;
        let call = async |session: &Session| {
            frontend::schedule(session, &person.role, request_id.as_deref(), tasks).await
        };
        self.of(person, CHANGES, call).await
    }

    /// The status of a task, as JSON.
    pub async fn status(&self, person: &Person, task: i64) -> Result<String, Refused> {
        let call = async |session: &Session| frontend::status(session, &person.role, task).await;
        self.of(person, READS, call).await?.ok_or_else(|| Refused::unknown_task(task))
    }

    /// Makes a call as the role of a person.
    async fn of<T>(
        &self,
        person: &Person,
        begin: &str,
        call: impl AsyncFnOnce(&Session) -> Result<T, Error>,
    ) -> Result<T, Refused> {
        let until = Instant::now() + PATIENCE;
        let connection =
            timeout_at(until, self.connection()).await.unwrap_or_else(|_| Err(late()))?;
        let who = (person.role.as_str(), person.name.as_str());
        let all = frontend::in_role(&connection, begin, who, call(&connection));
        let Ok(done) = timeout_at(until, all).await else {
            // The next call must not wait for the answer of this one.
            connection.discard();
            return Err(late());
        };
        let done = done.map_err(|error| match error {
            RoleError::Role(error) => Refused::role(error),
            RoleError::Call(error) => Refused::by(error),
        })?;
        if begin == CHANGES {
            connection.confirm().map_err(|error| Refused::error(&error))?;
        }
        Ok(done)
    }
}

fn late() -> Refused {
    Refused::no_database(format!("the database did not answer within {} s", PATIENCE.as_secs()))
}
