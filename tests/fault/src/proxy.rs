//! The proxy: the network between Tuskline's processes and PostgreSQL, under the control of a test.
//!
//! Every process gets a [`Door`] of its own, a listener on loopback that leads to the one
//! [`Upstream`]. A door can be slow, deaf, half open, shut, or reset. It can cut a connection at a
//! named statement, before or after the server has executed it, which gives the outcome "unknown".
//!
//! Promises: bytes arrive in order and complete, or the connection ends; a stream never has a hole.
//! A change of [`Mode`] holds for present and new connections at once. When the last handle of a
//! door or the proxy is dropped, its connections are reset, and its listener and its tasks end. The
//! proxy holds back a bounded number of bytes per connection and direction; beyond that it stops
//! reading.
//!
//! Limits: the proxy stands above the kernel's TCP, so even a black hole acknowledges a peer's
//! keepalives and sent bytes. Only a process that asks for an answer can notice the silence;
//! `tcp_user_timeout` and keepalives do not.
//!
//! Must never: decide by a timer of its own that a connection has ended.

mod connection;
mod counts;
mod cut;
mod dialogue;
mod door;
mod flow;
mod frame;
mod mode;
#[cfg(test)]
mod tests;
mod upstream;

use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio_util::sync::{CancellationToken, DropGuard};

pub use counts::Counts;
pub use cut::{Cut, CutWhen};
pub use door::Door;
pub use mode::{Mode, Way};
pub use upstream::Upstream;

use door::Room;
use upstream::Route;

/// The proxy; dropping it ends every door.
pub struct Proxy {
    route: Arc<Route>,
    rooms: Mutex<Vec<Weak<Room>>>,
    end: CancellationToken,
    _ends_with_us: DropGuard,
}

impl Proxy {
    /// A proxy without doors, to this server.
    pub fn new(upstream: Upstream) -> Self {
        let end = CancellationToken::new();
        Self {
            route: Arc::new(Route::to(upstream)),
            rooms: Mutex::default(),
            _ends_with_us: end.clone().drop_guard(),
            end,
        }
    }

    /// Opens a listener on a free port of 127.0.0.1. `name` is for the log.
    pub async fn open_door(&self, name: &str) -> io::Result<Door> {
        let room = Room::new(name, Arc::clone(&self.route), self.end.child_token());
        let door = Door::open(Arc::clone(&room)).await?;
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        rooms.retain(|room| room.strong_count() > 0);
        rooms.push(Arc::downgrade(&room));
        Ok(door)
    }

    /// Sends new connections there, as an address that follows a failover does. Open connections
    /// stay until they end or are reset.
    pub fn redirect(&self, upstream: Upstream) {
        self.route.lead_to(upstream);
    }

    /// Resets every connection of every door.
    pub fn reset_all(&self) {
        let rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        rooms.iter().filter_map(Weak::upgrade).for_each(|room| room.reset());
    }
}
