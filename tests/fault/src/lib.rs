//! What stands between Tuskline's processes and their tables, in the hands of a test: the network
//! ([`proxy`]) and the servers ([`server`]).

pub mod proxy;
pub mod server;
