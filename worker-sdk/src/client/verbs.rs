//! The verbs of owners: their names in the database, and the types of their arguments.
//!
//! Promises: an argument that the caller leaves out is not in the statement, so the verb's own default applies.
//! Defaults stand in SQL only. Must never: put a value into the text of a statement.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use tokio_postgres::types::{FromSql, ToSql, Type};

use crate::client::Client;
use crate::client::sender::Sender;
use crate::client::session::Row;
use crate::client::session::texts::timestamp;
use crate::db::interval;
use crate::db::json::JsonText;
use crate::error::{Code, Error};

/// A verb. It is called with an object: the field `x` is the argument `p_x`, and a null is left out.
#[derive(Debug, Clone, Copy)]
pub struct Verb {
    /// Its name in the database.
    pub name: &'static str,
    /// Arguments with their types. One that is not listed has the type of its JSON: text, boolean or integer.
    pub types: &'static str,
}

macro_rules! verbs {
    ($($constant:ident $name:literal $types:literal;)*) => {
        $(#[allow(missing_docs, reason = "described in the database")]
        pub const $constant: Verb = Verb { name: $name, types: $types };)*

        /// All of them.
        pub const ALL: &[Verb] = &[$($constant),*];
    };
}

verbs! {
    ALTER_LAMBDA "alter_lambda" "attempt_timeout interval, retry_base interval, retry_cap interval, \
        retention interval, dead_retention interval, cancelled_retention interval, \
        dropped_retention interval, fatal_retention interval";
    CANCEL "cancel" "task bigint";
    CANCEL_CHAIN "cancel_chain" "task bigint";
    DEFINE "define" "definitions json";
    DEFINE_LAMBDA "define_lambda" "attempt_timeout interval, retry_base interval, retry_cap interval, \
        retention interval, dead_retention interval, cancelled_retention interval, \
        dropped_retention interval, fatal_retention interval";
    DEFINE_PERIODIC "define_periodic" "grace interval, starts_at timestamptz, ends_at timestamptz";
    DROP_BREAKER "drop_breaker" "";
    DROP_LIMIT "drop_limit" "limit_id bigint";
    DROP_PERIODIC "drop_periodic" "";
    DROP_UNIQUE "drop_unique" "";
    GATE "gate" "until timestamptz, for interval";
    GRANT_LAMBDA "grant_lambda" "";
    PAUSE_PERIODIC "pause_periodic" "";
    PREVIEW_OPERATION "preview_operation" "ids bigint[], limit bigint, created_from timestamptz, \
        created_to timestamptz, ended_to timestamptz";
    RESUME_PERIODIC "resume_periodic" "";
    RETRY "retry" "task bigint";
    RETRY_CHAIN "retry_chain" "task bigint";
    REVOKE_LAMBDA "revoke_lambda" "";
    RUN_PERIODIC "run_periodic" "";
    SCHEDULE "schedule" "scheduled_at timestamptz, delay interval";
    SET_BREAKER "set_breaker" "window interval, share double precision, probe_after interval";
    SET_LIMIT "set_limit" "per_second double precision";
    SET_ORDER "set_order" "";
    SET_UNIQUE "set_unique" "period interval";
    SET_WEIGHT "set_weight" "limit_id bigint, weight double precision";
    START_OPERATION "start_operation" "ids bigint[], limit bigint, created_from timestamptz, \
        created_to timestamptz, ended_to timestamptz, per_second double precision";
    STOP_OPERATION "stop_operation" "operation bigint";
    THROTTLE "throttle" "per_second double precision, until timestamptz, for interval";
    UNBLOCK "unblock" "";
    UNGATE "ungate" "gate bigint";
}

impl Verb {
    /// Columns of the only row of its answer, which is `v`. For the command line: errors are those of the server.
    ///
    /// # Errors
    /// The connection's or the server's.
    pub async fn row(
        &self,
        client: &tokio_postgres::Client,
        columns: &str,
        arguments: &Value,
    ) -> Result<tokio_postgres::Row, tokio_postgres::Error> {
        let text = arguments.to_string();
        let parameter = (&JsonText(&text) as &(dyn ToSql + Sync), Type::JSON);
        client.query_typed_one(&self.statement(columns, arguments), &[parameter]).await
    }

    /// Its only value.
    ///
    /// # Errors
    /// As [`Verb::row`].
    pub async fn call<T: for<'r> FromSql<'r>>(
        &self,
        client: &tokio_postgres::Client,
        arguments: &Value,
    ) -> Result<T, tokio_postgres::Error> {
        self.row(client, "v", arguments).await?.try_get(0)
    }

    /// Its statement and the text of its parameter.
    fn written(&self, columns: &str, arguments: impl Serialize) -> Result<(String, String), Error> {
        let arguments = serde_json::to_value(arguments);
        let arguments = arguments.map_err(|error| Error::refused(Code::InvalidSetting, error))?;
        Ok((self.statement(columns, &arguments), arguments.to_string()))
    }

    /// Its statement. The arguments are the object `$1`, their names are those of fields in Rust.
    fn statement(&self, columns: &str, arguments: &Value) -> String {
        let fields = arguments.as_object().into_iter().flatten();
        let given = fields.filter(|(_, value)| !value.is_null());
        let mut given = given.map(|(field, value)| self.argument(field, value)).collect::<Vec<_>>();
        // It must be the last one.
        given.sort_by_key(|argument| argument.starts_with("variadic "));
        format!("select {columns} from tuskline.{}({}) as v", self.name, given.join(", "))
    }

    fn argument(&self, field: &str, value: &Value) -> String {
        let kind = match value {
            _ if field == AGE => {
                return format!("p_ended_to => tuskline.clock() - ($1 ->> '{AGE}')::interval");
            }
            Value::Array(_) if field == PRIVILEGES => {
                let array = format!("array(select json_array_elements_text($1 -> '{field}'))");
                return format!("variadic p_{field} => {array}");
            }
            Value::Array(_) if self.kind_of(field) != Some("json") => {
                let kind = self.kind_of(field).unwrap_or("text[]");
                let array = format!("array(select json_array_elements_text($1 -> '{field}'))");
                return format!("p_{field} => {array}::{kind}");
            }
            Value::Number(_) => "integer",
            Value::Bool(_) => "boolean",
            _ => "text",
        };
        format!("p_{field} => ($1 ->> '{field}')::{}", self.kind_of(field).unwrap_or(kind))
    }

    fn kind_of(&self, field: &str) -> Option<&'static str> {
        let of_field = |typed: &'static str| typed.strip_prefix(field)?.strip_prefix(' ');
        self.types.split(", ").find_map(of_field)
    }
}

/// Columns of a row that has all rows of an answer, as JSON.
pub const ALL_ROWS: &str = "coalesce(json_agg(v), '[]')::text";

/// The field for an argument `p_ended_to` that is so long ago.
const AGE: &str = "older_than";

/// The field for an argument that PostgreSQL takes as a list.
const PRIVILEGES: &str = "privileges";

impl<S: Sender> Client<S> {
    /// The only row of a verb's answer.
    pub(super) async fn call(
        &self,
        verb: Verb,
        columns: &str,
        arguments: impl Serialize,
    ) -> Result<Row, Error> {
        let (sql, text) = verb.written(columns, arguments)?;
        self.one(&sql, &[(&JsonText(&text), Type::JSON)]).await
    }

    /// The rows of a verb that changes nothing.
    pub(super) async fn rows_of(
        &self,
        verb: Verb,
        columns: &str,
        arguments: impl Serialize,
    ) -> Result<Vec<Row>, Error> {
        let (sql, text) = verb.written(columns, arguments)?;
        self.rows(&sql, &[(&JsonText(&text), Type::JSON)]).await
    }
}

/// A part as JSON: the fields that are set.
pub(super) fn part(part: impl Serialize) -> Value {
    let mut fields = json!(part);
    if let Value::Object(fields) = &mut fields {
        fields.retain(|_, value| !value.is_null());
    }
    fields
}

/// Writes a number that JSON lacks as text: the database refuses it by its name.
///
/// # Errors
/// The errors of the serializer.
pub fn float<S: Serializer>(value: &Option<f64>, to: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) if !value.is_finite() => to.serialize_str(&value.to_string()),
        value => value.serialize(to),
    }
}

/// Writes a duration as PostgreSQL reads it.
pub(super) fn span<S: Serializer>(value: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    value.map(interval).serialize(to)
}

/// Writes an instant as PostgreSQL reads it, in any year.
pub(super) fn instant<S: Serializer>(
    value: &Option<DateTime<Utc>>,
    to: S,
) -> Result<S::Ok, S::Error> {
    value.map(timestamp).serialize(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_given_is_not_in_the_statement() {
        let sql = |verb: Verb, arguments| verb.statement("v", &arguments);
        assert_eq!(
            sql(SET_BREAKER, json!({"lambda": "a", "failures": 9, "window": "5 s", "share": null})),
            "select v from tuskline.set_breaker(p_failures => ($1 ->> 'failures')::integer, \
             p_lambda => ($1 ->> 'lambda')::text, p_window => ($1 ->> 'window')::interval) as v"
        );
        assert_eq!(
            sql(PREVIEW_OPERATION, json!({"ids": [7], "older_than": "1 s", "canary": true})),
            "select v from tuskline.preview_operation(p_canary => ($1 ->> 'canary')::boolean, \
             p_ids => array(select json_array_elements_text($1 -> 'ids'))::bigint[], \
             p_ended_to => tuskline.clock() - ($1 ->> 'older_than')::interval) as v"
        );
        assert_eq!(
            sql(GRANT_LAMBDA, json!({"lambda": "a", "privileges": ["work"], "role": "b"})),
            "select v from tuskline.grant_lambda(p_lambda => ($1 ->> 'lambda')::text, \
             p_role => ($1 ->> 'role')::text, \
             variadic p_privileges => array(select json_array_elements_text($1 -> 'privileges'))) as v"
        );
    }
}
