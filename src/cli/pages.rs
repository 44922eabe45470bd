//! Options of `serve` that say who may see the pages, and who may act there.
//!
//! Promises: a file with a bad line is an error at start, with the number of the line; a token or a
//! proxy's secret does not cross a network without TLS. Must never: print a token or a secret.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use axum::http::HeaderName;
use clap::Args;

use super::failure::WrongCall;
use crate::pages::{self, Access, Proxy, Token, VIEWER};
use crate::port_tls::PortTls;

/// Heading of these options.
const PAGES: &str = "Options of the pages";

/// People who may look or act, and where the pages are.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = PAGES)]
pub struct PagesArgs {
    /// Everybody may look, nobody may act.
    #[arg(long, requires = "listen", env = "TUSKLINE_READ_ONLY", hide_env_values = true)]
    read_only: bool,
    /// People who sign in with a token. A line is: SHA-256 of the token, role, name.
    #[arg(long, requires = "listen", value_name = "FILE", env = "TUSKLINE_TOKEN_FILE")]
    #[arg(hide_env_values = true)]
    token_file: Option<PathBuf>,
    /// Header in which a proxy says who asks. The proxy sends its secret in Tuskline-Proxy-Secret.
    #[arg(long, requires_all = ["listen", "proxy_secret_file", "header_roles"])]
    #[arg(value_name = "NAME", env = "TUSKLINE_TRUST_HEADER", hide_env_values = true)]
    trust_header: Option<HeaderName>,
    /// File with the secret of the proxy.
    #[arg(
        long,
        requires = "trust_header",
        value_name = "FILE",
        env = "TUSKLINE_PROXY_SECRET_FILE"
    )]
    #[arg(hide_env_values = true)]
    proxy_secret_file: Option<PathBuf>,
    /// Roles of the names in the header. A line is: name, role. A name without a line is refused.
    #[arg(long, requires = "trust_header", value_name = "FILE", env = "TUSKLINE_HEADER_ROLES")]
    #[arg(hide_env_values = true)]
    header_roles: Option<PathBuf>,
    /// Name of a host under which the pages are asked for, beside those of loopback.
    #[arg(long, requires = "listen", value_name = "NAME", env = "TUSKLINE_HOST")]
    #[arg(hide_env_values = true, value_delimiter = ',', value_parser = host)]
    host: Vec<String>,
    /// Path before every address of a page, e.g. /tuskline.
    #[arg(long, requires = "listen", value_name = "PATH", env = "TUSKLINE_BASE_PATH")]
    #[arg(hide_env_values = true, value_parser = base)]
    base_path: Option<String>,
    /// A proxy in front speaks TLS, and the way from it is safe.
    #[arg(long, requires = "listen", env = "TUSKLINE_BEHIND_TLS", hide_env_values = true)]
    behind_tls: bool,
    /// Certificates of the port, in PEM. The port then speaks TLS only, also to probes.
    #[arg(long, requires_all = ["listen", "tls_key"], value_name = "FILE", env = "TUSKLINE_TLS_CERT")]
    #[arg(hide_env_values = true)]
    tls_cert: Option<PathBuf>,
    /// The key of the first certificate, in PEM.
    #[arg(long, requires = "tls_cert", value_name = "FILE", env = "TUSKLINE_TLS_KEY")]
    #[arg(hide_env_values = true)]
    tls_key: Option<PathBuf>,
}

/// A name without a port.
fn host(text: &str) -> Result<String, String> {
    let name = text.trim_start_matches('[').trim_end_matches(']');
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte);
    let has_port = name.parse::<std::net::Ipv6Addr>().is_err() && name.contains(':');
    match name.is_empty() || has_port || !name.bytes().all(is_name) {
        true => Err(format!("must be a name without a port, got {text}")),
        false => Ok(name.to_owned()),
    }
}

/// A path as `/tuskline`.
fn base(text: &str) -> Result<String, String> {
    let path = text.trim_end_matches('/');
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte);
    let parts = || path.split('/').skip(1);
    let is_path = path.is_empty()
        || path.starts_with('/') && parts().all(|part| !matches!(part, "" | "." | ".."));
    match is_path && path.bytes().all(is_plain) {
        true => Ok(path.to_owned()),
        false => Err(format!("must be a path as /tuskline, got {text}")),
    }
}

impl PagesArgs {
    /// The pages; `role` is that of a person without a token. None: the port answers probes and metrics
    /// only.
    ///
    /// # Errors
    /// A file is bad, or a secret would cross a network in the clear.
    pub fn options(
        self,
        listen: Option<SocketAddr>,
        role: Option<&str>,
    ) -> Result<Option<pages::Options>> {
        let Some(listen) = listen else { return Ok(None) };
        let is_loopback = listen.ip().is_loopback();
        let tokens = self.token_file.as_deref().map(tokens).transpose()?;
        let proxy = self.trust_header.clone().map(|header| self.proxy(header)).transpose()?;
        let has_secret = tokens.is_some() || proxy.is_some();
        let is_secure = self.behind_tls || self.tls_cert.is_some();
        if has_secret && !is_loopback && !is_secure {
            return Err(wrong(format!(
                "a token or a proxy's secret would cross the network in the clear: give --tls-cert \
                 and --tls-key, or --behind-tls if a proxy speaks TLS, or listen on loopback, not \
                 on {listen}"
            )));
        }
        let access = Access {
            role: role.filter(|role| !role.is_empty()).unwrap_or(VIEWER).to_owned(),
            read_only: self.read_only,
            is_loopback,
            tokens: tokens.unwrap_or_default(),
            proxy,
            hosts: self.host,
            is_secure,
            ..Access::default()
        };
        let base = self.base_path.unwrap_or_default();
        let is_there = is_loopback || self.read_only || has_secret;
        Ok(is_there.then_some(pages::Options { access, base }))
    }

    /// The certificate and key of the port.
    ///
    /// # Errors
    /// A file is bad.
    pub fn tls(&self) -> Result<Option<PortTls>> {
        match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => Ok(Some(PortTls::read(cert, key).map_err(wrong)?)),
            _ => Ok(None),
        }
    }

    fn proxy(&self, header: HeaderName) -> Result<Proxy> {
        let file = self.proxy_secret_file.as_deref().unwrap_or(Path::new(""));
        let secret = read(file)?.trim().to_owned();
        if secret.len() < 16 {
            return Err(wrong(format!(
                "{}: the secret must have at least 16 bytes",
                file.display()
            )));
        }
        let file = self.header_roles.as_deref().unwrap_or(Path::new(""));
        let roles = lines(file, |line| {
            let (name, role) = line.split_once(char::is_whitespace).ok_or("must be: name role")?;
            Ok((name.to_owned(), one_word(role)?))
        })?;
        let all = roles.len();
        let roles: BTreeMap<String, String> = roles.into_iter().collect();
        if roles.len() < all {
            return Err(wrong(format!("{}: a name has two lines", file.display())));
        }
        Ok(Proxy { header, secret, roles })
    }
}

fn wrong(why: String) -> anyhow::Error {
    WrongCall(why).into()
}

fn tokens(file: &Path) -> Result<Vec<Token>> {
    let tokens = lines(file, token)?;
    if tokens.is_empty() {
        return Err(wrong(format!("{}: has no token", file.display())));
    }
    Ok(tokens)
}

/// A line of the token file.
fn token(line: &str) -> Result<Token, &'static str> {
    let mut words = line.splitn(3, char::is_whitespace);
    let (Some(hash), Some(role), Some(name)) = (words.next(), words.next(), words.next()) else {
        return Err("must be: SHA-256 in hexadecimal digits, role, name");
    };
    let hash = pages::hex(hash).and_then(|bytes| bytes.try_into().ok());
    let hash =
        hash.ok_or("the first word must be the SHA-256 of a token: 64 hexadecimal digits")?;
    let name = name.trim();
    if name.is_empty() || name.chars().any(char::is_control) || name.len() > 200 {
        return Err("the name must have 1 to 200 bytes");
    }
    Ok(Token { hash, role: role.to_owned(), name: name.to_owned() })
}

fn one_word(text: &str) -> Result<String, &'static str> {
    let text = text.trim();
    match text.is_empty() || text.contains(char::is_whitespace) {
        true => Err("must be: name role"),
        false => Ok(text.to_owned()),
    }
}

/// Reads the lines of a file that are no comment. The text of a line is not in its error.
fn lines<T>(file: &Path, read_line: impl Fn(&str) -> Result<T, &'static str>) -> Result<Vec<T>> {
    let text = read(file)?;
    let all = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    let all = all.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let read = all.map(|(number, line)| {
        let bad = |why| wrong(format!("{}, line {number}: {why}", file.display()));
        read_line(line).map_err(bad)
    });
    read.collect()
}

fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_token_file_is_a_hash_a_role_and_a_name() {
        let hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
        let read = token(&format!("{hash} payments Ada Lovelace")).expect("a token");
        assert_eq!((read.role.as_str(), read.name.as_str()), ("payments", "Ada Lovelace"));
        assert_eq!(read.hash, pages::hash("test"));
        for wrong in [
            hash.to_owned(),
            format!("{hash} payments"),
            format!("{hash} payments  "),
            format!("{} payments ada", &hash[2..]),
            format!("{hash}00 payments ada"),
            format!("{} payments ada", hash.replace('9', "g")),
            "test payments ada".to_owned(),
        ] {
            assert!(token(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_host_has_no_port_and_a_base_is_a_plain_path() {
        for (text, is_one) in [
            ("a.example", true),
            ("::1", true),
            ("[::1]", true),
            ("a:80", false),
            ("", false),
            ("a b", false),
            ("a/b", false),
        ] {
            assert_eq!(host(text).is_ok(), is_one, "{text}");
        }
        for (text, path) in [
            ("/x", Some("/x")),
            ("/x/y/", Some("/x/y")),
            ("/", Some("")),
            ("x", None),
            ("//x", None),
            ("/../x", None),
            ("/{x}", None),
        ] {
            assert_eq!(base(text).ok().as_deref(), path, "{text}");
        }
    }

    #[test]
    fn pages_are_where_a_secret_is_safe() {
        let of = |args: PagesArgs, listen: &str| {
            let listen = Some(listen.parse().expect("an address"));
            args.options(listen, None).map(|found| found.is_some())
        };
        let role = |role: Option<&str>| {
            let listen = Some(SocketAddr::from(([127, 0, 0, 1], 1)));
            let found = PagesArgs::default().options(listen, role).expect("pages");
            found.expect("pages").access.role
        };
        assert_eq!(
            [role(None), role(Some("")), role(Some("auditor"))],
            [VIEWER, VIEWER, "auditor"]
        );
        let read_only = || PagesArgs { read_only: true, ..PagesArgs::default() };
        assert!(of(PagesArgs::default(), "127.0.0.1:1").expect("pages"));
        assert!(!of(PagesArgs::default(), "10.0.0.1:1").expect("no pages"));
        assert!(of(read_only(), "10.0.0.1:1").expect("pages"));
        let file = std::env::temp_dir().join(format!("tuskline-tokens-{}", std::process::id()));
        let hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
        std::fs::write(&file, format!("# people\n\n{hash} payments ada\n")).expect("a file");
        let with = |behind_tls| PagesArgs {
            token_file: Some(file.clone()),
            behind_tls,
            ..PagesArgs::default()
        };
        assert!(of(with(false), "127.0.0.1:1").expect("pages"));
        assert!(of(with(true), "10.0.0.1:1").expect("pages"));
        let refused = of(with(false), "10.0.0.1:1").expect_err("in the clear").to_string();
        assert!(refused.contains("in the clear"), "{refused}");
        std::fs::write(&file, format!("# people\n\n{hash} payments\n")).expect("a file");
        let refused = of(with(false), "127.0.0.1:1").expect_err("a bad line").to_string();
        std::fs::remove_file(&file).expect("a file");
        assert!(refused.contains(", line 3: must be: SHA-256"), "{refused}");
    }
}
