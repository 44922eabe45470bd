//! The layer between Tuskline's processes and their tables, under the control of a test: the
//! network ([`proxy`]) and the servers ([`server`]).

pub mod proxy;
pub mod server;
