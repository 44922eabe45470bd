//! A door: a listener, the connections that came in by it, and the faults set for them.
//!
//! Promises: the listener and the connections end with the last handle, or with the proxy. Tasks of
//! a door hold its room, never a handle.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::connection;
use super::counts::{Counts, Tally, one_more};
use super::cut::{Armed, Cut, CutWhen};
use super::flow::Reset;
use super::mode::Mode;
use super::upstream::{Route, reset};

/// After a failed accept, which without descriptors fails again at once.
const ACCEPT_AGAIN: Duration = Duration::from_millis(20);

/// A handle of a door; dropping the last one closes it and resets its connections.
#[derive(Clone)]
pub struct Door {
    port: u16,
    room: Arc<Room>,
    _closes_with_us: Arc<DropGuard>,
}

/// The state that the connections of a door share.
pub struct Room {
    pub name: String,
    pub route: Arc<Route>,
    pub armed: Armed,
    pub tally: Tally,
    mode: watch::Sender<Mode>,
    resets: watch::Sender<u64>,
    end: CancellationToken,
}

/// The orders that end a connection.
pub struct Orders {
    resets: watch::Receiver<u64>,
    end: CancellationToken,
}

impl Door {
    /// Begins to listen.
    pub(super) async fn open(room: Arc<Room>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let guard = Arc::new(room.end.clone().drop_guard());
        tokio::spawn(let_in(listener, Arc::clone(&room)));
        Ok(Self { port, room, _closes_with_us: guard })
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Changes the mode, for present and new connections at once.
    pub fn set(&self, mode: Mode) {
        tracing::debug!(door = self.room.name, ?mode, "set");
        self.room.mode.send_replace(mode);
    }

    /// Resets every connection that has been let in, whatever the mode.
    pub fn reset(&self) {
        self.room.reset();
    }

    /// Cuts the next `count` connections that carry out such a statement. Cuts that were armed
    /// before go first.
    pub fn cut_next(&self, what: Cut, count: u32) {
        self.room.armed.arm(what, count);
    }

    /// Forgets the cuts that have not met their statement.
    pub fn disarm(&self) {
        self.room.armed.disarm();
    }

    /// The door's counts.
    pub fn counts(&self) -> Counts {
        self.room.tally.counts(self.room.armed.left())
    }
}

impl Room {
    pub fn new(name: &str, route: Arc<Route>, end: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            route,
            armed: Armed::default(),
            tally: Tally::default(),
            mode: watch::Sender::new(Mode::Pass),
            resets: watch::Sender::new(0),
            end,
        })
    }

    pub fn mode(&self) -> watch::Receiver<Mode> {
        self.mode.subscribe()
    }

    /// The orders given from now on.
    pub fn orders(&self) -> Orders {
        Orders { resets: self.resets.subscribe(), end: self.end.clone() }
    }

    pub fn reset(&self) {
        self.resets.send_modify(|resets| *resets += 1);
    }

    pub fn count_reset(&self, end: &Reset) {
        one_more(&self.tally.resets);
        match end {
            Reset::Cut(CutWhen::BeforeServer) => one_more(&self.tally.cuts_before),
            Reset::Cut(CutWhen::AfterServer) => one_more(&self.tally.cuts_after),
            Reset::Cut(CutWhen::Silence) | Reset::ByOrder | Reset::ByPeer => {}
        }
    }

    fn welcome(self: &Arc<Self>, client: TcpStream) {
        if *self.mode.borrow() == Mode::Refuse {
            one_more(&self.tally.refused);
            return reset(client);
        }
        one_more(&self.tally.opened);
        tokio::spawn(connection::carry(client, self.orders(), Arc::clone(self)));
    }
}

impl Orders {
    /// Waits for one.
    pub async fn given(&mut self) {
        tokio::select! {
            () = self.end.cancelled() => {}
            _ = self.resets.changed() => {}
        }
    }
}

async fn let_in(listener: TcpListener, room: Arc<Room>) {
    loop {
        let client = tokio::select! {
            biased;
            () = room.end.cancelled() => return,
            client = listener.accept() => client,
        };
        match client {
            Ok((client, _)) => room.welcome(client),
            Err(error) => {
                tracing::warn!(door = room.name, %error, "accept");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}
