//! The calls of a [`Client`] for owners of lambdas and operators. A deploy brings the same along with a
//! definition.

use serde::Serialize;
use serde_json::json;
use tokio_postgres::types::Type;

use crate::client::Client;
use crate::client::definition::{
    Breaker, DefinedLambda, Definitions, Gate, Limit, OnFailure, Throttle, Unique,
};
use crate::client::periodic::{Defined, Periodic};
use crate::client::sender::Sender;
use crate::client::status::word;
use crate::client::verbs::{
    DEFINE_LAMBDA, DEFINE_PERIODIC, DROP_BREAKER, DROP_LIMIT, DROP_PERIODIC, DROP_UNIQUE, GATE,
    GRANT_LAMBDA, PAUSE_PERIODIC, RESUME_PERIODIC, REVOKE_LAMBDA, RUN_PERIODIC, SET_BREAKER,
    SET_LIMIT, SET_ORDER, SET_UNIQUE, SET_WEIGHT, THROTTLE, UNBLOCK, UNGATE,
};
use crate::db::Parameters;
use crate::db::json::{JsonText, checked};
use crate::error::{Error, ErrorKind};
use crate::task::{GateId, LimitId, Privilege, TaskId};

impl<S: Sender> Client<S> {
    /// Defines a lambda with the default settings; `false`: it was defined already.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid): the name; [`Denied`](crate::ErrorKind::Denied);
    /// [`Unavailable`](crate::ErrorKind::Unavailable); [`Unknown`](crate::ErrorKind::Unknown).
    pub async fn define_lambda(&self, name: &str) -> Result<bool, Error> {
        Ok(self.call(DEFINE_LAMBDA, "v", json!({ "name": name })).await?.get(0))
    }

    /// Brings lambdas to the database, with their settings, limits, gates and schedules. Each process may call
    /// it at its start: a call with the stored definition writes nothing and waits for no lock. Only what
    /// differs from the last definition is applied, so the change of an operator stays. Returns a row per
    /// lambda, in the order of names.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid): no definition or over 1,000, one lambda twice, a setting out of
    /// range (TK009, or the code of the part). Then nothing was done. [`Denied`](crate::ErrorKind::Denied),
    /// [`Unavailable`](crate::ErrorKind::Unavailable), [`Unknown`](crate::ErrorKind::Unknown).
    pub async fn define(&self, lambdas: &Definitions) -> Result<Vec<DefinedLambda>, Error> {
        let text = lambdas.to_json().map_err(|(code, text)| Error::refused(code, text))?;
        let sql = "select lambda, outcome, changes::text::json from tuskline.define($1, $2, $3)";
        let parameters: &Parameters<'_> = &[
            (&JsonText(&text), Type::JSON),
            (&lambdas.version, Type::TEXT),
            (&lambdas.dry_run, Type::BOOL),
        ];
        let rows = self.query(sql, parameters, ErrorKind::Unknown).await?;
        rows.iter().map(DefinedLambda::read).collect()
    }

    /// Grants rights on a lambda to a role; `*` stands for every closed lambda. The first
    /// [`Own`](Privilege::Own) closes the lambda: from then on only roles with a right use it. `false`: the role has
    /// had these rights already.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid): an unknown lambda (TK001), no privilege, a role that is missing or a
    /// superuser, `public` (TK056). [`Denied`](crate::ErrorKind::Denied): the caller does not own the lambda.
    /// [`Unavailable`](crate::ErrorKind::Unavailable), [`Unknown`](crate::ErrorKind::Unknown).
    pub async fn grant_lambda(
        &self,
        lambda: &str,
        role: &str,
        privileges: &[Privilege],
    ) -> Result<bool, Error> {
        let grant = json!({ "lambda": lambda, "role": role, "privileges": privileges });
        Ok(self.call(GRANT_LAMBDA, "v", grant).await?.get(0))
    }

    /// Revokes rights on a lambda from a role, which need not exist any more. `false`: the role has none of them.
    ///
    /// # Errors
    /// As [`Client::grant_lambda`]. [`Denied`](crate::ErrorKind::Denied), too, for the last
    /// [`Own`](Privilege::Own): only the owner of the schema opens a lambda again.
    pub async fn revoke_lambda(
        &self,
        lambda: &str,
        role: &str,
        privileges: &[Privilege],
    ) -> Result<bool, Error> {
        let revoke = json!({ "lambda": lambda, "role": role, "privileges": privileges });
        Ok(self.call(REVOKE_LAMBDA, "v", revoke).await?.get(0))
    }

    /// Whether the caller has a right on a lambda; true for a lambda that no role owns.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable), [`Denied`](crate::ErrorKind::Denied).
    pub async fn may(&self, lambda: &str, privilege: Privilege) -> Result<bool, Error> {
        let parameters: &Parameters<'_> =
            &[(&lambda, Type::TEXT), (&privilege.as_str(), Type::TEXT)];
        let rows = self.rows("select tuskline.may($1, $2)", parameters).await?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }

    /// Sets a gate on a lambda.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid): an unknown lambda (TK001), no reason, an end that has passed
    /// (TK017), another gate that overlaps (TK015). [`Denied`](crate::ErrorKind::Denied),
    /// [`Unavailable`](crate::ErrorKind::Unavailable), [`Unknown`](crate::ErrorKind::Unknown).
    pub async fn gate(&self, lambda: &str, gate: &Gate) -> Result<GateId, Error> {
        Ok(GateId(self.call(GATE, "v", Named { lambda, part: gate }).await?.get(0)))
    }

    /// Opens a gate; its tasks go on. `false`: no gate of that number is set.
    ///
    /// # Errors
    /// [`Denied`](crate::ErrorKind::Denied), [`Unavailable`](crate::ErrorKind::Unavailable),
    /// [`Unknown`](crate::ErrorKind::Unknown).
    pub async fn ungate(&self, gate: GateId) -> Result<bool, Error> {
        Ok(self.call(UNGATE, "v", json!({ "gate": gate })).await?.get(0))
    }

    /// Slows a lambda down for a time. [`Client::drop_limit`] ends it.
    ///
    /// # Errors
    /// As [`Client::gate`], with TK018.
    pub async fn throttle(&self, lambda: &str, throttle: &Throttle) -> Result<LimitId, Error> {
        Ok(LimitId(self.call(THROTTLE, "v", Named { lambda, part: throttle }).await?.get(0)))
    }

    /// Sets a limit, or changes the one of its kind and scope.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid): an unknown lambda (TK001), a number out of range (TK018).
    /// [`Denied`](crate::ErrorKind::Denied), [`Unavailable`](crate::ErrorKind::Unavailable),
    /// [`Unknown`](crate::ErrorKind::Unknown).
    pub async fn set_limit(&self, lambda: &str, limit: &Limit) -> Result<LimitId, Error> {
        Ok(LimitId(self.call(SET_LIMIT, "v", Named { lambda, part: limit }).await?.get(0)))
    }

    /// Runs the tasks of each ordering key one at a time, in order.
    ///
    /// # Errors
    /// As [`Client::set_limit`].
    pub async fn set_order(&self, lambda: &str, on_failure: OnFailure) -> Result<LimitId, Error> {
        let order = json!({ "lambda": lambda, "on_failure": on_failure });
        Ok(LimitId(self.call(SET_ORDER, "v", order).await?.get(0)))
    }

    /// Removes a limit, an order or a throttle; the tasks that wait for it go on. `false`: there is none of
    /// that number.
    ///
    /// # Errors
    /// As [`Client::ungate`].
    pub async fn drop_limit(&self, limit: LimitId) -> Result<bool, Error> {
        Ok(self.call(DROP_LIMIT, "v", json!({ "limit_id": limit })).await?.get(0))
    }

    /// Sets how many tasks of a tenant run in one round of a fair limit: 0.001 to 1,000. The empty key stands
    /// for tasks without one.
    ///
    /// # Errors
    /// As [`Client::set_limit`]; the limit is not fair, or there is none of that number (TK018).
    pub async fn set_weight(
        &self,
        limit: LimitId,
        fairness_key: &str,
        weight: f64,
    ) -> Result<(), Error> {
        // As text: JSON lacks some numbers, and the database refuses them by their names.
        let weight = json!({ "limit_id": limit, "fairness_key": fairness_key, "weight": weight.to_string() });
        self.call(SET_WEIGHT, "true", weight).await.map(drop)
    }

    /// Lets an ordering key go on whose task failed for good. `false`: the key is not blocked.
    ///
    /// # Errors
    /// As [`Client::ungate`].
    pub async fn unblock(&self, lambda: &str, ordering_key: &str) -> Result<bool, Error> {
        Ok(self
            .call(UNBLOCK, "v", json!({ "lambda": lambda, "ordering_key": ordering_key }))
            .await?
            .get(0))
    }

    /// Gives the tasks of a lambda unique keys.
    ///
    /// # Errors
    /// As [`Client::set_limit`].
    pub async fn set_unique(&self, lambda: &str, unique: &Unique) -> Result<(), Error> {
        self.call(SET_UNIQUE, "true", Named { lambda, part: unique }).await.map(drop)
    }

    /// Refuses tasks with a unique key from now on. `false`: the lambda has none.
    ///
    /// # Errors
    /// As [`Client::ungate`].
    pub async fn drop_unique(&self, lambda: &str) -> Result<bool, Error> {
        Ok(self.call(DROP_UNIQUE, "v", json!({ "lambda": lambda })).await?.get(0))
    }

    /// Sets the circuit breaker of a lambda.
    ///
    /// # Errors
    /// As [`Client::set_limit`], with TK026.
    pub async fn set_breaker(&self, lambda: &str, breaker: &Breaker) -> Result<(), Error> {
        self.call(SET_BREAKER, "true", Named { lambda, part: breaker }).await.map(drop)
    }

    /// Removes the circuit breaker of a lambda, and opens the gate that it has set. `false`: it has none.
    ///
    /// # Errors
    /// As [`Client::ungate`].
    pub async fn drop_breaker(&self, lambda: &str) -> Result<bool, Error> {
        Ok(self.call(DROP_BREAKER, "v", json!({ "lambda": lambda })).await?.get(0))
    }

    /// Defines a schedule, or changes the one of that name. Every deployment may call it. A paused
    /// schedule stays paused.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid): a cron or a zone that no server can read, a setting out of
    /// range, an unknown lambda. [`Denied`](crate::ErrorKind::Denied),
    /// [`Unavailable`](crate::ErrorKind::Unavailable), [`Unknown`](crate::ErrorKind::Unknown).
    pub async fn define_periodic(&self, periodic: &Periodic) -> Result<Defined, Error> {
        let payload = periodic.payload.as_ref().map(checked).transpose()?;
        let (lambda, part) = (periodic.lambda.as_str(), periodic);
        let row = self
            .call(DEFINE_PERIODIC, "v", Schedule { payload, part: Named { lambda, part } })
            .await?;
        word(row.get(0))
    }

    /// Pauses a schedule at once. Its ticks during the pause are not made up for. `false`: no such name.
    ///
    /// # Errors
    /// [`Denied`](crate::ErrorKind::Denied), [`Unavailable`](crate::ErrorKind::Unavailable),
    /// [`Unknown`](crate::ErrorKind::Unknown).
    pub async fn pause_periodic(&self, name: &str, reason: Option<&str>) -> Result<bool, Error> {
        Ok(self.call(PAUSE_PERIODIC, "v", json!({ "name": name, "reason": reason })).await?.get(0))
    }

    /// Resumes a paused schedule with its next tick. `false`: no such name.
    ///
    /// # Errors
    /// As [`Client::pause_periodic`].
    pub async fn resume_periodic(&self, name: &str, reason: Option<&str>) -> Result<bool, Error> {
        Ok(self.call(RESUME_PERIODIC, "v", json!({ "name": name, "reason": reason })).await?.get(0))
    }

    /// Schedules the task of a schedule once, due now, besides its ticks. `None`: no such name.
    ///
    /// # Errors
    /// As [`Client::pause_periodic`], and as [`Client::schedule`] for a backlog that is full.
    pub async fn run_periodic(
        &self,
        name: &str,
        reason: Option<&str>,
    ) -> Result<Option<TaskId>, Error> {
        let with = json!({ "name": name, "reason": reason });
        let task: Option<i64> = self.call(RUN_PERIODIC, "v", with).await?.get(0);
        Ok(task.map(TaskId))
    }

    /// Deletes a schedule. The tasks that it made stay. `false`: no such name.
    ///
    /// # Errors
    /// As [`Client::pause_periodic`].
    pub async fn drop_periodic(&self, name: &str, reason: Option<&str>) -> Result<bool, Error> {
        Ok(self.call(DROP_PERIODIC, "v", json!({ "name": name, "reason": reason })).await?.get(0))
    }
}

/// A part, and the lambda that it belongs to.
#[derive(Serialize)]
struct Named<'a, T> {
    lambda: &'a str,
    #[serde(flatten)]
    part: &'a T,
}

/// A schedule, and the text of its payload.
#[derive(Serialize)]
struct Schedule<'a> {
    payload: Option<&'a str>,
    #[serde(flatten)]
    part: Named<'a, Periodic>,
}
