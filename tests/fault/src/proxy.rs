//! The proxy: the network between Tuskline's processes and PostgreSQL, in our hands.
//!
//! What it is: every process gets a [`Door`] of its own, a listener on loopback; what comes in
//! there goes to the one [`Upstream`]. A door can be slow, deaf, half open, shut, or reset, and it
//! can be told to cut a connection at a statement it names, before or after the server has done
//! it: the maker of the outcome "unknown".
//!
//! What it promises: bytes arrive in order and complete, or the connection ends; there is never a
//! hole in a stream. A change of [`Mode`] holds for present and new connections at once. When the
//! last handle of a door or the proxy is dropped, its connections are reset, and its listener and
//! its tasks end. What it holds back is bounded per connection and direction; beyond that it
//! stops to read.
//!
//! What it cannot do: it stands above the kernel's TCP, so that a peer's keepalives and sent bytes
//! are acknowledged even by a black hole. Only who asks for an answer can notice the silence:
//! `tcp_user_timeout` and keepalives do not.
//!
//! What it must never do: decide by a timer of its own that a connection has ended.

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

    /// Sends new connections there, as an address does that follows a failover; those that are
    /// open stay where they are until they end or are reset.
    pub fn redirect(&self, upstream: Upstream) {
        self.route.lead_to(upstream);
    }

    /// Resets every connection of every door.
    pub fn reset_all(&self) {
        let rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        rooms.iter().filter_map(Weak::upgrade).for_each(|room| room.reset());
    }
}
