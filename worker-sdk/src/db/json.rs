//! JSON as text, across the wire without being parsed: what PostgreSQL's type `json` stores.

use std::fmt;

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::error::{Code, Error};

/// Largest payload any lambda may accept, in bytes of JSON text.
const PAYLOAD_MAX_BYTES: usize = 1 << 20;
/// Deepest nesting: far below what any JSON parser on the way overflows at.
pub(crate) const DEPTH_MAX: usize = 64;

/// JSON text that is sent as it is. Its `Debug` shows its size only, for the logs of drivers.
#[derive(Clone, Copy)]
pub(crate) struct JsonText<'a>(pub &'a str);

impl fmt::Debug for JsonText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "json of {} bytes", self.0.len())
    }
}

impl ToSql for JsonText<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        out.put_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSON
    }

    to_sql_checked!();
}

/// JSON text as it came.
#[derive(Clone, Default)]
pub(crate) struct JsonOwned(pub String);

impl fmt::Debug for JsonOwned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        JsonText(&self.0).fmt(f)
    }
}

impl<'a> FromSql<'a> for JsonOwned {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, BoxError> {
        Ok(Self(std::str::from_utf8(raw)?.to_owned()))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSON
    }
}

type BoxError = Box<dyn std::error::Error + Sync + Send>;

/// The JSON text of a payload. `Err`: why the value is none, kept until the call that sends it.
pub(crate) type PayloadText = Result<String, (Code, String)>;

/// The text of a payload that can be sent.
///
/// # Errors
/// The refusal that was kept.
pub(crate) fn checked(payload: &PayloadText) -> Result<&str, Error> {
    payload.as_deref().map_err(|(code, text)| Error::refused(*code, text))
}

/// A value as the JSON text of a payload.
pub(crate) fn payload_of(value: &impl serde::Serialize) -> PayloadText {
    let text =
        serde_json::to_string(value).map_err(|error| (Code::InvalidPayload, error.to_string()))?;
    check_payload(&text)?;
    Ok(text)
}

/// Refuses what no worker could read: too large, too deep, a NUL character.
///
/// # Errors
/// The code, and the text behind it.
pub fn check_payload(text: &str) -> Result<(), (Code, String)> {
    if text.len() > PAYLOAD_MAX_BYTES {
        let got = text.len();
        let text = format!("at most {PAYLOAD_MAX_BYTES} bytes, got {got}");
        return Err((Code::PayloadTooLarge, text));
    }
    match scan(text.as_bytes()) {
        Scan { nul: true, .. } => {
            Err((Code::InvalidPayload, "\\u0000 cannot be stored in text".to_owned()))
        }
        Scan { depth, .. } if depth > DEPTH_MAX => {
            Err((Code::InvalidPayload, format!("nesting at most {DEPTH_MAX} deep, got {depth}")))
        }
        _ => Ok(()),
    }
}

/// Refuses what nests too deep, and says how deep.
pub(crate) fn check_depth(text: &str) -> Result<(), usize> {
    match scan(text.as_bytes()).depth {
        depth if depth > DEPTH_MAX => Err(depth),
        _ => Ok(()),
    }
}

struct Scan {
    depth: usize,
    nul: bool,
}

fn scan(text: &[u8]) -> Scan {
    let mut found = Scan { depth: 0, nul: false };
    let (mut depth, mut in_string, mut at) = (0_usize, false, 0);
    while at < text.len() {
        match text[at] {
            b'\\' if in_string => {
                found.nul |= text[at + 1..].starts_with(b"u0000");
                at += 1;
            }
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                found.depth = found.depth.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    found
}

/// Text that any JSON parser and any terminal of ours takes: NUL becomes U+FFFD, and what is longer
/// than `max_bytes` is cut on a character boundary.
pub(crate) fn clean(text: &str, max_bytes: usize) -> String {
    let mut end = text.len().min(max_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_escaped_backslash_before_u0000_is_no_nul() {
        assert!(check_payload(r#""\\u0000""#).is_ok());
        assert!(check_payload(r#""\u0000""#).is_err());
        assert!(check_payload(r#""\\\u0000""#).is_err());
    }

    #[test]
    fn nesting_is_counted_outside_strings_only() {
        assert!(check_payload(&format!("{}1{}", "[".repeat(64), "]".repeat(64))).is_ok());
        assert!(check_payload(&format!("{}1{}", "[".repeat(65), "]".repeat(65))).is_err());
        assert!(check_payload(&format!("\"{}\"", "[".repeat(100))).is_ok());
    }

    #[test]
    fn text_is_cut_on_a_character_boundary() {
        assert_eq!(clean("aé", 2), "a");
        assert_eq!(clean("a\0b", 10), "a\u{fffd}b");
    }
}
