//! The refusal of a connection with TLS.

use std::error::Error as _;
use std::fmt;

use tokio_postgres::Error;

/// Why a connection with TLS was refused, here or by the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsRefusal {
    text: String,
    hint: Option<String>,
}

impl TlsRefusal {
    pub(crate) fn new(text: String, hint: Option<String>) -> Self {
        Self { text, hint }
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

impl fmt::Display for TlsRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for TlsRefusal {}
