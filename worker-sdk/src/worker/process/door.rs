//! A connection to a host controller: one message under way at a time.
//!
//! Promises: where the connection breaks, the same message is sent again, for a second; the controller takes it once.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep};

use super::wire::Refusal;
use crate::error::{Error, Source};

/// A controller that does not answer for so long is gone.
const REPEAT: Duration = Duration::from_secs(1);
const REST: Duration = Duration::from_millis(10);

/// See the module.
pub(super) struct Door {
    socket: PathBuf,
    connection: Option<SendRequest<Full<Bytes>>>,
}

/// An answer that is no success.
pub(super) struct Refused {
    pub status: u16,
    pub refusal: Refusal,
}

impl Door {
    pub(super) fn new(socket: PathBuf) -> Self {
        Self { socket, connection: None }
    }

    /// Sends a message until it is answered.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable): the controller is gone. Inside: it refuses the message.
    pub(super) async fn call(
        &mut self,
        message: &str,
        body: &impl Serialize,
    ) -> Result<Result<Bytes, Refused>, Error> {
        let body = Bytes::from(serde_json::to_vec(body).map_err(Error::unavailable)?);
        let until = Instant::now() + REPEAT;
        loop {
            match self.send(message, body.clone()).await {
                // It arrived too slowly, because this process stood still.
                Ok((StatusCode::REQUEST_TIMEOUT, _)) => {}
                Ok((status, answer)) if status.is_success() => return Ok(Ok(answer)),
                Ok((status, answer)) => {
                    let refusal = serde_json::from_slice(&answer).map_err(Error::unavailable)?;
                    return Ok(Err(Refused { status: status.as_u16(), refusal }));
                }
                Err(error) if Instant::now() >= until => {
                    let socket = self.socket.display();
                    let text = format!("the controller at {socket} does not answer: {error}");
                    return Err(Error::unavailable(text).because(error));
                }
                Err(_) => sleep(REST).await,
            }
        }
    }

    /// On the connection that is there, or on a new one. Dropped half-way, it leaves none.
    async fn send(&mut self, message: &str, body: Bytes) -> Result<(StatusCode, Bytes), Source> {
        let mut connection = match self.connection.take() {
            Some(connection) if !connection.is_closed() => connection,
            _ => {
                let stream = UnixStream::connect(&self.socket).await?;
                let (sender, connection) = handshake(TokioIo::new(stream)).await?;
                // It ends with its sender.
                tokio::spawn(connection);
                sender
            }
        };
        connection.ready().await?;
        let request = Request::post(format!("/tuskline.v1.Controller/{message}"))
            .header(HOST, "localhost")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))?;
        let answer = connection.send_request(request).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        self.connection = Some(connection);
        Ok((status, body))
    }
}
