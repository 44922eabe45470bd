//! Refusals of TLS as a user reads them: the error, the host, and the setting that mends it.

use std::error::Error as _;

#[cfg(feature = "tls")]
use rustls::{AlertDescription, CertificateError, Error as Rustls};
use tokio_postgres::config::SslNegotiation;
#[cfg(feature = "tls")]
use tokio_postgres::error::SqlState;
use tokio_postgres::{Config, Error};

use crate::db::address::host_name;
#[cfg(feature = "tls")]
use crate::db::tls::connector::AS_VERSION_3;
use crate::db::tls::{Mode, TlsSettings};
#[cfg(feature = "tls")]
use crate::db::tls::{Roots, Versions, connector, provider};
use crate::error::TlsRefusal;

/// The refusal that an error of a connection is; none: it has nothing to do with TLS.
pub(crate) fn explain(
    error: &Error,
    config: &Config,
    mode: Mode,
    tls: &TlsSettings,
) -> Option<TlsRefusal> {
    let source = error.source()?;
    let host = &config.get_hosts().first().map(host_name).unwrap_or_default();
    let direct = config.get_ssl_negotiation() == SslNegotiation::Direct;
    let by_text = |text: String, hint: &str| Some(TlsRefusal::new(text).hinting(hint));
    // These two come as texts only.
    match source.to_string().as_str() {
        "server does not support TLS" => {
            return by_text(
                format!("{host} has no TLS, and sslmode={} demands it", mode.label()),
                "set sslmode=disable if all machines on the way are trusted",
            );
        }
        "server did not use channel binding" => {
            return by_text(
                format!("{host} offers no channel binding, and channel_binding=require demands it"),
                "let the role log in by scram-sha-256 over TLS (pg_hba.conf), or set channel_binding=prefer",
            );
        }
        _ => {}
    }
    #[cfg(feature = "tls")]
    {
        let db = error.as_db_error();
        if db.is_some_and(|db| *db.code() == SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
            && mode > Mode::Prefer
            && !tls.has_identity()
        {
            let message = db.map(|db| db.message().to_owned()).unwrap_or_default();
            return by_text(
                format!("{host} refuses the login: {message}"),
                "if the server demands a client certificate, set sslcert and sslkey; else see pg_hba.conf",
            );
        }
        match connector::cause(source) {
            Some(cause) => of_rustls(cause, host, mode, tls),
            // A server before 17 takes the greeting of TLS for a broken message, and closes.
            None if direct && db.is_none() && is_closed(source) => by_text(
                format!("{host} closed the connection at the first message of TLS"),
                DIRECT_TLS,
            ),
            None => None,
        }
    }
    #[cfg(not(feature = "tls"))]
    {
        let _ = (mode, tls, direct);
        None
    }
}

#[cfg(feature = "tls")]
fn of_rustls(error: &Rustls, host: &str, mode: Mode, tls: &TlsSettings) -> Option<TlsRefusal> {
    let too_old = || match tls.versions {
        Versions::Only13 => TlsRefusal::new(format!(
            "{host} speaks no TLS 1.3, and ssl_min_protocol_version demands it"
        ))
        .hinting("set ssl_min_protocol_version=TLSv1.2"),
        _ => TlsRefusal::new(format!("{host} speaks no TLS 1.2 or later")).hinting(OLD_TLS),
    };
    let refusal = match error {
        error if connector::is_old_version(error) => TlsRefusal::new(format!(
            "the certificate of {host} is of X.509 v1, which names no host"
        ))
        .hinting(format!("let an authority sign it again with a subjectAltName: {AS_VERSION_3}")),
        Rustls::AlertReceived(AlertDescription::ProtocolVersion) => too_old(),
        Rustls::PeerIncompatible(_) => too_old(),
        Rustls::InvalidCertificate(why) => of_certificate(why, host, &tls.roots),
        Rustls::AlertReceived(alert) => of_alert(*alert, host, tls.has_identity()),
        error => TlsRefusal::new(format!("TLS with {host} failed: {error}")),
    };
    Some(match (mode, refusal.hint()) {
        (Mode::VerifyFull | Mode::VerifyCa, _) | (_, None) => refusal,
        (_, Some(hint)) => {
            let hint = format!("{hint} (sslmode={})", mode.label());
            refusal.hinting(hint)
        }
    })
}

/// The connection ended, and the server has said nothing.
#[cfg(feature = "tls")]
fn is_closed(source: &(dyn std::error::Error + 'static)) -> bool {
    use std::io::{Error as Io, ErrorKind};
    source.downcast_ref::<Io>().is_some_and(|error| {
        matches!(
            error.kind(),
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
        )
    })
}

#[cfg(feature = "tls")]
const DIRECT_TLS: &str = "sslnegotiation=direct needs PostgreSQL 17 or later: else leave it out";

#[cfg(feature = "tls")]
const OLD_TLS: &str = "raise ssl_max_protocol_version of the server to TLSv1.2 or later";

#[cfg(feature = "tls")]
fn of_certificate(why: &CertificateError, host: &str, roots: &Roots) -> TlsRefusal {
    let of = format!("the certificate of {host}");
    let other_host = |text: String| {
        TlsRefusal::new(text).hinting(
            "connect by a name of the certificate, or set sslmode=verify-ca with sslrootcert=FILE",
        )
    };
    match why {
        CertificateError::UnknownIssuer => {
            let text = match roots {
                Roots::System => format!("{of} is not signed by an authority of this system"),
                Roots::File(file) => {
                    format!("{of} is not signed by an authority in sslrootcert={}", file.display())
                }
            };
            TlsRefusal::new(text).hinting(provider::remedy(host))
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => TlsRefusal::new(
            format!("{of} has expired"),
        )
        .hinting("renew it (ssl_cert_file of the server), and check the clock of this machine"),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            TlsRefusal::new(format!("{of} is not valid yet"))
                .hinting("check the clocks of the server and of this machine")
        }
        CertificateError::NotValidForName => other_host(format!("{of} is for another host")),
        CertificateError::NotValidForNameContext { presented, .. } => {
            let names: Vec<_> = presented.iter().map(|name| plain(name)).collect();
            let names = match names.is_empty() {
                true => "names no host (it has no subjectAltName)".to_owned(),
                false => format!("is for {}", names.join(", ")),
            };
            other_host(format!("{of} {names}, not for {host}"))
        }
        CertificateError::UnknownRevocationStatus => {
            TlsRefusal::new(format!("sslcrl has no list of the authority that signed {of}"))
                .hinting("put the list of each authority of the chain into sslcrl")
        }
        CertificateError::ExpiredRevocationList
        | CertificateError::ExpiredRevocationListContext { .. } => {
            TlsRefusal::new("the list of revoked certificates in sslcrl is out of date")
                .hinting("fetch the present list of the authority")
        }
        CertificateError::Revoked => TlsRefusal::new(format!("{of} is revoked")),
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            let text = format!("{of} is self-signed: it is the certificate of an authority itself");
            TlsRefusal::new(text).hinting(
                "sign the server's certificate with an authority, and set sslrootcert to the authority's file",
            )
        }
        why => TlsRefusal::new(format!("{of} is not accepted: {why}")),
    }
}

/// `DnsName("db.example.com")` as rustls lists it.
#[cfg(feature = "tls")]
fn plain(presented: &str) -> String {
    let inner = presented.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(presented).trim_matches('"').to_owned()
}

#[cfg(feature = "tls")]
fn of_alert(alert: AlertDescription, host: &str, identity: bool) -> TlsRefusal {
    use AlertDescription as Alert;
    let refuses = format!("{host} refuses the client certificate");
    match alert {
        Alert::CertificateRequired | Alert::HandshakeFailure if !identity => {
            TlsRefusal::new(format!("{host} demands a client certificate"))
                .hinting("set sslcert and sslkey")
        }
        Alert::CertificateRevoked => {
            TlsRefusal::new(format!("{refuses}: it is revoked")).hinting("set sslcert to a new one")
        }
        Alert::CertificateExpired => TlsRefusal::new(format!("{refuses}: it has expired"))
            .hinting("set sslcert to a new one"),
        Alert::UnknownCA => {
            TlsRefusal::new(format!("{refuses}: its authority is unknown to the server"))
                .hinting("set sslcert to one of an authority in ssl_ca_file of the server")
        }
        Alert::BadCertificate | Alert::CertificateUnknown | Alert::UnsupportedCertificate => {
            TlsRefusal::new(format!("{refuses} ({alert:?})")).hinting("see the log of the server")
        }
        Alert::NoApplicationProtocol => {
            TlsRefusal::new(format!("{host} does not speak PostgreSQL over TLS directly"))
                .hinting(DIRECT_TLS)
        }
        alert => TlsRefusal::new(format!("{host} ended the TLS handshake: {alert:?}")),
    }
}
