//! The treatment of the bytes that pass a door.
//!
//! Promises: a mode decides when bytes or an end may pass: now, at a later moment, or only after
//! the mode changes. It keeps no state.

use std::time::Duration;

use tokio::time::Instant;

/// The treatment of a door's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A network without faults.
    Pass,
    /// Each read arrives `base` and up to `jitter` later, in each direction, in order. A round trip
    /// takes at least twice `base`. Bytes that are sent meanwhile travel at the same time.
    Delay {
        /// The least time in one direction.
        base: Duration,
        /// At most so much more, evenly drawn.
        jitter: Duration,
    },
    /// At most so many bytes a second, in each direction of each connection; 0 counts as 1.
    Throttle {
        /// The rate.
        bytes_per_second: u32,
    },
    /// A partition that may heal: bytes and ends are held, and delivered when the mode changes.
    /// New connections are accepted, as by a kernel's backlog, and never answered; those towards
    /// the server are not even begun there.
    Blackhole(Way),
    /// Answers arrive later by a delay. The server gets requests at once, or none after `deaf` is
    /// set. Answers that are under way arrive all the same.
    LateAnswers {
        /// The delay of an answer.
        by: Duration,
        /// Whether requests are held until the mode changes.
        deaf: bool,
    },
    /// Bytes pass, but a FIN or RST of one side reaches the other only after the mode changes.
    HalfOpen,
    /// New connections are reset at once; open ones go on.
    Refuse,
}

/// The directions a black hole swallows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Both directions.
    Both,
    /// The bytes that the client sends.
    ToServer,
    /// The bytes that the server answers.
    ToClient,
}

/// When something may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Now.
    Open,
    /// Not before this moment.
    OpensAt(Instant),
    /// Not before the mode changes.
    Shut,
}

impl Way {
    fn covers(self, way: Way) -> bool {
        self == Way::Both || self == way
    }
}

impl Mode {
    /// Whether what was read at `read_at` may pass; `luck`, 0 to 1, is its share of the jitter.
    pub fn gate(self, way: Way, read_at: Instant, luck: f64) -> Gate {
        match self {
            Mode::Blackhole(swallowed) if swallowed.covers(way) => Gate::Shut,
            Mode::Delay { base, jitter } => Gate::OpensAt(read_at + base + jitter.mul_f64(luck)),
            Mode::LateAnswers { by, .. } if way == Way::ToClient => Gate::OpensAt(read_at + by),
            Mode::LateAnswers { deaf: true, .. } => Gate::Shut,
            _ => Gate::Open,
        }
    }

    /// The gate for an end of the other side.
    pub fn gate_for_end(self, way: Way, read_at: Instant, luck: f64) -> Gate {
        if self == Mode::HalfOpen { Gate::Shut } else { self.gate(way, read_at, luck) }
    }

    /// How many bytes a second may pass, when that is limited.
    pub fn rate(self) -> Option<u32> {
        match self {
            Mode::Throttle { bytes_per_second } => Some(bytes_per_second.max(1)),
            _ => None,
        }
    }
}
