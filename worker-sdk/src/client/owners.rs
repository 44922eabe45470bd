//! The calls of a [`Client`] for owners of lambdas and operators. Each is one transaction of its own.

use crate::client::Client;
use crate::client::calls::{change, read};
use crate::client::definition::{
    Breaker, DefinedLambda, Definitions, Gate, Limit, OnFailure, Throttle, Unique,
};
use crate::client::operation::{Operation, OperationPreview, OperationProgress};
use crate::client::periodic::{Defined, Periodic};
use crate::error::Error;
use crate::task::{GateId, LimitId, OperationId};

impl Client {
    /// Defines a lambda with the default settings; `false`: it was defined already.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid): the name; [`Denied`](crate::ErrorKind::Denied);
    /// [`Unavailable`](crate::ErrorKind::Unavailable); [`Unknown`](crate::ErrorKind::Unknown).
    pub async fn define_lambda(&self, name: &str) -> Result<bool, Error> {
        change!(self, db => db.define_lambda(name))
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
        change!(self, db => db.define(lambdas))
    }

    /// Sets a gate on a lambda.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid): an unknown lambda (TK001), no reason, an end that has passed
    /// (TK017), another gate that overlaps (TK015). [`Denied`](crate::ErrorKind::Denied),
    /// [`Unavailable`](crate::ErrorKind::Unavailable), [`Unknown`](crate::ErrorKind::Unknown).
    pub async fn gate(&self, lambda: &str, gate: &Gate) -> Result<GateId, Error> {
        change!(self, db => db.gate(lambda, gate))
    }

    /// Opens a gate; its tasks go on. `false`: no gate of that number is set.
    ///
    /// # Errors
    /// [`Denied`](crate::ErrorKind::Denied), [`Unavailable`](crate::ErrorKind::Unavailable),
    /// [`Unknown`](crate::ErrorKind::Unknown).
    pub async fn ungate(&self, gate: GateId) -> Result<bool, Error> {
        change!(self, db => db.ungate(gate))
    }

    /// Slows a lambda down for a time. [`Client::drop_limit`] ends it.
    ///
    /// # Errors
    /// As [`Client::gate`], with TK018.
    pub async fn throttle(&self, lambda: &str, throttle: &Throttle) -> Result<LimitId, Error> {
        change!(self, db => db.throttle(lambda, throttle))
    }

    /// Sets a limit, or changes the one of its kind and scope.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid): an unknown lambda (TK001), a number out of range (TK018).
    /// [`Denied`](crate::ErrorKind::Denied), [`Unavailable`](crate::ErrorKind::Unavailable),
    /// [`Unknown`](crate::ErrorKind::Unknown).
    pub async fn set_limit(&self, lambda: &str, limit: &Limit) -> Result<LimitId, Error> {
        change!(self, db => db.set_limit(lambda, limit))
    }

    /// Runs the tasks of each ordering key one at a time, in order.
    ///
    /// # Errors
    /// As [`Client::set_limit`].
    pub async fn set_order(&self, lambda: &str, on_failure: OnFailure) -> Result<LimitId, Error> {
        change!(self, db => db.set_order(lambda, on_failure))
    }

    /// Removes a limit, an order or a throttle; the tasks that wait for it go on. `false`: there is none of
    /// that number.
    ///
    /// # Errors
    /// As [`Client::ungate`].
    pub async fn drop_limit(&self, limit: LimitId) -> Result<bool, Error> {
        change!(self, db => db.drop_limit(limit))
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
        change!(self, db => db.set_weight(limit, fairness_key, weight))
    }

    /// Lets an ordering key go on whose task failed for good. `false`: the key is not blocked.
    ///
    /// # Errors
    /// As [`Client::ungate`].
    pub async fn unblock(&self, lambda: &str, ordering_key: &str) -> Result<bool, Error> {
        change!(self, db => db.unblock(lambda, ordering_key))
    }

    /// Gives the tasks of a lambda unique keys.
    ///
    /// # Errors
    /// As [`Client::set_limit`].
    pub async fn set_unique(&self, lambda: &str, unique: &Unique) -> Result<(), Error> {
        change!(self, db => db.set_unique(lambda, unique))
    }

    /// Refuses tasks with a unique key from now on. `false`: the lambda has none.
    ///
    /// # Errors
    /// As [`Client::ungate`].
    pub async fn drop_unique(&self, lambda: &str) -> Result<bool, Error> {
        change!(self, db => db.drop_unique(lambda))
    }

    /// Sets the circuit breaker of a lambda.
    ///
    /// # Errors
    /// As [`Client::set_limit`], with TK026.
    pub async fn set_breaker(&self, lambda: &str, breaker: &Breaker) -> Result<(), Error> {
        change!(self, db => db.set_breaker(lambda, breaker))
    }

    /// Removes the circuit breaker of a lambda, and opens the gate that it has set. `false`: it has none.
    ///
    /// # Errors
    /// As [`Client::ungate`].
    pub async fn drop_breaker(&self, lambda: &str) -> Result<bool, Error> {
        change!(self, db => db.drop_breaker(lambda))
    }

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
        change!(self, db => db.start_operation(operation, reason))
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
        read!(self, db => db.preview_operation(operation))
    }

    /// How far an operation has come; `None`: no such number, or it ended over a month ago.
    ///
    /// # Errors
    /// [`Denied`](crate::ErrorKind::Denied), [`Unavailable`](crate::ErrorKind::Unavailable).
    pub async fn operation_progress(
        &self,
        operation: OperationId,
    ) -> Result<Option<OperationProgress>, Error> {
        read!(self, db => db.operation_progress(operation))
    }

    /// Stops an operation. Its changes so far stay. `false`: it was not running.
    ///
    /// # Errors
    /// [`Denied`](crate::ErrorKind::Denied), [`Unavailable`](crate::ErrorKind::Unavailable),
    /// [`Unknown`](crate::ErrorKind::Unknown).
    pub async fn stop_operation(&self, operation: OperationId) -> Result<bool, Error> {
        change!(self, db => db.stop_operation(operation))
    }

    /// Defines a schedule, or changes the one of that name. Every deployment may call it. A paused
    /// schedule stays paused.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid): a cron or a zone that no server can read, a setting out of
    /// range, an unknown lambda. [`Denied`](crate::ErrorKind::Denied),
    /// [`Unavailable`](crate::ErrorKind::Unavailable), [`Unknown`](crate::ErrorKind::Unknown).
    pub async fn define_periodic(&self, periodic: &Periodic) -> Result<Defined, Error> {
        change!(self, db => db.define_periodic(periodic))
    }

    /// Pauses a schedule at once. Its ticks during the pause are not made up for. `false`: no such name.
    ///
    /// # Errors
    /// [`Denied`](crate::ErrorKind::Denied), [`Unavailable`](crate::ErrorKind::Unavailable),
    /// [`Unknown`](crate::ErrorKind::Unknown).
    pub async fn pause_periodic(&self, name: &str, reason: Option<&str>) -> Result<bool, Error> {
        change!(self, db => db.pause_periodic(name, reason))
    }

    /// Resumes a paused schedule with its next tick. `false`: no such name.
    ///
    /// # Errors
    /// As [`Client::pause_periodic`].
    pub async fn resume_periodic(&self, name: &str, reason: Option<&str>) -> Result<bool, Error> {
        change!(self, db => db.resume_periodic(name, reason))
    }

    /// Deletes a schedule. The tasks that it made stay. `false`: no such name.
    ///
    /// # Errors
    /// As [`Client::pause_periodic`].
    pub async fn drop_periodic(&self, name: &str, reason: Option<&str>) -> Result<bool, Error> {
        change!(self, db => db.drop_periodic(name, reason))
    }
}
