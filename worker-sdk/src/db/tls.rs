//! TLS to the database: which hosts need it, and how a host proves its identity.
//!
//! Promises: no password and no statement goes to a host on another machine that has not proved its
//! identity, unless the address asks for less by name.

#[cfg(feature = "tls")]
mod connector;
#[cfg(feature = "tls")]
mod provider;
pub(crate) mod refusal;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, Host, SslMode, SslNegotiation};

#[cfg(feature = "tls")]
pub use connector::Stream;
/// The stream of a connection, with TLS or without.
#[cfg(not(feature = "tls"))]
pub type Stream = tokio_postgres::tls::NoTlsStream;

/// How much a host has to prove. The order is that of libpq.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// No TLS.
    Disable,
    /// TLS if the server has it, without proof.
    Prefer,
    /// TLS without proof.
    Require,
    /// TLS, and the certificate is signed by an authority of `sslrootcert`.
    VerifyCa,
    /// The same, and the certificate names the host.
    VerifyFull,
}

/// The options of TLS that are given, by name.
pub(crate) type TlsOptions = BTreeMap<&'static str, String>;

const MODES: [(&str, Mode); 5] = [
    ("disable", Mode::Disable),
    ("prefer", Mode::Prefer),
    ("require", Mode::Require),
    ("verify-ca", Mode::VerifyCa),
    ("verify-full", Mode::VerifyFull),
];

impl Mode {
    pub(crate) fn label(self) -> &'static str {
        MODES[self as usize].0
    }

    fn for_tokio_postgres(self) -> SslMode {
        match self {
            Self::Disable => SslMode::Disable,
            Self::Prefer => SslMode::Prefer,
            Self::Require | Self::VerifyCa | Self::VerifyFull => SslMode::Require,
        }
    }
}

/// The authorities that are trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Roots {
    /// The authorities of the system.
    System,
    /// The authorities of a PEM file.
    File(PathBuf),
}

/// The versions of TLS that are spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Versions {
    From12,
    Only12,
    Only13,
}

impl Versions {
    /// From the oldest and the newest version that an address allows.
    fn of(oldest: Option<&str>, newest: Option<&str>) -> Result<Self, String> {
        let (least, most) = ("ssl_min_protocol_version", "ssl_max_protocol_version");
        let known = |name: &str, value: &str| {
            Err(format!("{name} must be TLSv1.2 or TLSv1.3, got {value:?}"))
        };
        let from_13 = match oldest {
            // A server of TLS 1.2 may be older than asked for, and none older is spoken to.
            None | Some("TLSv1" | "TLSv1.1" | "TLSv1.2") => false,
            Some("TLSv1.3") => true,
            Some(other) => return known(least, other),
        };
        match newest {
            None | Some("TLSv1.3") if from_13 => Ok(Self::Only13),
            None | Some("TLSv1.3") => Ok(Self::From12),
            Some("TLSv1.2") if from_13 => Err(format!("{least} is newer than {most}")),
            Some("TLSv1.2") => Ok(Self::Only12),
            Some(other) => known(most, other),
        }
    }
}

/// The settings of TLS of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsSettings {
    /// None: by the host, see [`TlsSettings::mode_for`].
    mode: Option<Mode>,
    roots: Roots,
    /// PEM files of the certificate and the key that the client shows.
    identity: Option<(PathBuf, PathBuf)>,
    /// PEM file of the lists of revoked certificates.
    revoked: Option<PathBuf>,
    versions: Versions,
}

impl TlsSettings {
    /// By the `ssl_mode` of a configuration, whose default is prefer.
    pub(crate) fn of(config: &Config) -> Self {
        let mode = match config.get_ssl_mode() {
            SslMode::Disable => Some(Mode::Disable),
            SslMode::Require => Some(Mode::VerifyFull),
            _ => None,
        };
        let versions = Versions::From12;
        Self { mode, roots: Roots::System, identity: None, revoked: None, versions }
    }

    /// Reads the options, and puts into `config` the ones that are left to tokio-postgres.
    ///
    /// # Errors
    /// The option that is wrong, and its remedy.
    pub(crate) fn read(options: &TlsOptions, config: &mut Config) -> Result<Self, String> {
        let given = |name| options.get(name).map(String::as_str);
        let mut mode = match (given("sslmode"), given("sslrootcert")) {
            (Some(label), _) => Some(mode_of(label)?),
            (None, Some(_)) => Some(Mode::VerifyFull),
            (None, None) => None,
        };
        let roots = match given("sslrootcert") {
            None | Some("system") => Roots::System,
            Some(file) => Roots::File(file.into()),
        };
        match given("sslnegotiation") {
            None | Some("postgres") => {}
            Some("direct") => {
                let mode = *mode.get_or_insert(Mode::VerifyFull);
                if mode < Mode::Require {
                    return Err(format!(
                        "sslnegotiation=direct needs sslmode=require or stronger, it is {}",
                        mode.label()
                    ));
                }
                config.ssl_negotiation(SslNegotiation::Direct);
            }
            Some(other) => {
                return Err(format!("sslnegotiation must be postgres or direct, got {other:?}"));
            }
        }
        let binding = channel_binding(given("channel_binding"), mode)?;
        config.channel_binding(binding);
        match (&roots, mode, given("sslrootcert")) {
            // As libpq does: a root file turns require into verify-ca.
            (Roots::File(_), Some(Mode::Require), _) => mode = Some(Mode::VerifyCa),
            (Roots::System, Some(Mode::VerifyCa), _) => {
                return Err(
                    "sslmode=verify-ca needs sslrootcert=FILE: an authority of the system signs \
                            certificates for any host; or use verify-full"
                        .to_owned(),
                );
            }
            (Roots::System, Some(weak), Some("system")) if weak < Mode::VerifyFull => {
                let label = weak.label();
                return Err(format!("sslrootcert=system needs sslmode=verify-full, it is {label}"));
            }
            _ => {}
        }
        let identity = match (given("sslcert"), given("sslkey")) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            (Some(_), None) => return Err("sslcert needs sslkey, the file of its key".to_owned()),
            (None, Some(_)) => {
                return Err("sslkey needs sslcert, the file of the certificate".to_owned());
            }
        };
        let revoked = given("sslcrl").map(PathBuf::from);
        if revoked.is_some() && mode.is_some_and(|mode| mode < Mode::VerifyCa) {
            return Err("sslcrl needs sslmode=verify-ca or verify-full".to_owned());
        }
        let versions =
            Versions::of(given("ssl_min_protocol_version"), given("ssl_max_protocol_version"))?;
        if cfg!(not(feature = "tls")) && mode.is_some_and(|mode| mode > Mode::Prefer) {
            let label = mode.unwrap_or(Mode::Require).label();
            return Err(format!("sslmode={label} needs the feature `tls`, which this build lacks"));
        }
        Ok(Self { mode, roots, identity, revoked, versions })
    }

    /// The options that [`TlsSettings::read`] would read as these settings.
    pub(crate) fn options(&self, config: &Config) -> TlsOptions {
        let mut options = TlsOptions::new();
        if let Some(mode) = self.mode {
            options.insert("sslmode", mode.label().to_owned());
        } else if config.get_hosts().iter().any(|host| !is_here(Some(host), None)) {
            options.insert("sslmode", Mode::VerifyFull.label().to_owned());
            options.insert("sslrootcert", "system".to_owned());
        }
        if let Roots::File(file) = &self.roots {
            options.insert("sslrootcert", file.display().to_string());
        }
        if let Some((certificate, key)) = &self.identity {
            options.insert("sslcert", certificate.display().to_string());
            options.insert("sslkey", key.display().to_string());
        }
        if let Some(file) = &self.revoked {
            options.insert("sslcrl", file.display().to_string());
        }
        match self.versions {
            Versions::From12 => None,
            Versions::Only12 => options.insert("ssl_max_protocol_version", "TLSv1.2".to_owned()),
            Versions::Only13 => options.insert("ssl_min_protocol_version", "TLSv1.3".to_owned()),
        };
        match config.get_channel_binding() {
            ChannelBinding::Require => options.insert("channel_binding", "require".to_owned()),
            ChannelBinding::Disable => options.insert("channel_binding", "disable".to_owned()),
            _ => None,
        };
        if config.get_ssl_negotiation() == SslNegotiation::Direct {
            options.insert("sslnegotiation", "direct".to_owned());
        }
        options
    }

    /// True: the client shows a certificate.
    #[cfg(feature = "tls")]
    fn has_identity(&self) -> bool {
        self.identity.is_some()
    }

    /// Without the feature `tls` there is none.
    ///
    /// # Errors
    /// None.
    #[cfg(not(feature = "tls"))]
    pub(crate) fn connector(
        &self,
        _: Mode,
    ) -> Result<tokio_postgres::NoTls, crate::error::TlsRefusal> {
        Ok(tokio_postgres::NoTls)
    }

    /// How much the first host of a configuration has to prove. A Unix socket has no TLS.
    pub(crate) fn mode_for(&self, config: &Config) -> Mode {
        let (host, address) = (config.get_hosts().first(), config.get_hostaddrs().first());
        match (host, self.mode) {
            #[cfg(unix)]
            (Some(Host::Unix(_)), _) => Mode::Disable,
            (_, Some(mode)) => mode,
            _ if cfg!(not(feature = "tls")) || is_here(host, address.copied()) => Mode::Prefer,
            _ => Mode::VerifyFull,
        }
    }

    /// Makes a configuration of one host ask for TLS as this mode does. TLS needs a name of the host.
    pub(crate) fn apply(mode: Mode, config: &mut Config) {
        config.ssl_mode(mode.for_tokio_postgres());
        if mode < Mode::Require {
            config.ssl_negotiation(SslNegotiation::Postgres);
        }
        if let ([], [address]) = (config.get_hosts(), config.get_hostaddrs()) {
            let name = address.to_string();
            config.host(name);
        }
    }
}

fn channel_binding(label: Option<&str>, mode: Option<Mode>) -> Result<ChannelBinding, String> {
    match label {
        None | Some("prefer") => Ok(ChannelBinding::Prefer),
        Some("disable") => Ok(ChannelBinding::Disable),
        Some("require") if mode == Some(Mode::Disable) => {
            Err("channel_binding=require needs TLS, and sslmode is disable".to_owned())
        }
        Some("require") => Ok(ChannelBinding::Require),
        Some(other) => {
            Err(format!("channel_binding must be disable, prefer or require, got {other:?}"))
        }
    }
}

fn mode_of(label: &str) -> Result<Mode, String> {
    let found = MODES.iter().find(|(known, _)| *known == label);
    found.map(|(_, mode)| *mode).ok_or_else(|| {
        let hint = if label == "allow" { ": instead of allow, use prefer" } else { "" };
        format!(
            "sslmode must be disable, prefer, require, verify-ca or verify-full, got {label:?}{hint}"
        )
    })
}

/// True: the host is this machine.
fn is_here(host: Option<&Host>, address: Option<IpAddr>) -> bool {
    let loops = |address: IpAddr| address.is_loopback();
    match (address, host) {
        (Some(address), _) => loops(address),
        (None, Some(Host::Tcp(name))) => name == "localhost" || name.parse().is_ok_and(loops),
        #[cfg(unix)]
        (None, Some(Host::Unix(_))) => true,
        (None, None) => true,
    }
}

#[cfg(test)]
mod tests;
