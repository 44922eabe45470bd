//! The address of the server.
//!
//! Promises: a connection is made to the address that is current when it begins.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upstream {
    /// The file of a unix socket, such as `/run/postgresql/.s.PGSQL.5432`.
    Unix(PathBuf),
    /// An address of TCP.
    Tcp(SocketAddr),
}

/// The address that is current.
pub struct Route(Mutex<Upstream>);

/// A connection to a server.
pub enum Line {
    /// By a unix socket.
    Unix(UnixStream),
    /// By TCP.
    Tcp(TcpStream),
}

/// The half of a line we read from.
pub type ReadHalf<'a> = Box<dyn AsyncRead + Send + Unpin + 'a>;
/// The half of a line we write to.
pub type WriteHalf<'a> = Box<dyn AsyncWrite + Send + Unpin + 'a>;

impl Route {
    pub fn to(upstream: Upstream) -> Self {
        Self(Mutex::new(upstream))
    }

    pub fn lead_to(&self, upstream: Upstream) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = upstream;
    }

    pub async fn connect(&self) -> io::Result<Line> {
        let upstream = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match upstream {
            Upstream::Unix(path) => UnixStream::connect(path).await.map(Line::Unix),
            Upstream::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Ok(Line::Tcp(stream))
            }
        }
    }
}

impl Line {
    /// The two halves; dropping them closes nothing.
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        match self {
            Line::Unix(stream) => {
                let (read, write) = stream.split();
                (Box::new(read), Box::new(write))
            }
            Line::Tcp(stream) => {
                let (read, write) = stream.split();
                (Box::new(read), Box::new(write))
            }
        }
    }

    /// Ends the line with a RST; a unix socket knows none and is closed.
    pub fn reset(self) {
        if let Line::Tcp(stream) = self {
            reset(stream);
        }
    }
}

/// Closes with a RST: with a linger of zero the kernel drops what is unsent and sends no FIN.
pub fn reset(stream: TcpStream) {
    // A socket whose peer is gone may refuse the option; it has nothing left to reset.
    let _ = stream.set_zero_linger();
    drop(stream);
}
