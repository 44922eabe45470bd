//! `Wait`: the answer comes when a task has ended, or when the wait is over.
//!
//! Promises: one connection listens for all calls that wait (the SDK's); a call that waits holds no
//! connection; a client that goes away frees its place. Must never: wait longer than the server's bound.

use std::time::Duration;

use tuskline_sdk::{ErrorKind, TaskId};

use super::Frontend;
use super::calls::PATIENCE;
use super::refusal::Refused;
use crate::health::Conversation;
use crate::identity::Person;

impl Frontend {
    /// Waits for the end of a task. Returns its status then, as JSON.
    pub async fn wait(
        &self,
        person: &Person,
        task: i64,
        limit: Option<Duration>,
        conversation: &Conversation,
    ) -> Result<String, Refused> {
        let Ok(_place) = self.waits.try_acquire() else { return Err(Refused::busy("waits")) };
        let limit = limit.map_or(self.longest_wait, |limit| limit.min(self.longest_wait));
        conversation.prolong(limit + PATIENCE);
        let client = self.calls.client().await?.as_role(person.role.as_str());
        let ended = tokio::select! {
            ended = client.wait(TaskId(task), limit) => ended.map(drop),
            () = conversation.shutdown.cancelled() => Ok(()),
        };
        match ended.map_err(|error| (error.kind(), error)) {
            Err((ErrorKind::Unavailable | ErrorKind::Unknown, error)) => {
                Err(Refused::error(&error))
            }
            // A role that may not see the output sees the status. One that may not do that is refused here.
            _ => self.calls.status(person, task).await,
        }
    }
}
