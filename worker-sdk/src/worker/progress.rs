//! How far a long task has come, in its own words, and what its next attempt goes on from.

use std::sync::atomic::Ordering;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_postgres::types::{ToSql, Type};

use crate::client::Client;
use crate::db::json;
use crate::db::json::{JsonOwned, JsonText};
use crate::error::{Code, Error};
use crate::task::{Fence, TaskId};
use crate::worker::context::Context;
use crate::worker::context::Inner;

impl Context {
    /// Says how far this attempt has come: shown with the task's status, and kept for the next attempt.
    /// Each call is a commit: once a second is plenty.
    ///
    /// # Errors
    /// [`Fenced`](crate::ErrorKind::Fenced): the attempt is over. [`Invalid`](crate::ErrorKind::Invalid): not
    /// 0 to 100 percent. Else as [`Client::schedule`].
    pub async fn progress(&self, percent: f32, message: &str) -> Result<(), Error> {
        #[cfg(feature = "executor")]
        if let Some(process) = &self.inner.process {
            return process.progress(percent, message);
        }
        let Inner { task, fence, .. } = *self.inner;
        self.inner.client.set_progress(task, fence, Some((percent, message)), None).await
    }

    /// Keeps what the next attempt needs to go on from here, should this one fail or its worker die.
    ///
    /// # Errors
    /// As [`Context::progress`]; [`Invalid`](crate::ErrorKind::Invalid): larger than 1 MiB, or nests deeper
    /// than 64.
    pub async fn save(&self, checkpoint: &impl Serialize) -> Result<(), Error> {
        let text = serde_json::to_string(checkpoint).map_err(no_progress)?;
        json::check_depth(&text).map_err(|depth| {
            let limit = json::DEPTH_MAX;
            no_progress(format!("a checkpoint nests at most {limit} deep, got {depth}"))
        })?;
        #[cfg(feature = "executor")]
        if let Some(process) = &self.inner.process {
            return process.save(&text).await;
        }
        let Inner { task, fence, .. } = *self.inner;
        self.inner.may_have_checkpoint.store(true, Ordering::Relaxed);
        self.inner.client.set_progress(task, fence, None, Some(&text)).await
    }

    /// The value that an earlier attempt, or this one, has kept with [`Context::save`]. The first attempt asks the
    /// database only if it has kept one.
    ///
    /// # Errors
    /// As [`Client::status`]; [`Invalid`](crate::ErrorKind::Invalid): it is no `T`.
    pub async fn checkpoint<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        #[cfg(feature = "executor")]
        if let Some(process) = &self.inner.process {
            let text = process.checkpoint();
            return text.map(|text| serde_json::from_str(&text).map_err(no_progress)).transpose();
        }
        if !self.inner.may_have_checkpoint.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let text = self.inner.client.checkpoint(self.inner.task).await?;
        // Straight from the text: a `Value` in between would round numbers of more than 64 bits.
        text.map(|text| serde_json::from_str(&text.0).map_err(no_progress)).transpose()
    }
}

fn no_progress(reason: impl std::fmt::Display) -> Error {
    Error::refused(Code::InvalidProgress, reason)
}

impl Client {
    async fn checkpoint(&self, task: TaskId) -> Result<Option<JsonOwned>, Error> {
        let sql = "select checkpoint from tuskline.task_status($1)";
        let rows = self.rows(sql, &[(&task.0, Type::INT8)]).await?;
        Ok(rows.first().and_then(|row| row.get(0)))
    }

    /// The call of [`Context::progress`] and [`Context::save`].
    async fn set_progress(
        &self,
        task: TaskId,
        fence: Fence,
        done: Option<(f32, &str)>,
        checkpoint: Option<&str>,
    ) -> Result<(), Error> {
        let (percent, message) = done.unzip();
        let checkpoint = checkpoint.map(JsonText);
        let params: [(&(dyn ToSql + Sync), Type); 5] = [
            (&task.0, Type::INT8),
            (&fence.0, Type::INT8),
            (&percent, Type::FLOAT4),
            (&message, Type::TEXT),
            (&checkpoint, Type::JSON),
        ];
        let sql = "select tuskline.set_progress($1, $2, $3, $4, $5)";
        match self.one(sql, &params).await?.get(0) {
            true => Ok(()),
            false => Err(Error::refused(Code::NotCurrent, format!("task {task} is held no more"))),
        }
    }
}
