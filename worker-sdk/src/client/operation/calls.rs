//! The calls that start, preview, follow and stop an operation.

use serde::Serialize;
use serde_json::json;
use tokio_postgres::types::Type;

use super::{Operation, OperationPreview, OperationProgress, Start};
use crate::client::Client;
use crate::client::sender::Sender;
use crate::client::status::value;
use crate::client::verbs::{PREVIEW_OPERATION, START_OPERATION, STOP_OPERATION};
use crate::db::json::checked;
use crate::error::Error;
use crate::task::OperationId;

const PROGRESS: &str =
    "select row_to_json(o)::text from tuskline.operations o where operation_id = $1";

impl<S: Sender> Client<S> {
    /// Starts an operation on many tasks and returns its number. Store consumers carry it out.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid): it does not say which tasks, a status that the action is not
    /// for, a number out of range, a redrive without a reason (TK029), an unknown lambda (TK001).
    /// [`Denied`](crate::ErrorKind::Denied), [`Unavailable`](crate::ErrorKind::Unavailable),
    /// [`Unknown`](crate::ErrorKind::Unknown).
    pub async fn start_operation(
        &self,
        operation: &Operation,
        reason: Option<&str>,
    ) -> Result<OperationId, Error> {
        let payload = operation.start.payload.as_ref().map(checked).transpose()?;
        let arguments = Started { operation, start: &operation.start, payload, reason };
        Ok(OperationId(self.call(START_OPERATION, "v", arguments).await?.get(0)))
    }

    /// How many tasks an operation would change now, by lambda and status.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) as [`Client::start_operation`],
    /// [`Denied`](crate::ErrorKind::Denied), [`Unavailable`](crate::ErrorKind::Unavailable).
    pub async fn preview_operation(
        &self,
        operation: &Operation,
    ) -> Result<Vec<OperationPreview>, Error> {
        let rows = self.rows_of(PREVIEW_OPERATION, "row_to_json(v)::text", operation).await?;
        rows.iter().map(|row| value(row.get(0))).collect()
    }

    /// How far an operation has come; `None`: no such number, or it ended over a month ago.
    ///
    /// # Errors
    /// [`Denied`](crate::ErrorKind::Denied), [`Unavailable`](crate::ErrorKind::Unavailable).
    pub async fn operation_progress(
        &self,
        operation: OperationId,
    ) -> Result<Option<OperationProgress>, Error> {
        let rows = self.rows(PROGRESS, &[(&operation.0, Type::INT8)]).await?;
        rows.first().map(|row| value(row.get(0))).transpose()
    }

    /// Stops an operation. Its changes so far stay. `false`: it was not running.
    ///
    /// # Errors
    /// [`Denied`](crate::ErrorKind::Denied), [`Unavailable`](crate::ErrorKind::Unavailable),
    /// [`Unknown`](crate::ErrorKind::Unknown).
    pub async fn stop_operation(&self, operation: OperationId) -> Result<bool, Error> {
        let stop = self.call(STOP_OPERATION, "v", json!({ "operation": operation })).await?;
        Ok(stop.get(0))
    }
}

/// The arguments of `start_operation`.
#[derive(Serialize)]
struct Started<'a> {
    #[serde(flatten)]
    operation: &'a Operation,
    #[serde(flatten)]
    start: &'a Start,
    payload: Option<&'a str>,
    reason: Option<&'a str>,
}
