//! The frames of PostgreSQL's protocol, version 3: the bounds of messages.
//!
//! Promises: it may be fed at any boundary, one byte at a time, and finds the same messages. It
//! keeps the part of a body's beginning that its owner asked for.

/// A length beyond this is not PostgreSQL: its own limit for a message is 1 GiB.
const LONGEST_BODY: usize = 1 << 30;
/// The same before the start-up message is through; PostgreSQL's own limit is 10,000.
const LONGEST_STARTUP: usize = 10_000;

/// Cuts one direction of a connection into messages.
pub struct Framer {
    tagged: bool,
    head: Vec<u8>,
    left: usize,
    body: Vec<u8>,
    keep: fn(tag: u8) -> usize,
}

/// The result of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// All bytes are used, and the message has not ended.
    Part,
    /// A message has ended; its tag, 0 for one without.
    Message(u8),
    /// This is not the protocol.
    Nonsense,
}

impl Framer {
    /// For a direction that begins with messages without a tag, as a client's does.
    pub fn untagged(keep: fn(u8) -> usize) -> Self {
        Self { tagged: false, head: Vec::with_capacity(5), left: 0, body: Vec::new(), keep }
    }

    /// For a direction whose messages all have a tag, as a server's have.
    pub fn tagged(keep: fn(u8) -> usize) -> Self {
        Self { tagged: true, ..Self::untagged(keep) }
    }

    /// From the next message on, they have a tag.
    pub fn expect_tags(&mut self) {
        self.tagged = true;
    }

    /// Whether the next byte begins a message.
    pub fn at_start(&self) -> bool {
        self.head.is_empty()
    }

    /// The beginning of the body of the message found last.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Reads on, at most to the end of one message; returns how many bytes that took.
    pub fn take(&mut self, bytes: &[u8]) -> (usize, Found) {
        let head = match self.take_head(bytes) {
            Ok(taken) => taken,
            Err(found) => return (bytes.len(), found),
        };
        let body = self.left.min(bytes.len() - head);
        self.take_body(&bytes[head..head + body]);
        if self.left > 0 {
            return (head + body, Found::Part);
        }
        let tag = self.tag();
        self.head.clear();
        (head + body, Found::Message(tag))
    }

    fn take_head(&mut self, bytes: &[u8]) -> Result<usize, Found> {
        let missing = self.head_len() - self.head.len();
        if missing == 0 {
            return Ok(0);
        }
        let taken = missing.min(bytes.len());
        self.head.extend_from_slice(&bytes[..taken]);
        if taken < missing {
            return Err(Found::Part);
        }
        self.left = self.announced().ok_or(Found::Nonsense)?;
        self.body.clear();
        Ok(taken)
    }

    fn take_body(&mut self, bytes: &[u8]) {
        self.left -= bytes.len();
        let wanted = (self.keep)(self.tag()).saturating_sub(self.body.len());
        self.body.extend_from_slice(&bytes[..wanted.min(bytes.len())]);
    }

    /// The length of the body, when it is possible; the length on the wire counts itself.
    fn announced(&self) -> Option<usize> {
        let length = self.head.last_chunk::<4>().map(|length| u32::from_be_bytes(*length))?;
        let body = usize::try_from(length).ok()?.checked_sub(4)?;
        let longest = if self.tagged { LONGEST_BODY } else { LONGEST_STARTUP };
        (body <= longest).then_some(body)
    }

    fn head_len(&self) -> usize {
        if self.tagged { 5 } else { 4 }
    }

    fn tag(&self) -> u8 {
        if self.tagged { self.head[0] } else { 0 }
    }
}
