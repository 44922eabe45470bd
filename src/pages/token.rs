//! The token of a preview: a confirmation holds for what was shown, to whom it was shown, and for
//! ten minutes.
//!
//! Promises: other arguments, another person, another server's key, or a count that has changed by
//! more than a tenth make another preview. Must never: stand for a right. The database checks that.

use chrono::{DateTime, TimeDelta, Utc};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// How long a preview may be confirmed.
const LIFE: TimeDelta = TimeDelta::minutes(10);

/// The subject of a preview.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a> {
    /// The statement.
    pub act: &'a str,
    pub person: &'a str,
    pub role: &'a str,
}

/// Why a preview is shown again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stale {
    /// It is not the preview of this act and person, or of this server.
    Other,
    /// It is too old.
    Old,
    /// There are other tasks now.
    Count,
}

impl Stale {
    pub fn text(self) -> &'static str {
        match self {
            Self::Other => "The confirmation is not of this preview. Nothing has been done.",
            Self::Old => "The preview was older than 10 minutes. Nothing has been done.",
            Self::Count => {
                "The number of tasks has changed by more than a tenth. Nothing has been done."
            }
        }
    }
}

/// The key of a server, or of all servers with the same token file.
#[derive(Clone)]
pub struct Key(Hmac<Sha256>);

impl std::fmt::Debug for Key {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("Key")
    }
}

impl Key {
    /// Makes a key of secrets.
    pub fn of(secrets: &[u8]) -> Self {
        #[allow(clippy::expect_used, reason = "HMAC takes a key of any length")]
        Self(Hmac::new_from_slice(secrets).expect("a key of any length"))
    }

    /// The token of a preview.
    pub fn token(&self, shown: Shown<'_>, count: i64, at: DateTime<Utc>) -> String {
        let (at, mac) = (at.timestamp(), self.mac(shown, count, at.timestamp()));
        let mac = mac.finalize().into_bytes();
        let mac: String = mac.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{at}.{count}.{mac}")
    }

    fn mac(&self, shown: Shown<'_>, count: i64, at: i64) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        for part in [shown.act, shown.person, shown.role] {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part.as_bytes());
        }
        mac.update(&count.to_be_bytes());
        mac.update(&at.to_be_bytes());
        mac
    }

    /// Checks a token. Returns the count of its preview.
    ///
    /// # Errors
    /// The preview is shown again.
    pub fn check(
        &self,
        token: &str,
        shown: Shown<'_>,
        count: i64,
        now: DateTime<Utc>,
    ) -> Result<i64, Stale> {
        let mut parts = token.splitn(3, '.');
        let mut number = || parts.next()?.parse::<i64>().ok();
        let (at, then) = (number().ok_or(Stale::Other)?, number().ok_or(Stale::Other)?);
        let mac = bytes(parts.next().unwrap_or_default()).ok_or(Stale::Other)?;
        self.mac(shown, then, at).verify_slice(&mac).map_err(|_| Stale::Other)?;
        let at = DateTime::from_timestamp(at, 0).ok_or(Stale::Other)?;
        match now - at {
            age if age > LIFE => Err(Stale::Old),
            _ if (count - then).abs() * 10 > then => Err(Stale::Count),
            _ => Ok(then),
        }
    }
}

/// Reads hexadecimal digits.
pub fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digit = |one: u8| char::from(one).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(pair[0])? * 16 + digit(*pair.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: Shown<'_> = Shown { act: "select 1;", person: "ada", role: "payments" };

    #[test]
    fn a_confirmation_holds_for_its_preview_only() {
        let key = Key::of(b"secret");
        let at = DateTime::from_timestamp(1_800_000_000, 0).expect("a time");
        let token = key.token(SHOWN, 100, at);
        let after = |seconds| at + TimeDelta::seconds(seconds);
        let check = |shown, count, now| key.check(&token, shown, count, now);
        assert_eq!(check(SHOWN, 100, after(600)), Ok(100));
        assert_eq!(check(SHOWN, 110, at), Ok(100));
        assert_eq!(check(SHOWN, 90, at), Ok(100));
        assert_eq!(check(SHOWN, 100, after(601)), Err(Stale::Old));
        assert_eq!(check(SHOWN, 111, at), Err(Stale::Count));
        assert_eq!(check(SHOWN, 89, at), Err(Stale::Count));
        for other in [
            Shown { act: "select 2;", ..SHOWN },
            Shown { person: "bob", ..SHOWN },
            Shown { role: "owner", ..SHOWN },
            Shown { person: "adapay", role: "ments", ..SHOWN },
        ] {
            assert_eq!(check(other, 100, at), Err(Stale::Other));
        }
        assert_eq!(Key::of(b"other").check(&token, SHOWN, 100, at), Err(Stale::Other));
    }

    #[test]
    fn a_token_that_is_none_is_not_read() {
        let key = Key::of(b"secret");
        let now = DateTime::from_timestamp(1_800_000_000, 0).expect("a time");
        let token = key.token(SHOWN, 100, now);
        let (head, mac) = token.rsplit_once('.').expect("three parts");
        for wrong in [
            String::new(),
            "..".to_owned(),
            "p-7f3c19".to_owned(),
            head.to_owned(),
            format!("{head}."),
            format!("{head}.{}", &mac[1..]),
            format!("{head}.{}", &mac[2..]),
            format!("{}.{mac}", head.replace(".100", ".1000")),
            format!("{}9.{mac}", head),
            format!("9{token}"),
            format!("{head}.é{mac}"),
        ] {
            assert_eq!(key.check(&wrong, SHOWN, 100, now), Err(Stale::Other), "{wrong}");
        }
    }
}
