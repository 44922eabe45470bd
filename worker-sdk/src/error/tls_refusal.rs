//! The refusal of a connection with TLS.

use std::error::Error as _;

use tokio_postgres::Error;

/// Why a connection with TLS was refused, here or by the server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct TlsRefusal {
    text: String,
    hint: Option<String>,
}

impl TlsRefusal {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), hint: None }
    }

    pub(crate) fn hinting(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// The setting that mends it, if there is one.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The refusal that an error of tokio-postgres carries.
    pub fn of(error: &Error) -> Option<&Self> {
        let inner = error.source()?.downcast_ref::<std::io::Error>()?.get_ref()?;
        inner.downcast_ref()
    }
}
