//! Calls of owners and operators on one lambda, within the caller's transaction: limits, order, unique keys,
//! breakers and gates. A deploy brings the same along with a definition.

use serde_json::Value;
use tokio_postgres::types::Type;

use crate::client::definition::{
    Breaker, DefinedLambda, Definitions, Gate, Limit, OnFailure, Throttle, Unique,
};
use crate::client::periodic::{Defined, Periodic};
use crate::client::session::Row;
use crate::client::transaction::TransactionClient;
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

impl TransactionClient<'_> {
    /// Defines lambdas when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::define`](crate::Client::define).
    pub async fn define(&mut self, lambdas: &Definitions) -> Result<Vec<DefinedLambda>, Error> {
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

    /// Sets a gate when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::gate`](crate::Client::gate).
    pub async fn gate(&mut self, lambda: &str, gate: &Gate) -> Result<GateId, Error> {
        self.gated(GATE, lambda, &gate.0, gate.1).await.map(GateId)
    }

    /// Opens a gate when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::ungate`](crate::Client::ungate).
    pub async fn ungate(&mut self, gate: GateId) -> Result<bool, Error> {
        let sql = "select tuskline.ungate($1)";
        Ok(self.one(sql, &[(&gate.0, Type::INT8)]).await?.get(0))
    }

    /// Throttles a lambda when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::throttle`](crate::Client::throttle).
    pub async fn throttle(&mut self, lambda: &str, throttle: &Throttle) -> Result<LimitId, Error> {
        self.gated(THROTTLE, lambda, &throttle.0, throttle.1).await.map(LimitId)
    }

    /// Sets a limit when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::set_limit`](crate::Client::set_limit).
    pub async fn set_limit(&mut self, lambda: &str, limit: &Limit) -> Result<LimitId, Error> {
        Ok(LimitId(self.send(LIMIT, lambda, &limit.0).await?.get(0)))
    }

    /// Sets the order of a lambda when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::set_order`](crate::Client::set_order).
    pub async fn set_order(
        &mut self,
        lambda: &str,
        on_failure: OnFailure,
    ) -> Result<LimitId, Error> {
        let parameters: &Parameters<'_> =
            &[(&lambda, Type::TEXT), (&on_failure.label(), Type::TEXT)];
        let row = self.one("select tuskline.set_order($1, $2)", parameters).await?;
        Ok(LimitId(row.get(0)))
    }

    /// Removes a limit, an order or a throttle when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::drop_limit`](crate::Client::drop_limit).
    pub async fn drop_limit(&mut self, limit: LimitId) -> Result<bool, Error> {
        let sql = "select tuskline.drop_limit($1)";
        Ok(self.one(sql, &[(&limit.0, Type::INT8)]).await?.get(0))
    }

    /// Sets the weight of a tenant when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::set_weight`](crate::Client::set_weight).
    pub async fn set_weight(
        &mut self,
        limit: LimitId,
        fairness_key: &str,
        weight: f64,
    ) -> Result<(), Error> {
        let parameters: &Parameters<'_> =
            &[(&limit.0, Type::INT8), (&fairness_key, Type::TEXT), (&weight, Type::FLOAT8)];
        self.one("select tuskline.set_weight($1, $2, $3) is null", parameters).await?;
        Ok(())
    }

    /// Unblocks an ordering key when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::unblock`](crate::Client::unblock).
    pub async fn unblock(&mut self, lambda: &str, ordering_key: &str) -> Result<bool, Error> {
        let parameters: &Parameters<'_> = &[(&lambda, Type::TEXT), (&ordering_key, Type::TEXT)];
        Ok(self.one("select tuskline.unblock($1, $2)", parameters).await?.get(0))
    }

    /// Gives the tasks of a lambda unique keys when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::set_unique`](crate::Client::set_unique).
    pub async fn set_unique(&mut self, lambda: &str, unique: &Unique) -> Result<(), Error> {
        self.send(UNIQUE, lambda, &unique.0).await.map(drop)
    }

    /// Takes them away when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::drop_unique`](crate::Client::drop_unique).
    pub async fn drop_unique(&mut self, lambda: &str) -> Result<bool, Error> {
        let sql = "select tuskline.drop_unique($1)";
        Ok(self.one(sql, &[(&lambda, Type::TEXT)]).await?.get(0))
    }

    /// Sets a circuit breaker when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::set_breaker`](crate::Client::set_breaker).
    pub async fn set_breaker(&mut self, lambda: &str, breaker: &Breaker) -> Result<(), Error> {
        self.send(BREAKER, lambda, &breaker.0).await.map(drop)
    }

    /// Removes it when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::drop_breaker`](crate::Client::drop_breaker).
    pub async fn drop_breaker(&mut self, lambda: &str) -> Result<bool, Error> {
        let sql = "select tuskline.drop_breaker($1)";
        Ok(self.one(sql, &[(&lambda, Type::TEXT)]).await?.get(0))
    }

    /// Defines a schedule when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::define_periodic`](crate::Client::define_periodic).
    pub async fn define_periodic(&mut self, periodic: &Periodic) -> Result<Defined, Error> {
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

    /// Pauses a schedule when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::pause_periodic`](crate::Client::pause_periodic).
    pub async fn pause_periodic(
        &mut self,
        name: &str,
        reason: Option<&str>,
    ) -> Result<bool, Error> {
        self.about_periodic("select tuskline.pause_periodic($1, $2)", name, reason).await
    }

    /// Resumes a schedule when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::resume_periodic`](crate::Client::resume_periodic).
    pub async fn resume_periodic(
        &mut self,
        name: &str,
        reason: Option<&str>,
    ) -> Result<bool, Error> {
        self.about_periodic("select tuskline.resume_periodic($1, $2)", name, reason).await
    }

    /// Deletes a schedule when your transaction commits.
    ///
    /// # Errors
    /// As [`Client::drop_periodic`](crate::Client::drop_periodic).
    pub async fn drop_periodic(&mut self, name: &str, reason: Option<&str>) -> Result<bool, Error> {
        self.about_periodic("select tuskline.drop_periodic($1, $2)", name, reason).await
    }

    async fn about_periodic(
        &mut self,
        sql: &str,
        name: &str,
        reason: Option<&str>,
    ) -> Result<bool, Error> {
        Ok(self.one(sql, &[(&name, Type::TEXT), (&reason, Type::TEXT)]).await?.get(0))
    }

    async fn gated(
        &mut self,
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

    async fn send(&mut self, sql: &str, lambda: &str, part: &Value) -> Result<Row, Error> {
        let part = part.to_string();
        self.one(sql, &[(&lambda, Type::TEXT), (&JsonText(&part), Type::JSON)]).await
    }
}
