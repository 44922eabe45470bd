//! The calls of a [`Client`] for owners of lambdas and operators. A deploy brings the same along with a
//! definition.

use serde_json::Value;
use tokio_postgres::types::Type;

use crate::client::Client;
use crate::client::definition::{
    Breaker, DefinedLambda, Definitions, Gate, Limit, OnFailure, Throttle, Unique,
};
use crate::client::periodic::{Defined, Periodic};
use crate::client::sender::Sender;
use crate::client::session::Row;
use crate::db::Parameters;
use crate::db::json::{JsonText, checked};
use crate::error::{Error, ErrorKind};
use crate::task::{GateId, LimitId};

const PERIODIC: &str = "select tuskline.define_periodic($1, $2, $3, $4, $5, $6, $7, $8, $9, \
    make_interval(secs => $10), $11, $12, $13)";
const GATE: &str = "select tuskline.gate($1, x.action, x.collection, x.priority, x.until, x.for, x.reason, $3) \
    from json_to_record($2) as x (action text, collection text, priority text, until timestamptz, \
                                  \"for\" interval, reason text)";
const THROTTLE: &str = "select tuskline.throttle($1, x.per_second, x.collection, x.priority, x.until, x.for, \
                             x.reason, $3) \
    from json_to_record($2) as x (per_second float8, collection text, priority text, \
                                  until timestamptz, \"for\" interval, reason text)";
const LIMIT: &str = "select tuskline.set_limit($1, x.max_concurrency, x.per_second, x.collection, x.priority, \
                              x.by_key, x.burst, x.fair) \
    from json_to_record($2) as x (max_concurrency int, per_second float8, collection text, priority text, \
                                  by_key boolean, burst int, fair boolean)";
const UNIQUE: &str = "select tuskline.set_unique($1, x.scope, x.outcome, x.period) is null \
    from json_to_record($2) as x (scope text, outcome text, period interval)";
const BREAKER: &str = "select tuskline.set_breaker($1, x.failures, x.window, x.share, x.probe_after) is null \
    from json_to_record($2) as x (failures int, \"window\" interval, share float8, probe_after interval)";

impl<S: Sender> Client<S> {
    /// Defines a lambda with the default settings; `false`: it was defined already.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid): the name; [`Denied`](crate::ErrorKind::Denied);
    /// [`Unavailable`](crate::ErrorKind::Unavailable); [`Unknown`](crate::ErrorKind::Unknown).
    pub async fn define_lambda(&self, name: &str) -> Result<bool, Error> {
        Ok(self.one("select tuskline.define_lambda($1)", &[(&name, Type::TEXT)]).await?.get(0))
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

    /// Sets a gate on a lambda.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid): an unknown lambda (TK001), no reason, an end that has passed
    /// (TK017), another gate that overlaps (TK015). [`Denied`](crate::ErrorKind::Denied),
    /// [`Unavailable`](crate::ErrorKind::Unavailable), [`Unknown`](crate::ErrorKind::Unknown).
    pub async fn gate(&self, lambda: &str, gate: &Gate) -> Result<GateId, Error> {
        self.gated(GATE, lambda, &gate.0, gate.1).await.map(GateId)
    }

    /// Opens a gate; its tasks go on. `false`: no gate of that number is set.
    ///
    /// # Errors
    /// [`Denied`](crate::ErrorKind::Denied), [`Unavailable`](crate::ErrorKind::Unavailable),
    /// [`Unknown`](crate::ErrorKind::Unknown).
    pub async fn ungate(&self, gate: GateId) -> Result<bool, Error> {
        let sql = "select tuskline.ungate($1)";
        Ok(self.one(sql, &[(&gate.0, Type::INT8)]).await?.get(0))
    }

    /// Slows a lambda down for a time. [`Client::drop_limit`] ends it.
    ///
    /// # Errors
    /// As [`Client::gate`], with TK018.
    pub async fn throttle(&self, lambda: &str, throttle: &Throttle) -> Result<LimitId, Error> {
        self.gated(THROTTLE, lambda, &throttle.0, throttle.1).await.map(LimitId)
    }

    /// Sets a limit, or changes the one of its kind and scope.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid): an unknown lambda (TK001), a number out of range (TK018).
    /// [`Denied`](crate::ErrorKind::Denied), [`Unavailable`](crate::ErrorKind::Unavailable),
    /// [`Unknown`](crate::ErrorKind::Unknown).
    pub async fn set_limit(&self, lambda: &str, limit: &Limit) -> Result<LimitId, Error> {
        Ok(LimitId(self.send(LIMIT, lambda, &limit.0).await?.get(0)))
    }

    /// Runs the tasks of each ordering key one at a time, in order.
    ///
    /// # Errors
    /// As [`Client::set_limit`].
    pub async fn set_order(&self, lambda: &str, on_failure: OnFailure) -> Result<LimitId, Error> {
        let parameters: &Parameters<'_> =
            &[(&lambda, Type::TEXT), (&on_failure.label(), Type::TEXT)];
        let row = self.one("select tuskline.set_order($1, $2)", parameters).await?;
        Ok(LimitId(row.get(0)))
    }

    /// Removes a limit, an order or a throttle; the tasks that wait for it go on. `false`: there is none of
    /// that number.
    ///
    /// # Errors
    /// As [`Client::ungate`].
    pub async fn drop_limit(&self, limit: LimitId) -> Result<bool, Error> {
        let sql = "select tuskline.drop_limit($1)";
        Ok(self.one(sql, &[(&limit.0, Type::INT8)]).await?.get(0))
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
        let parameters: &Parameters<'_> =
            &[(&limit.0, Type::INT8), (&fairness_key, Type::TEXT), (&weight, Type::FLOAT8)];
        self.one("select tuskline.set_weight($1, $2, $3) is null", parameters).await?;
        Ok(())
    }

    /// Lets an ordering key go on whose task failed for good. `false`: the key is not blocked.
    ///
    /// # Errors
    /// As [`Client::ungate`].
    pub async fn unblock(&self, lambda: &str, ordering_key: &str) -> Result<bool, Error> {
        let parameters: &Parameters<'_> = &[(&lambda, Type::TEXT), (&ordering_key, Type::TEXT)];
        Ok(self.one("select tuskline.unblock($1, $2)", parameters).await?.get(0))
    }

    /// Gives the tasks of a lambda unique keys.
    ///
    /// # Errors
    /// As [`Client::set_limit`].
    pub async fn set_unique(&self, lambda: &str, unique: &Unique) -> Result<(), Error> {
        self.send(UNIQUE, lambda, &unique.0).await.map(drop)
    }

    /// Refuses tasks with a unique key from now on. `false`: the lambda has none.
    ///
    /// # Errors
    /// As [`Client::ungate`].
    pub async fn drop_unique(&self, lambda: &str) -> Result<bool, Error> {
        let sql = "select tuskline.drop_unique($1)";
        Ok(self.one(sql, &[(&lambda, Type::TEXT)]).await?.get(0))
    }

    /// Sets the circuit breaker of a lambda.
    ///
    /// # Errors
    /// As [`Client::set_limit`], with TK026.
    pub async fn set_breaker(&self, lambda: &str, breaker: &Breaker) -> Result<(), Error> {
        self.send(BREAKER, lambda, &breaker.0).await.map(drop)
    }

    /// Removes the circuit breaker of a lambda, and opens the gate that it has set. `false`: it has none.
    ///
    /// # Errors
    /// As [`Client::ungate`].
    pub async fn drop_breaker(&self, lambda: &str) -> Result<bool, Error> {
        let sql = "select tuskline.drop_breaker($1)";
        Ok(self.one(sql, &[(&lambda, Type::TEXT)]).await?.get(0))
    }

    /// Defines a schedule, or changes the one of that name. Every deployment may call it. A paused
    /// schedule stays paused.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid): a cron or a zone that no server can read, a setting out of
    /// range, an unknown lambda. [`Denied`](crate::ErrorKind::Denied),
    /// [`Unavailable`](crate::ErrorKind::Unavailable), [`Unknown`](crate::ErrorKind::Unknown).
    pub async fn define_periodic(&self, periodic: &Periodic) -> Result<Defined, Error> {
        let (missed, most) = periodic.missed.parts();
        let overlap = periodic.overlap.label();
        let payload = periodic.payload.as_ref().map(checked).transpose()?.map(JsonText);
        let parameters: &Parameters<'_> = &[
            (&periodic.name, Type::TEXT),
            (&periodic.lambda, Type::TEXT),
            (&periodic.cron, Type::TEXT),
            (&payload, Type::JSON),
            (&periodic.zone, Type::TEXT),
            (&periodic.collection, Type::TEXT),
            (&periodic.priority.as_str(), Type::TEXT),
            (&missed, Type::TEXT),
            (&i32::from(most), Type::INT4),
            (&periodic.grace.as_secs_f64(), Type::FLOAT8),
            (&overlap, Type::TEXT),
            (&periodic.starts_at, Type::TIMESTAMPTZ),
            (&periodic.ends_at, Type::TIMESTAMPTZ),
        ];
        Ok(match self.one(PERIODIC, parameters).await?.get(0) {
            "defined" => Defined::Defined,
            "changed" => Defined::Changed,
            _ => Defined::Unchanged,
        })
    }

    /// Pauses a schedule at once. Its ticks during the pause are not made up for. `false`: no such name.
    ///
    /// # Errors
    /// [`Denied`](crate::ErrorKind::Denied), [`Unavailable`](crate::ErrorKind::Unavailable),
    /// [`Unknown`](crate::ErrorKind::Unknown).
    pub async fn pause_periodic(&self, name: &str, reason: Option<&str>) -> Result<bool, Error> {
        self.about_periodic("select tuskline.pause_periodic($1, $2)", name, reason).await
    }

    /// Resumes a paused schedule with its next tick. `false`: no such name.
    ///
    /// # Errors
    /// As [`Client::pause_periodic`].
    pub async fn resume_periodic(&self, name: &str, reason: Option<&str>) -> Result<bool, Error> {
        self.about_periodic("select tuskline.resume_periodic($1, $2)", name, reason).await
    }

    /// Deletes a schedule. The tasks that it made stay. `false`: no such name.
    ///
    /// # Errors
    /// As [`Client::pause_periodic`].
    pub async fn drop_periodic(&self, name: &str, reason: Option<&str>) -> Result<bool, Error> {
        self.about_periodic("select tuskline.drop_periodic($1, $2)", name, reason).await
    }

    async fn about_periodic(
        &self,
        sql: &str,
        name: &str,
        reason: Option<&str>,
    ) -> Result<bool, Error> {
        Ok(self.one(sql, &[(&name, Type::TEXT), (&reason, Type::TEXT)]).await?.get(0))
    }

    async fn gated(
        &self,
        sql: &str,
        lambda: &str,
        part: &Value,
        unseen: bool,
    ) -> Result<i64, Error> {
        let part = part.to_string();
        let parameters: &Parameters<'_> =
            &[(&lambda, Type::TEXT), (&JsonText(&part), Type::JSON), (&unseen, Type::BOOL)];
        Ok(self.one(sql, parameters).await?.get(0))
    }

    async fn send(&self, sql: &str, lambda: &str, part: &Value) -> Result<Row, Error> {
        let part = part.to_string();
        self.one(sql, &[(&lambda, Type::TEXT), (&JsonText(&part), Type::JSON)]).await
    }
}
