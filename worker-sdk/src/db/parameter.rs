//! Parameters of statements, and what a log shows of them.
//!
//! Must never: show a value. A driver logs the parameters of its statements (tokio-postgres at level debug), and
//! some of ours are payloads, outputs, error texts or keys.

use std::fmt;

use bytes::BytesMut;
use tokio_postgres::types::{Format, IsNull, ToSql, Type};

type BoxError = Box<dyn std::error::Error + Sync + Send>;

/// Parameters of a statement, with their types.
pub(crate) type Parameters<'a> = [(&'a (dyn ToSql + Sync), Type)];

/// A parameter whose `Debug` shows its type and its size only.
pub(crate) struct Hidden<'a> {
    value: &'a (dyn ToSql + Sync),
    kind: &'a Type,
}

/// The same parameters, hidden.
pub(crate) fn hidden<'a>(parameters: &'a Parameters<'_>) -> Vec<Hidden<'a>> {
    parameters.iter().map(|(value, kind)| Hidden { value: *value, kind }).collect()
}

impl Hidden<'_> {
    /// As a statement takes it.
    pub(crate) fn typed(&self) -> (&(dyn ToSql + Sync), Type) {
        (self, self.kind.clone())
    }
}

impl fmt::Debug for Hidden<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = BytesMut::new();
        match self.value.to_sql_checked(self.kind, &mut bytes) {
            Ok(IsNull::Yes) => f.write_str("null"),
            Ok(IsNull::No) => write!(f, "{} of {} bytes", self.kind, bytes.len()),
            Err(_) => write!(f, "{}", self.kind),
        }
    }
}

impl ToSql for Hidden<'_> {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        self.value.to_sql_checked(kind, out)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn to_sql_checked(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        self.value.to_sql_checked(kind, out)
    }

    fn encode_format(&self, kind: &Type) -> Format {
        self.value.encode_format(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_shows_the_type_and_the_size_of_a_parameter() {
        let parameters: &Parameters<'_> = &[
            (&"secret", Type::TEXT),
            (&vec!["secret"], Type::TEXT_ARRAY),
            (&None::<&str>, Type::TEXT),
            (&7_i64, Type::TEXT),
        ];
        let shown = format!("{:?}", hidden(parameters));
        assert_eq!(shown, "[text of 6 bytes, _text of 30 bytes, null, text]");
    }
}
