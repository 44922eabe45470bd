//! A direction of a connection: read, wait for the gate, deliver.
//!
//! Promises: parcels keep their order. Reading goes on while parcels wait, until [`BYTES_HELD`] are
//! held; then the sender feels it. The gate is asked again at every change of the mode, and for
//! every slice of slow traffic.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep_until};

use super::cut::CutWhen;
use super::mode::{Gate, Mode, Way};

/// How many bytes may be read and not yet delivered, per direction.
pub const BYTES_HELD: usize = 1 << 20;
/// The rate of a throttled direction is kept over so much of a second.
const SLICES_PER_SECOND: u32 = 20;

/// The end of a connection by a RST.
#[derive(Debug, PartialEq, Eq)]
pub enum Reset {
    /// By an order of ours.
    ByOrder,
    /// A side was reset, or could not be written to.
    ByPeer,
    /// A cut.
    Cut(CutWhen),
}

/// The contents of a parcel.
pub enum Load {
    /// Bytes.
    Bytes(Vec<u8>),
    /// A side has closed its direction.
    Fin,
    /// A side has reset.
    Rst,
    /// The connection is to be cut here.
    Cut(CutWhen),
}

struct Parcel {
    load: Load,
    read_at: Instant,
    luck: f64,
}

/// The parcels that were read and not delivered.
pub struct Flow {
    way: Way,
    room: Semaphore,
    sender: UnboundedSender<Parcel>,
}

/// The end of a flow that delivers.
pub struct Delivery<'a> {
    parcels: UnboundedReceiver<Parcel>,
    mode: watch::Receiver<Mode>,
    delivered: &'a AtomicU64,
    paid_until: Instant,
}

impl Flow {
    pub fn new<'a>(
        way: Way,
        mode: watch::Receiver<Mode>,
        delivered: &'a AtomicU64,
    ) -> (Self, Delivery<'a>) {
        let (sender, parcels) = unbounded_channel();
        let delivery = Delivery { parcels, mode, delivered, paid_until: Instant::now() };
        (Self { way, room: Semaphore::new(BYTES_HELD), sender }, delivery)
    }

    /// Waits until there is room for the bytes, and sends them.
    pub async fn carry(&self, bytes: &[u8]) {
        let wanted = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        if wanted > 0
            && let Ok(room) = self.room.acquire_many(wanted).await
        {
            room.forget();
            self.send(Load::Bytes(bytes.to_vec()));
        }
    }

    /// Sends a parcel that takes no room. A parcel sent after the end of the delivery is lost, and
    /// not needed.
    pub fn send(&self, load: Load) {
        let _ = self.sender.send(Parcel { load, read_at: Instant::now(), luck: fastrand::f64() });
    }

    /// Delivers until the direction ends; an error is the end of the whole connection.
    pub async fn deliver(
        &self,
        mut delivery: Delivery<'_>,
        mut out: impl AsyncWrite + Unpin,
    ) -> Result<(), Reset> {
        while let Some(parcel) = delivery.parcels.recv().await {
            delivery.pass(self.way, &parcel).await;
            match &parcel.load {
                Load::Bytes(bytes) => {
                    let written = delivery.write(self.way, &parcel, bytes, &mut out).await;
                    if written.is_err() {
                        return delivery.mourn(self.way).await;
                    }
                    self.room.add_permits(bytes.len());
                }
                // The other side may be gone already.
                Load::Fin => {
                    let _ = out.shutdown().await;
                    return Ok(());
                }
                Load::Rst => return Err(Reset::ByPeer),
                Load::Cut(when) => return Err(Reset::Cut(*when)),
            }
        }
        Ok(())
    }
}

impl Delivery<'_> {
    async fn write(
        &mut self,
        way: Way,
        parcel: &Parcel,
        mut bytes: &[u8],
        out: &mut (impl AsyncWrite + Unpin),
    ) -> std::io::Result<()> {
        while !bytes.is_empty() {
            let rate = self.mode.borrow().rate();
            let (slice, rest) = bytes.split_at(slice_bytes(rate).min(bytes.len()));
            out.write_all(slice).await?;
            self.delivered.fetch_add(slice.len() as u64, Ordering::Relaxed);
            self.pay(rate, slice.len()).await;
            bytes = rest;
            if !bytes.is_empty() {
                self.pass(way, parcel).await;
            }
        }
        Ok(())
    }

    /// Waits for as long as so many bytes take at this rate, or until the mode changes.
    async fn pay(&mut self, rate: Option<u32>, bytes: usize) {
        let Some(rate) = rate else { return };
        let price = Duration::from_secs_f64(bytes as f64 / f64::from(rate));
        self.paid_until = self.paid_until.max(Instant::now()) + price;
        while self.mode.borrow().rate() == Some(rate) && Instant::now() < self.paid_until {
            self.wait(Gate::OpensAt(self.paid_until)).await;
        }
    }

    /// Waits until the mode lets the parcel pass.
    async fn pass(&mut self, way: Way, parcel: &Parcel) {
        loop {
            let gate = gate(*self.mode.borrow_and_update(), way, parcel);
            match gate {
                Gate::Open => return,
                Gate::OpensAt(moment) if moment <= Instant::now() => return,
                _ => self.wait(gate).await,
            }
        }
    }

    /// The receiver is gone. Its peer learns that when an end may pass in its direction.
    async fn mourn(&mut self, way: Way) -> Result<(), Reset> {
        let back = if way == Way::ToServer { Way::ToClient } else { Way::ToServer };
        let news = Parcel { load: Load::Rst, read_at: Instant::now(), luck: fastrand::f64() };
        self.pass(back, &news).await;
        Err(Reset::ByPeer)
    }

    /// Waits for the moment or a change of the mode. Its sender outlives every connection.
    async fn wait(&mut self, gate: Gate) {
        match gate {
            Gate::OpensAt(moment) => tokio::select! {
                () = sleep_until(moment) => {}
                _ = self.mode.changed() => {}
            },
            Gate::Open | Gate::Shut => drop(self.mode.changed().await),
        }
    }
}

fn gate(mode: Mode, way: Way, parcel: &Parcel) -> Gate {
    match parcel.load {
        Load::Bytes(_) | Load::Cut(_) => mode.gate(way, parcel.read_at, parcel.luck),
        Load::Fin | Load::Rst => mode.gate_for_end(way, parcel.read_at, parcel.luck),
    }
}

fn slice_bytes(rate: Option<u32>) -> usize {
    rate.map_or(usize::MAX, |rate| (rate / SLICES_PER_SECOND).max(1) as usize)
}
