//! Everything that speaks to the database: connections, and the verbs that workers call. It knows neither
//! the client nor the worker.

pub(crate) mod address;
pub(crate) mod backoff;
pub(crate) mod connect;
#[cfg(mutants)]
pub(crate) mod fault_injection;
pub(crate) mod hsc;
pub(crate) mod json;
pub(crate) mod low_water_mark;
pub(crate) mod multi_host;
pub(crate) mod tls;
pub(crate) mod uncertain_commit;
pub(crate) mod version;

use tokio_postgres::types::{ToSql, Type};

/// Parameters of a statement, with their types.
pub(crate) type Parameters<'a> = [(&'a (dyn ToSql + Sync), Type)];
