//! The calls that start, preview, follow and stop an operation.

use tokio_postgres::types::{ToSql, Type};

use super::{Operation, OperationPreview, OperationProgress};
use crate::client::Client;
use crate::client::sender::Sender;
use crate::client::session::Row;
use crate::db::Parameters;
use crate::db::json::checked;
use crate::error::Error;
use crate::task::{OperationId, Priority, TaskId};

/// The first parameters of `start_operation` and `preview_operation`.
const CHOICE: &str = "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, \
                      coalesce($14, tuskline.clock() - make_interval(secs => $15)), $16";
const PROGRESS: &str = "select state, looked, changed, spared, died_again, note \
                        from tuskline.operations where operation_id = $1";

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
        let sql = format!("select tuskline.start_operation({CHOICE}, $17, $18, $19, $20)");
        let (action, value) = operation.action.parts();
        let priority = operation.priority.map(Priority::as_str);
        let payload = operation.payload.as_ref().map(checked).transpose()?;
        let manner: &Parameters<'_> = &[
            (&operation.per_second, Type::FLOAT8),
            (&operation.canary, Type::BOOL),
            (&payload, Type::TEXT),
            (&reason, Type::TEXT),
        ];
        let parameters = [&choice(operation, &action, &value, &priority)[..], manner].concat();
        Ok(OperationId(self.one(&sql, &parameters).await?.get(0)))
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
        let sql = format!(
            "select lambda, status, archived, tasks, first_ids \
             from tuskline.preview_operation({CHOICE})"
        );
        let (action, value) = operation.action.parts();
        let priority = operation.priority.map(Priority::as_str);
        let rows = self.rows(&sql, &choice(operation, &action, &value, &priority)).await?;
        let preview = |row: &Row| {
            Ok(OperationPreview {
                lambda: row.get(0),
                status: row.get::<&str>(1).parse()?,
                archived: row.get(2),
                tasks: row.get(3),
                first_ids: row.get::<Vec<i64>>(4).into_iter().map(TaskId).collect(),
            })
        };
        rows.iter().map(preview).collect()
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
        Ok(rows.first().map(|row| OperationProgress {
            state: row.get(0),
            looked: row.get(1),
            changed: row.get(2),
            spared: row.get(3),
            died_again: row.get(4),
            note: row.get(5),
        }))
    }

    /// Stops an operation. Its changes so far stay. `false`: it was not running.
    ///
    /// # Errors
    /// [`Denied`](crate::ErrorKind::Denied), [`Unavailable`](crate::ErrorKind::Unavailable),
    /// [`Unknown`](crate::ErrorKind::Unknown).
    pub async fn stop_operation(&self, operation: OperationId) -> Result<bool, Error> {
        let sql = "select tuskline.stop_operation($1)";
        Ok(self.one(sql, &[(&operation.0, Type::INT8)]).await?.get(0))
    }
}

/// Parameters of [`CHOICE`].
fn choice<'a>(
    operation: &'a Operation,
    action: &'a &'static str,
    value: &'a Option<&'a str>,
    priority: &'a Option<&'static str>,
) -> [(&'a (dyn ToSql + Sync), Type); 16] {
    [
        (action, Type::TEXT),
        (&operation.lambda, Type::TEXT),
        (value, Type::TEXT),
        (&operation.collection, Type::TEXT),
        (priority, Type::TEXT),
        (&operation.statuses, Type::TEXT_ARRAY),
        (&operation.fingerprint, Type::TEXT),
        (&operation.ids, Type::INT8_ARRAY),
        (&operation.key, Type::TEXT),
        (&operation.field, Type::TEXT_ARRAY),
        (&operation.equals, Type::TEXT),
        (&operation.created_from, Type::TIMESTAMPTZ),
        (&operation.created_to, Type::TIMESTAMPTZ),
        (&operation.ended_to, Type::TIMESTAMPTZ),
        (&operation.age_s, Type::FLOAT8),
        (&operation.limit, Type::INT8),
    ]
}
