//! The framing, fed at every boundary.

use super::super::cut::{Armed, Cut, CutWhen};
use super::super::dialogue::Dialogue;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Client,
    Server,
}

use Side::{Client, Server};

/// The bytes that have passed, and the cut of the connection.
#[derive(Debug, PartialEq, Eq)]
struct Heard {
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    cut: Option<CutWhen>,
}

fn said(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&[tag], &length[..], body].concat()
}

fn untagged(code: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 8).unwrap().to_be_bytes();
    [&length, &code.to_be_bytes(), body].concat()
}

fn ready() -> Vec<u8> {
    said(b'Z', b"I")
}

/// A session with a prepared statement, a simple query, and then both again.
fn recorded() -> Vec<(Side, Vec<u8>)> {
    let prepare = [said(b'P', b"s1\0insert needle\0\0\0"), said(b'S', b"")].concat();
    let execute =
        [said(b'B', b"\0s1\0\0\0\0\0\0\0"), said(b'E', b"\0\0\0\0\0"), said(b'S', b"")].concat();
    let hay = said(b'Q', b"select hay\0");
    let done = [said(b'C', b"INSERT 0 1\0"), ready()].concat();
    vec![
        (Client, untagged(80_877_103, b"")),
        (Server, b"N".to_vec()),
        (Client, untagged(196_608, b"user\0tuskline\0\0")),
        (Server, [said(b'R', &[0; 4]), said(b'S', b"a\0b\0"), ready()].concat()),
        (Client, prepare),
        (Server, [said(b'1', b""), ready()].concat()),
        (Client, [hay.clone(), execute, hay].concat()),
        (Server, [said(b'N', b"notice Z\0"), done.clone(), said(b'2', b""), done].concat()),
    ]
}

/// Feeds the recording in pieces that end wherever `ends` says, until it is cut.
fn play(armed: &Armed, ends: impl Fn(usize) -> bool) -> Heard {
    let mut dialogue = Dialogue::new();
    let mut heard = Heard { to_server: vec![], to_client: vec![], cut: None };
    let mut offset = 0;
    for (side, bytes) in recorded() {
        let mut piece = Vec::new();
        for (at, byte) in bytes.iter().enumerate() {
            piece.push(*byte);
            offset += 1;
            if (ends(offset) || at + 1 == bytes.len()) && heard.cut.is_none() {
                let (passage, passed) = match side {
                    Client => (dialogue.client_said(&piece, armed), &mut heard.to_server),
                    Server => (dialogue.server_said(&piece), &mut heard.to_client),
                };
                passed.extend_from_slice(&piece[..passage.pass]);
                heard.cut = passage.cut;
                piece.clear();
            }
        }
    }
    heard
}

fn armed(when: Option<CutWhen>) -> Armed {
    let armed = Armed::default();
    if let Some(when) = when {
        armed.arm(Cut { holding: "NEEDLE".to_owned(), when }, 1);
    }
    armed
}

fn whole(side: Side) -> Vec<u8> {
    recorded().into_iter().filter(|(by, _)| *by == side).flat_map(|(_, bytes)| bytes).collect()
}

fn length() -> usize {
    whole(Client).len() + whole(Server).len()
}

#[test]
fn without_a_cut_every_byte_passes_at_every_split() {
    for split in 0..=length() {
        let heard = play(&armed(None), |offset| offset == split);
        assert_eq!((heard.to_server, heard.cut), (whole(Client), None));
        assert_eq!(heard.to_client, whole(Server));
    }
    assert_eq!(play(&armed(None), |_| true).to_client, whole(Server));
}

#[test]
fn a_cut_after_the_server_passes_the_same_bytes_at_every_split() {
    let after = Some(CutWhen::AfterServer);
    let expected = play(&armed(after), |_| false);
    assert_eq!(expected.cut, after);
    let last = said(b'Q', b"select hay\0").len();
    assert_eq!(expected.to_server, whole(Client)[..whole(Client).len() - last]);
    let answer = said(b'2', b"").len() + said(b'C', b"INSERT 0 1\0").len() + ready().len();
    assert_eq!(expected.to_client, whole(Server)[..whole(Server).len() - answer]);
    for split in 0..=length() {
        assert_eq!(play(&armed(after), |offset| offset == split), expected, "split at {split}");
    }
    assert_eq!(play(&armed(after), |_| true), expected);
}

#[test]
fn a_cut_before_the_server_never_completes_the_execution_there() {
    let before = Some(CutWhen::BeforeServer);
    let expected = play(&armed(before), |_| false);
    let execute = said(b'E', b"\0\0\0\0\0").len();
    let check = |heard: Heard| {
        assert_eq!((heard.cut, &heard.to_client), (before, &expected.to_client));
        let beyond = heard.to_server.len() - expected.to_server.len();
        assert!(beyond < execute, "{beyond} of {execute} bytes");
        assert!(whole(Client).starts_with(&heard.to_server));
    };
    (0..=length()).for_each(|split| check(play(&armed(before), |offset| offset == split)));
    check(play(&armed(before), |_| true));
}

#[test]
fn what_is_not_the_protocol_passes_as_it_is() {
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..2_000 {
        let mut dialogue = Dialogue::new();
        let mut bytes = vec![0; random.usize(1..200)];
        random.fill(&mut bytes);
        if random.bool() {
            bytes.splice(0..0, untagged(196_608, b"\0"));
        }
        for piece in bytes.chunks(random.usize(1..50)) {
            assert_eq!(dialogue.client_said(piece, &armed(None)).pass, piece.len());
            assert_eq!(dialogue.server_said(piece).pass, piece.len());
        }
    }
}

#[test]
fn a_length_no_server_would_take_ends_the_search_for_statements() {
    let armed = armed(Some(CutWhen::BeforeServer));
    for nonsense in [untagged(196_608, &[0; 10_000]), [&[0, 0, 0, 3][..], &[0; 9]].concat()] {
        let mut dialogue = Dialogue::new();
        dialogue.client_said(&nonsense, &armed);
        let query = said(b'Q', b"needle\0");
        assert_eq!(dialogue.client_said(&query, &armed).pass, query.len());
    }
    assert_eq!(armed.left(), 1);
}
