//! Tuskline's server: store consumer, janitor, migrations, command line, embedded PostgreSQL.

pub mod embedded;
pub mod migrate;
pub mod session;
