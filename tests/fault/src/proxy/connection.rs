//! A connection: a client, a server, and the bytes that pass between them.
//!
//! Promises: it ends as its sides end it, with FIN or RST, or by a reset of the proxy. An end is
//! passed on after the bytes before it.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::counts::{WhileOpen, one_more};
use super::cut::CutWhen;
use super::dialogue::{Dialogue, Passage};
use super::door::{Orders, Room};
use super::flow::{Flow, Load, Reset};
use super::mode::{Gate, Way};
use super::upstream::{Line, reset};

/// The most that is read at once.
const READ_BYTES: usize = 16 * 1024;

/// Carries one connection to its end.
pub async fn carry(mut client: TcpStream, mut orders: Orders, room: Arc<Room>) {
    let _open = WhileOpen::new(&room.tally.open);
    // Without it a small answer would wait for an acknowledgement; the network adds no such delay.
    let _ = client.set_nodelay(true);
    let mut line = None;
    let ended = tokio::select! {
        biased;
        () = orders.given() => Err(Reset::ByOrder),
        ended = converse(&mut client, &mut line, &room) => ended,
    };
    if let Err(end) = ended {
        room.count_reset(&end);
        line.into_iter().for_each(Line::reset);
        reset(client);
    }
}

async fn converse(
    client: &mut TcpStream,
    line: &mut Option<Line>,
    room: &Room,
) -> Result<(), Reset> {
    let (from_server, into_server) = line.insert(reach_server(room).await?).split();
    let (from_client, into_client) = client.split();
    let tally = &room.tally;
    let (up, up_end) = Flow::new(Way::ToServer, room.mode(), &tally.bytes_to_server);
    let (down, down_end) = Flow::new(Way::ToClient, room.mode(), &tally.bytes_to_client);
    let ears = Ears { dialogue: Mutex::new(Dialogue::new()), room, up: &up, down: &down };
    tokio::try_join!(
        ears.listen(from_client, Way::ToServer),
        ears.listen(from_server, Way::ToClient),
        up.deliver(up_end, into_server),
        down.deliver(down_end, into_client),
    )?;
    Ok(())
}

/// A black hole towards the server swallows the beginning of a connection, too.
async fn reach_server(room: &Room) -> Result<Line, Reset> {
    let mut mode = room.mode();
    // Its sender lives in the room.
    let _ = mode.wait_for(|mode| mode.gate(Way::ToServer, Instant::now(), 0.0) != Gate::Shut).await;
    room.route.connect().await.map_err(|error| {
        tracing::debug!(door = room.name, %error, "no server");
        one_more(&room.tally.unreachable);
        Reset::ByPeer
    })
}

/// Reads both directions of a connection.
struct Ears<'a> {
    dialogue: Mutex<Dialogue>,
    room: &'a Room,
    up: &'a Flow,
    down: &'a Flow,
}

impl Ears<'_> {
    /// Reads one direction to its end.
    async fn listen(&self, from: impl AsyncRead + Unpin, way: Way) -> Result<(), Reset> {
        let flow = if way == Way::ToServer { self.up } else { self.down };
        let end = self.read_on(from, way, flow).await;
        // A server that ends while a cut waits for its answer has ended what was to be cut.
        match self.hear_end(way) {
            Some(when) => flow.send(Load::Cut(when)),
            None if end.is_ok() => flow.send(Load::Fin),
            None => flow.send(Load::Rst),
        }
        Ok(())
    }

    async fn read_on(
        &self,
        mut from: impl AsyncRead + Unpin,
        way: Way,
        flow: &Flow,
    ) -> io::Result<()> {
        let mut bytes = vec![0; READ_BYTES];
        loop {
            let length = from.read(&mut bytes).await?;
            if length == 0 {
                return Ok(());
            }
            let Passage { pass, cut } = self.hear(&bytes[..length], way);
            flow.carry(&bytes[..pass]).await;
            // After the answers that are still on their way to the client.
            if let Some(when) = cut.filter(|when| *when != CutWhen::Silence) {
                self.down.send(Load::Cut(when));
            }
        }
    }

    fn hear(&self, bytes: &[u8], way: Way) -> Passage {
        let mut dialogue = self.dialogue.lock().unwrap_or_else(PoisonError::into_inner);
        match way {
            Way::ToServer => dialogue.client_said(bytes, &self.room.armed),
            _ => dialogue.server_said(bytes),
        }
    }

    fn hear_end(&self, way: Way) -> Option<CutWhen> {
        let dialogue = self.dialogue.lock().unwrap_or_else(PoisonError::into_inner);
        let cut = (way == Way::ToClient).then(|| dialogue.server_ended()).flatten();
        cut.filter(|when| *when != CutWhen::Silence)
    }
}
