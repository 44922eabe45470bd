//! The sender of a request to the pages or the RPC: the person, the role whose rights hold, and whether the
//! request may be answered at all.
//!
//! Promises: a page without a token is answered on loopback only, or where the server only shows
//! (`read_only`); an act needs a token, a proxy that is trusted, or `tuskline dev`; a request to a
//! host that is not ours is refused, and so is an act that another site sends.
//! Must never: take a token from an address, or log one.

mod guesses;

use std::collections::BTreeMap;

use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use sha2::{Digest as _, Sha256};

pub use guesses::Guesses;

/// The cookie that holds the token of a person who signed in.
pub const TOKEN_COOKIE: &str = "tuskline_token";

/// A line of the token file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// SHA-256 of the token.
    pub hash: [u8; 32],
    /// The role whose rights hold.
    pub role: String,
    /// The name of the person, for the audit.
    pub name: String,
}

/// A proxy that has found out who asks.
#[derive(Debug, Clone)]
pub struct Proxy {
    /// The header with the name of the person.
    pub header: HeaderName,
    /// The secret that the proxy sends in `Tuskline-Proxy-Secret`.
    pub secret: String,
    /// The role of each name.
    pub roles: BTreeMap<String, String>,
}

/// People who may look, and people who may act.
#[derive(Debug, Clone)]
pub struct Access {
    /// The role of a person without a token.
    pub role: String,
    /// Nobody acts, and nobody needs a token.
    pub read_only: bool,
    /// A person without a token acts: `tuskline dev`.
    pub acts_freely: bool,
    /// The server listens on loopback only.
    pub is_loopback: bool,
    /// Tokens. Empty: nobody signs in.
    pub tokens: Vec<Token>,
    /// The proxy in front.
    pub proxy: Option<Proxy>,
    /// Names under which the pages are asked for, beside those of loopback.
    pub hosts: Vec<String>,
    /// The cookie goes over TLS only.
    pub is_secure: bool,
}

/// The role of a person without a token, unless it is said.
pub const VIEWER: &str = "tuskline_viewer";

/// The role of nobody. PostgreSQL has no role of this name.
pub const NOBODY: &str = "none";

impl Default for Access {
    /// On loopback, to look.
    fn default() -> Self {
        Self {
            role: VIEWER.to_owned(),
            read_only: false,
            acts_freely: false,
            is_loopback: true,
            tokens: Vec::new(),
            proxy: None,
            hosts: Vec::new(),
            is_secure: false,
        }
    }
}

/// The person who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// The name that pages and audit show.
    pub name: String,
    /// The role whose rights hold.
    pub role: String,
    /// May send acts; the database decides which.
    pub may_act: bool,
    /// Signed in by a token in a cookie.
    pub has_cookie: bool,
}

impl Person {
    /// Nobody: the shell of a page that is refused.
    pub fn unknown() -> Self {
        let (name, role) = ("nobody".to_owned(), NOBODY.to_owned());
        Self { name, role, may_act: false, has_cookie: false }
    }
}

/// Why a request is not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The host is not one of ours.
    Host,
    /// Another site sends the act.
    OtherSite,
    /// A token is needed.
    SignIn,
    /// Too many wrong tokens arrive.
    TooMany,
    /// The person may not do this.
    Forbidden(String),
}

impl Refusal {
    /// The status of the answer.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Host => StatusCode::MISDIRECTED_REQUEST,
            Self::SignIn => StatusCode::UNAUTHORIZED,
            Self::TooMany => StatusCode::TOO_MANY_REQUESTS,
            Self::OtherSite | Self::Forbidden(_) => StatusCode::FORBIDDEN,
        }
    }
}

impl Access {
    /// The person who asks for a page.
    ///
    /// # Errors
    /// The request is not answered.
    pub fn person(&self, headers: &HeaderMap) -> Result<Person, Refusal> {
        self.check_host(headers)?;
        let named = self.named(headers, self.presented(headers))?;
        named.map_or_else(|| self.anyone(headers), Ok)
    }

    /// The sender of a call by RPC: a program, which a cookie does not name. Only `tuskline dev` answers one
    /// without a name.
    ///
    /// # Errors
    /// The request is not answered.
    pub fn program(&self, headers: &HeaderMap) -> Result<Person, Refusal> {
        self.check_host(headers)?;
        match self.named(headers, bearer(headers).map(|token| (token, false)))? {
            Some(program) => Ok(program),
            None if self.acts_freely => self.anyone(headers),
            None => Err(Refusal::SignIn),
        }
    }

    /// The sender that the proxy or a token names. The token comes with whether a cookie has it.
    fn named(
        &self,
        headers: &HeaderMap,
        presented: Option<(&str, bool)>,
    ) -> Result<Option<Person>, Refusal> {
        let named = |name: &str, role: &str, has_cookie| Person {
            name: name.to_owned(),
            role: role.to_owned(),
            may_act: !self.read_only,
            has_cookie,
        };
        if let Some(proxy) = &self.proxy
            && let Some(name) = proxy.name(headers)?
        {
            let role = proxy.role_of(name, headers)?;
            return Ok(Some(named(name, role, false)));
        }
        let Some((token, has_cookie)) = presented else { return Ok(None) };
        let token = self.token(token).ok_or(Refusal::SignIn)?;
        Ok(Some(named(&token.name, &token.role, has_cookie)))
    }

    /// A sender without a name.
    fn anyone(&self, headers: &HeaderMap) -> Result<Person, Refusal> {
        // A name of --host leads here through a proxy, and so perhaps from anywhere.
        let is_near = self.is_loopback && is_loopback(host_of(headers));
        let is_open = is_near && self.proxy.is_none();
        match self.read_only || is_open {
            true => Ok(Person {
                name: self.role.clone(),
                role: self.role.clone(),
                may_act: self.acts_freely && !self.read_only,
                has_cookie: false,
            }),
            false => Err(Refusal::SignIn),
        }
    }

    /// The token that a request presents. A browser sends a cookie to every port of a host, so a server
    /// without tokens gets those of others, and does not look at them.
    pub fn presented<'a>(&self, headers: &'a HeaderMap) -> Option<(&'a str, bool)> {
        presented(headers).filter(|(_, is_cookie)| !is_cookie || !self.tokens.is_empty())
    }

    /// The line of a token.
    pub fn token(&self, token: &str) -> Option<&Token> {
        let hash = hash(token);
        self.tokens.iter().find(|one| one.hash == hash)
    }

    /// Refuses a request whose host is not ours: a page of another site that a name server sends
    /// here (DNS rebinding).
    ///
    /// # Errors
    /// The host is not ours.
    pub fn check_host(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let name = host_of(headers);
        let is_ours =
            is_loopback(name) || self.hosts.iter().any(|one| one.eq_ignore_ascii_case(name));
        if is_ours { Ok(()) } else { Err(Refusal::Host) }
    }

    /// Whether the person may send this act.
    ///
    /// # Errors
    /// Another site sends it, or the person may only look.
    pub fn check_act(&self, person: &Person, headers: &HeaderMap) -> Result<(), Refusal> {
        if !is_same_origin(headers) {
            return Err(Refusal::OtherSite);
        }
        self.may_act(person)
    }

    /// Whether the person may send acts at all.
    ///
    /// # Errors
    /// The person may only look.
    pub fn may_act(&self, person: &Person) -> Result<(), Refusal> {
        match (self.read_only, person.may_act) {
            (true, _) => Err(Refusal::Forbidden("This server only shows: --read-only.".to_owned())),
            (false, false) if self.tokens.is_empty() && self.proxy.is_none() => {
                Err(Refusal::Forbidden(
                    "An act needs a person: start the server with --token-file or --trust-header."
                        .to_owned(),
                ))
            }
            (false, false) => Err(Refusal::Forbidden("An act needs a person: sign in.".to_owned())),
            (false, true) => Ok(()),
        }
    }
}

impl Proxy {
    /// The name that the proxy says. Two names are none: one of them is not the proxy's.
    fn name<'a>(&self, headers: &'a HeaderMap) -> Result<Option<&'a str>, Refusal> {
        let mut all = headers.get_all(&self.header).iter();
        match (all.next(), all.next()) {
            (None, _) => Ok(None),
            (Some(one), None) => {
                let name = one.to_str();
                name.map(Some).map_err(|_| Refusal::Forbidden("this name is no text".to_owned()))
            }
            (Some(_), Some(_)) => Err(Refusal::Forbidden("two names are sent".to_owned())),
        }
    }

    fn role_of(&self, name: &str, headers: &HeaderMap) -> Result<&str, Refusal> {
        let secret = headers.get("tuskline-proxy-secret").map(|value| value.as_bytes());
        let hash = |bytes: &[u8]| Sha256::digest(bytes);
        if secret.map(hash) != Some(hash(self.secret.as_bytes())) {
            return Err(Refusal::Forbidden("the proxy did not send its secret".to_owned()));
        }
        let role = self.roles.get(name).map(String::as_str);
        role.ok_or_else(|| Refusal::Forbidden(format!("no role is known for {name}")))
    }
}

/// SHA-256 of a token.
pub fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn host_of(headers: &HeaderMap) -> &str {
    host_name(text(headers, &header::HOST).unwrap_or_default())
}

fn is_loopback(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The name of a host, without its port and the brackets of an IPv6 address.
fn host_name(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().unwrap_or_default();
    }
    host.split(':').next().unwrap_or_default()
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The token in the header of a program.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let all = text(headers, &header::AUTHORIZATION)?;
    all.strip_prefix("Bearer ").map(str::trim)
}

/// The token of the request, and whether a cookie brings it.
fn presented(headers: &HeaderMap) -> Option<(&str, bool)> {
    bearer(headers)
        .map(|token| (token, false))
        .or_else(|| cookie(headers, TOKEN_COOKIE).map(|token| (token, true)))
}

/// A cookie of the request.
pub fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|one| one.to_str().ok());
    all.flat_map(|line| line.split(';'))
        .filter_map(|one| one.trim().split_once('='))
        .find_map(|(found, value)| (found == name).then_some(value))
}

/// A browser says from which site a request comes. A program says nothing, and needs its token in
/// a header, which a page of another site cannot send.
pub fn is_same_origin(headers: &HeaderMap) -> bool {
    says_same_origin(headers).unwrap_or_else(|| headers.contains_key(header::AUTHORIZATION))
}

/// Whether a browser says that a page of ours sends the request. None: no browser says anything.
pub fn says_same_origin(headers: &HeaderMap) -> Option<bool> {
    if let Some(site) = headers.get("sec-fetch-site") {
        return Some(site == "same-origin");
    }
    let origin = headers.get(header::ORIGIN)?.to_str().unwrap_or_default();
    let host = text(headers, &header::HOST);
    Some(host.is_some() && origin.split("://").nth(1) == host)
}

#[cfg(test)]
mod tests;
