//! Tuskline's server: store consumer, periodic tasks, janitor, migrations, command line, embedded PostgreSQL.

pub mod admin;
pub mod archive;
pub mod bench;
pub mod config;
pub mod demo;
pub mod embedded;
pub mod health;
pub mod janitor;
pub mod migrate;
pub mod periodic;
pub mod recovery;
pub mod serve;
pub mod session;
pub mod store;
pub mod store_consumer;
pub mod testing;
