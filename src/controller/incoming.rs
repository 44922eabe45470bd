//! A message as it arrives at the socket: its sender, and its body within bounds.

use std::time::Duration;

use axum::body::{Bytes, to_bytes};
use axum::extract::Request;

use super::wire::Refusal;

/// Largest message: many results with outputs, or one checkpoint.
pub const LARGEST: usize = 8 << 20;
/// How long a message may take to arrive.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// The process at the other end of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub u32);

/// The whole body of a message.
///
/// # Errors
/// It is too large, or takes too long.
pub async fn body(request: Request) -> Result<Bytes, Refusal> {
    let too_large =
        || Refusal::new(400, "too_large", format!("a message has at most {LARGEST} bytes"));
    let read = tokio::time::timeout(DEADLINE, to_bytes(request.into_body(), LARGEST)).await;
    match read {
        Ok(read) => read.map_err(|_| too_large()),
        Err(_) => Err(Refusal::new(408, "invalid_message", "the message did not arrive in time")),
    }
}
