//! The dialogue of client and server, followed just far enough to cut at a statement.
//!
//! It follows both directions of a connection, as messages. It knows the texts of the prepared
//! statements, which portal is bound to which, and how many requests wait for an answer. A request
//! ends with Query, Sync or FunctionCall, and its answer with ReadyForQuery. A statement is met
//! when it is executed, not when it is prepared.
//!
//! Promises: requests sent before the cut request are answered in full first; later requests never
//! reach the server. Before the server: the message that would execute the statement never arrives
//! there complete. After the server: the whole request passes, and nothing of its answer. Silence:
//! as before the server, but nothing ends.
//!
//! Limits: a connection that is encrypted, or not PostgreSQL's, passes uncut. A request that ends
//! with Flush and no Sync has no end to cut after.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::cut::{Armed, CutWhen};
use super::frame::{Found, Framer};

/// How much of a statement's text, with its name, is kept to look for the needle.
const TEXT_BYTES: usize = 64 * 1024;
/// How much is kept of a message that only names things.
const NAMES_BYTES: usize = 512;
/// How many statements, and how many portals, a connection may have before all are forgotten.
const NAMES_AT_MOST: usize = 4096;

const CANCEL_REQUEST: u32 = 80_877_102;
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;

/// Both directions of one connection.
pub struct Dialogue {
    client: Framer,
    server: Framer,
    opaque: bool,
    encryption_asked: u32,
    statements: HashMap<Vec<u8>, Arc<[u8]>>,
    portals: HashMap<Vec<u8>, Arc<[u8]>>,
    asked: VecDeque<Asked>,
    copying_in: bool,
    fate: Option<Fate>,
}

/// The treatment of bytes that were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passage {
    /// So many, from the first, pass; the rest is thrown away.
    pub pass: usize,
    /// Then the connection is cut.
    pub cut: Option<CutWhen>,
}

/// A request that the server has yet to answer.
#[derive(PartialEq, Eq)]
enum Asked {
    Startup,
    Query,
    Sync,
    FunctionCall,
}

/// The cut this connection is going to end with.
struct Fate {
    when: CutWhen,
    /// Requests before ours that are not answered yet.
    ahead: usize,
    /// Nothing more passes to the server.
    sealed: bool,
}

impl Fate {
    /// Whether the server must not see the statement.
    fn is_before(&self) -> bool {
        self.when != CutWhen::AfterServer
    }
}

fn kept_of_client(tag: u8) -> usize {
    match tag {
        b'P' | b'Q' => TEXT_BYTES,
        b'B' | b'C' | b'E' => NAMES_BYTES,
        0 => 4,
        _ => 0,
    }
}

fn kept_of_server(_tag: u8) -> usize {
    0
}

impl Dialogue {
    pub fn new() -> Self {
        Self {
            client: Framer::untagged(kept_of_client),
            server: Framer::tagged(kept_of_server),
            opaque: false,
            encryption_asked: 0,
            statements: HashMap::new(),
            portals: HashMap::new(),
            asked: VecDeque::new(),
            copying_in: false,
            fate: None,
        }
    }

    /// The client has sent this.
    pub fn client_said(&mut self, bytes: &[u8], armed: &Armed) -> Passage {
        let mut at = 0;
        while at < bytes.len() && !self.opaque && !self.sealed() {
            let (taken, found) = self.client.take(&bytes[at..]);
            match found {
                Found::Part => {}
                Found::Nonsense => self.opaque = true,
                Found::Message(tag) => self.hear_client(tag, armed),
            }
            // The message that sealed a cut before the server is not passed with its last byte.
            if self.cut_before() {
                return Passage { pass: at, cut: self.due() };
            }
            at += taken;
        }
        Passage { pass: if self.sealed() { at } else { bytes.len() }, cut: None }
    }

    /// The server has sent this.
    pub fn server_said(&mut self, bytes: &[u8]) -> Passage {
        let mut at = 0;
        let mut pass = self.withholding().then_some(0);
        while at < bytes.len() && !self.opaque {
            if self.encryption_asked > 0 && self.server.at_start() {
                at += self.hear_about_encryption(bytes[at]);
                continue;
            }
            let (taken, found) = self.server.take(&bytes[at..]);
            at += taken;
            match found {
                Found::Part => {}
                Found::Nonsense => self.opaque = true,
                Found::Message(tag) => {
                    let cut = self.hear_server(tag);
                    if cut.is_some() {
                        return Passage { pass: pass.unwrap_or(at), cut };
                    }
                }
            }
            if self.withholding() {
                pass.get_or_insert(at);
            }
        }
        Passage { pass: pass.unwrap_or(bytes.len()), cut: None }
    }

    /// The server has ended the connection; returns the cut that was to end it.
    pub fn server_ended(&self) -> Option<CutWhen> {
        self.fate.as_ref().map(|fate| fate.when)
    }

    fn sealed(&self) -> bool {
        self.fate.as_ref().is_some_and(|fate| fate.sealed)
    }

    fn cut_before(&self) -> bool {
        self.fate.as_ref().is_some_and(Fate::is_before)
    }

    /// Whether what the server says now answers the request that is cut.
    fn withholding(&self) -> bool {
        self.fate.as_ref().is_some_and(|fate| fate.ahead == 0)
    }

    /// The cut before the server, once everything ahead of it is answered.
    fn due(&self) -> Option<CutWhen> {
        let fate = self.fate.as_ref()?;
        (fate.ahead == 0 && fate.is_before()).then_some(fate.when)
    }

    fn hear_client(&mut self, tag: u8, armed: &Armed) {
        match tag {
            0 => self.hear_startup(),
            b'P' => self.prepare(),
            b'B' => self.bind(),
            b'C' => self.close(),
            b'E' => self.execute(armed),
            b'Q' => self.query(armed),
            b'S' if !self.copying_in => self.ask(Asked::Sync),
            b'F' => self.ask(Asked::FunctionCall),
            b'c' | b'f' => self.copying_in = false,
            _ => {}
        }
    }

    fn hear_startup(&mut self) {
        let code = self.client.body().first_chunk::<4>().map(|code| u32::from_be_bytes(*code));
        match code {
            Some(SSL_REQUEST | GSS_REQUEST) => self.encryption_asked += 1,
            Some(version) if version != CANCEL_REQUEST && version >> 16 == 3 => {
                self.client.expect_tags();
                self.ask(Asked::Startup);
            }
            _ => self.opaque = true,
        }
    }

    /// A single byte that is no message: N declines; S and G agree, and the dialogue is not
    /// followed further. Any other byte begins a message, an error from a server that does not know
    /// the question.
    fn hear_about_encryption(&mut self, answer: u8) -> usize {
        self.encryption_asked -= 1;
        self.opaque = matches!(answer, b'S' | b'G');
        usize::from(matches!(answer, b'N' | b'S' | b'G'))
    }

    fn prepare(&mut self) {
        if let Some((name, rest)) = split_name(self.client.body()) {
            remember(&mut self.statements, name, Arc::from(until_nul(rest)));
        }
    }

    fn bind(&mut self) {
        let names = split_name(self.client.body())
            .and_then(|(portal, rest)| Some((portal, split_name(rest)?.0)));
        let Some((portal, statement)) = names else { return };
        match self.statements.get(statement) {
            Some(text) => remember(&mut self.portals, portal, Arc::clone(text)),
            None => drop(self.portals.remove(portal)),
        }
    }

    fn close(&mut self) {
        let Some((kind, rest)) = self.client.body().split_first() else { return };
        let names = if *kind == b'S' { &mut self.statements } else { &mut self.portals };
        names.remove(until_nul(rest));
    }

    fn execute(&mut self, armed: &Armed) {
        if self.fate.is_none()
            && let Some(text) = self.portals.get(until_nul(self.client.body()))
            && let Some(when) = armed.claim(text)
        {
            self.decide(when);
        }
    }

    fn query(&mut self, armed: &Armed) {
        if self.fate.is_none()
            && let Some(when) = armed.claim(until_nul(self.client.body()))
        {
            self.decide(when);
        }
        self.ask(Asked::Query);
    }

    fn decide(&mut self, when: CutWhen) {
        let sealed = when != CutWhen::AfterServer;
        self.fate = Some(Fate { when, ahead: self.asked.len(), sealed });
    }

    /// A request has ended, and with it, when it is the one to cut, all that the server may hear.
    fn ask(&mut self, request: Asked) {
        self.asked.push_back(request);
        if let Some(fate) = &mut self.fate {
            fate.sealed = true;
        }
    }

    fn hear_server(&mut self, tag: u8) -> Option<CutWhen> {
        match tag {
            b'Z' => return self.answered(),
            b'G' | b'W' => self.begin_copy_in(),
            b'E' => self.copying_in = false,
            _ => {}
        }
        None
    }

    fn answered(&mut self) -> Option<CutWhen> {
        self.asked.pop_front();
        match &mut self.fate {
            Some(fate) if fate.ahead == 0 => Some(fate.when),
            Some(fate) => {
                fate.ahead -= 1;
                self.due()
            }
            None => None,
        }
    }

    /// The server ignores a Sync while it waits for rows, also the one it was sent with the COPY.
    fn begin_copy_in(&mut self) {
        self.copying_in = true;
        if self.asked.front() == Some(&Asked::Sync) {
            self.asked.pop_front();
        }
    }
}

fn remember(names: &mut HashMap<Vec<u8>, Arc<[u8]>>, name: &[u8], text: Arc<[u8]>) {
    if names.len() >= NAMES_AT_MOST {
        names.clear();
    }
    names.insert(name.to_vec(), text);
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    split_name(bytes).map_or(bytes, |(name, _)| name)
}

fn split_name(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}
