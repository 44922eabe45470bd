//! The proxy between real clients and a real PostgreSQL.

mod cuts;
mod ends;
mod framing;
mod network;
mod stage;
