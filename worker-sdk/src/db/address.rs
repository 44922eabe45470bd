//! The address of a database: a URL or `key=value` pairs, as libpq reads them, and the `PG*` environment.
//!
//! tokio-postgres reads most options, [`TlsSettings`] those of TLS, and `options` the others of libpq.
//! Must never: print an address, or quote one in an error: it may hold a password.

mod options;
mod passfile;

use std::str::FromStr;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, TargetSessionAttrs};

use crate::db::tls::TlsSettings;
use options::{Options, TLS_OPTIONS, known, session_kind, wrong};

/// The address of a database, with its settings of TLS.
///
/// ```
/// use tuskline_sdk::Address;
///
/// let of_url: Address = "postgresql://app@db.example.com/shop?sslrootcert=/etc/ca.pem".parse()?;
/// let of_pairs: Address = "host=/run/postgresql dbname=shop".parse()?;
/// # Ok::<(), tuskline_sdk::InvalidAddress>(())
/// ```
///
/// The options are those of libpq; one that nothing here can obey is refused by name. For an option that the text
/// lacks, the environment counts: `PGHOST`,
/// `PGPORT`, `PGUSER`, `PGDATABASE`, `PGPASSWORD`, `PGPASSFILE`, `PGOPTIONS`, `PGAPPNAME`,
/// `PGCONNECT_TIMEOUT` (seconds), `PGTARGETSESSIONATTRS`, `PGSSLMODE`, `PGSSLROOTCERT`, `PGSSLCERT`,
/// `PGSSLKEY`, `PGSSLNEGOTIATION` and `PGCHANNELBINDING`. A password file is read when the address is read; its
/// password is that of the first host. As with libpq, it is ignored if other accounts can read it.
///
/// One default differs from libpq's: without `sslmode`, a host on another machine must prove its identity
/// (`verify-full`, with the root certificates of the system). A Unix socket or a loopback address counts as
/// this machine; its `sslmode` is `prefer`. With `sslrootcert` it is `verify-full` for each host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    config: Config,
    tls: TlsSettings,
}

/// Why a text is not the address of a database. It does not quote the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidAddress(String);

impl Address {
    /// Everything but the settings of TLS.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The same address with other settings of the session, for example an `application_name`. Do not
    /// change its hosts, `ssl_mode` or `ssl_negotiation` here.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// The same address with sessions that begin as a role. By a startup parameter: a SET would change sessions of
    /// other clients of a transaction pooler. A pooler refuses the parameter, or ignores it.
    #[doc(hidden)]
    #[must_use]
    pub fn acting_as(self, role: &str) -> Self {
        let before = self.config.get_options().unwrap_or_default();
        let mut options = format!("{before} -c role=");
        for one in role.chars() {
            if one == '\\' || one.is_ascii_whitespace() {
                options.push('\\');
            }
            options.push(one);
        }
        self.with(|config| {
            config.options(options);
        })
    }

    /// How to reach its hosts.
    pub(crate) fn tls(&self) -> &TlsSettings {
        &self.tls
    }

    /// The settings of TLS as libpq reads them from the environment, for psql.
    #[doc(hidden)]
    pub fn tls_environment(&self) -> Vec<(&'static str, String)> {
        let set = self.tls.options(&self.config);
        TLS_OPTIONS
            .iter()
            .filter_map(|(name, variable)| Some((*variable, set.get(name)?.clone())))
            .collect()
    }
}

impl From<Config> for Address {
    /// `ssl_mode` of the configuration: disable connects without TLS. Prefer is the default of an address
    /// without `sslmode`. Require verifies the host with the root certificates of the system.
    fn from(config: Config) -> Self {
        Self { tls: TlsSettings::of(&config), config }
    }
}

impl From<&Config> for Address {
    fn from(config: &Config) -> Self {
        Self::from(config.clone())
    }
}

impl From<&Address> for Address {
    fn from(address: &Address) -> Self {
        address.clone()
    }
}

impl FromStr for Address {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let (rest, mut options) = match is_url(text) {
            true => split_url(text)?,
            false => split_pairs(text)?,
        };
        let mut config: Config = rest.parse().map_err(|error| misread(text, &error))?;
        let set = |variable: &str| std::env::var(variable).ok().filter(|value| !value.is_empty());
        for (name, variable) in TLS_OPTIONS {
            if let Some(value) = set(variable) {
                options.entry(name).or_insert(value);
            }
        }
        options::apply(&options, &mut config)?;
        let passfile = options.get("passfile").cloned();
        complete(&mut config, |variable| match (variable, &passfile) {
            ("PGPASSFILE", Some(file)) => Some(file.clone()),
            _ => set(variable),
        })?;
        if config.get_application_name().is_none() {
            options.get("fallback_application_name").map(|name| config.application_name(name));
        }
        let tls = TlsSettings::read(&options, &mut config).map_err(InvalidAddress)?;
        Ok(Self { config, tls })
    }
}

/// An address in one of three forms: a text, an [`Address`], or a configuration of tokio-postgres.
/// [`Client::connect`](crate::Client::connect) and [`Worker::builder`](crate::Worker::builder) accept each.
pub trait IntoAddress {
    /// The address.
    ///
    /// # Errors
    /// The text is not an address.
    fn into_address(self) -> Result<Address, InvalidAddress>;
}

macro_rules! addresses {
    ($($kind:ty => $read:expr),* $(,)?) => { $(
        impl IntoAddress for $kind {
            fn into_address(self) -> Result<Address, InvalidAddress> {
                let read: fn($kind) -> Result<Address, InvalidAddress> = $read;
                read(self)
            }
        }
    )* };
}

addresses! {
    &str => |text| text.parse(),
    &String => |text| text.parse(),
    String => |text| text.parse(),
    Address => Ok,
    &Address => |address| Ok(address.clone()),
    Config => |config| Ok(config.into()),
    &Config => |config| Ok(config.into()),
}

/// A host as an address writes it: its name, or the directory of its socket.
#[doc(hidden)]
pub fn host_name(host: &Host) -> String {
    match host {
        Host::Tcp(name) => name.clone(),
        #[cfg(unix)]
        Host::Unix(directory) => directory.display().to_string(),
    }
}

fn is_url(text: &str) -> bool {
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

/// The error of tokio-postgres. The name of an option is a part of the password if the text has a `?`
/// before its `@`.
fn misread(text: &str, error: &tokio_postgres::Error) -> InvalidAddress {
    let (at, query) = (text.rfind('@'), text.find('?'));
    let may_name = !is_url(text) || query.is_some_and(|query| at.is_none_or(|at| at < query));
    let cause = std::error::Error::source(error).map(ToString::to_string);
    match cause.filter(|cause| may_name && cause.contains("option")) {
        Some(cause) => InvalidAddress(format!("the address is not understood: {cause}")),
        None => InvalidAddress(
            "the address is not understood, give postgresql://user@host:5432/database".to_owned(),
        ),
    }
}

/// Takes the options that are read here out of the query of a URL.
fn split_url(text: &str) -> Result<(String, Options), InvalidAddress> {
    // tokio-postgres ends the password at the first `@`; a `?` before it is a part of the password.
    let start = text.find('@').unwrap_or(0);
    let Some(query) = text[start..].find('?').map(|at| start + at) else {
        return Ok((text.to_owned(), Options::new()));
    };
    let mut options = Options::new();
    let mut rest = Vec::new();
    for pair in text[query + 1..].split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match known(name)? {
            Some(ours) => {
                let value = percent_decode_str(value).decode_utf8();
                let value = value.map_err(|_| InvalidAddress(format!("{ours} is not UTF-8")))?;
                options.insert(ours, value.into_owned());
            }
            None => rest.push(pair),
        }
    }
    let mark = if rest.is_empty() { "" } else { "?" };
    Ok((format!("{}{mark}{}", &text[..query], rest.join("&")), options))
}

/// Takes the options that are read here out of `key=value` pairs. A text that is not well formed stays as it is, for
/// the error of tokio-postgres.
fn split_pairs(text: &str) -> Result<(String, Options), InvalidAddress> {
    let (mut options, mut rest) = (Options::new(), String::new());
    let Some(pairs) = pairs(text) else { return Ok((text.to_owned(), options)) };
    for (name, value) in pairs {
        match known(&name)? {
            Some(ours) => drop(options.insert(ours, value)),
            None => {
                let value = value.replace('\\', "\\\\").replace('\'', "\\'");
                rest.push_str(&format!("{name}='{value}' "));
            }
        }
    }
    Ok((rest, options))
}

/// The pairs of a text; none: it is not well formed. A value may be quoted by `'`, and `\` escapes a character.
fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (name, value) = rest.split_once('=')?;
        let mut left = value.trim_start().chars();
        let quoted = left.clone().next() == Some('\'');
        if quoted {
            left.next();
        }
        let mut value = String::new();
        loop {
            match left.next() {
                Some('\\') => value.push(left.next()?),
                Some('\'') if quoted => break,
                Some(space) if !quoted && space.is_whitespace() => break,
                Some(one) => value.push(one),
                None if quoted => return None,
                None => break,
            }
        }
        pairs.push((name.trim().to_owned(), value));
        rest = left.as_str().trim_start();
    }
    Some(pairs)
}

/// Sets from the environment what the address does not say.
fn complete(
    config: &mut Config,
    set: impl Fn(&str) -> Option<String>,
) -> Result<(), InvalidAddress> {
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        match set("PGHOST") {
            Some(hosts) => hosts.split(',').for_each(|host| {
                config.host(host);
            }),
            None => {
                config.host("localhost");
            }
        }
    }
    if config.get_ports().is_empty()
        && let Some(ports) = set("PGPORT")
    {
        for port in ports.split(',') {
            config.port(port.parse().map_err(|_| wrong("PGPORT", &ports))?);
        }
    }
    if config.get_user().is_none() {
        set("PGUSER").map(|user| config.user(user));
    }
    if config.get_dbname().is_none() {
        set("PGDATABASE").map(|name| config.dbname(name));
    }
    if config.get_password().is_none() {
        match (set("PGPASSWORD"), set("PGPASSFILE")) {
            (Some(password), _) => {
                config.password(password);
            }
            (None, Some(file)) => passfile::complete(config, &file)?,
            (None, None) => {}
        }
    }
    if config.get_options().is_none() {
        set("PGOPTIONS").map(|options| config.options(options));
    }
    if config.get_application_name().is_none() {
        set("PGAPPNAME").map(|name| config.application_name(name));
    }
    if config.get_connect_timeout().is_none()
        && let Some(seconds) = set("PGCONNECT_TIMEOUT")
    {
        let limit = seconds.parse().map_err(|_| wrong("PGCONNECT_TIMEOUT", &seconds))?;
        if limit > 0 {
            config.connect_timeout(Duration::from_secs(limit));
        }
    }
    if config.get_target_session_attrs() == TargetSessionAttrs::Any
        && let Some(kind) = set("PGTARGETSESSIONATTRS")
    {
        config.target_session_attrs(session_kind("PGTARGETSESSIONATTRS", &kind)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
