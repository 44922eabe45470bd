//! The options of libpq that tokio-postgres does not read: those that are read here, and those that are refused by
//! name.

use tokio_postgres::Config;
use tokio_postgres::config::TargetSessionAttrs;

use super::InvalidAddress;

/// The options that stand in an address and are read here, by name.
pub(super) type Options = crate::db::tls::TlsOptions;

/// The options of TLS: the name in an address, and the variable that holds for an address without it.
pub(super) const TLS_OPTIONS: [(&str, &str); 9] = [
    ("sslmode", "PGSSLMODE"),
    ("sslrootcert", "PGSSLROOTCERT"),
    ("sslcrl", "PGSSLCRL"),
    ("sslcert", "PGSSLCERT"),
    ("sslkey", "PGSSLKEY"),
    ("sslnegotiation", "PGSSLNEGOTIATION"),
    ("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION"),
    ("ssl_max_protocol_version", "PGSSLMAXPROTOCOLVERSION"),
    ("channel_binding", "PGCHANNELBINDING"),
];

/// Further options that are read here.
const OTHERS: [&str; 6] = [
    "passfile",
    "gssencmode",
    "client_encoding",
    "fallback_application_name",
    "keepalives_count",
    "target_session_attrs",
];

const NO_GSSAPI: &str = "GSSAPI is not built in";
const NO_OAUTH: &str = "OAuth is not built in";
const NO_SERVICE: &str = "give the options of the service themselves";
const NO_SCRAM_KEY: &str = "give the password";
const ONE_PROTOCOL: &str = "version 3.0 of the protocol is spoken, and no other";

/// Options of libpq that nothing here obeys, and why, or what to do instead.
const REFUSED: [(&str, &str); 23] = [
    ("gssdelegation", NO_GSSAPI),
    ("gsslib", NO_GSSAPI),
    ("krbsrvname", NO_GSSAPI),
    ("max_protocol_version", ONE_PROTOCOL),
    ("min_protocol_version", ONE_PROTOCOL),
    ("oauth_client_id", NO_OAUTH),
    ("oauth_client_secret", NO_OAUTH),
    ("oauth_issuer", NO_OAUTH),
    ("oauth_scope", NO_OAUTH),
    ("replication", "no session replicates"),
    ("require_auth", "channel_binding=require keeps the password from any other server"),
    ("requirepeer", "the owner of a socket is not looked at"),
    ("requiressl", "set sslmode=require"),
    ("scram_client_key", NO_SCRAM_KEY),
    ("scram_server_key", NO_SCRAM_KEY),
    ("service", NO_SERVICE),
    ("servicefile", NO_SERVICE),
    ("sslcertmode", "sslcert is shown to a server that asks for it"),
    ("sslcompression", "it is unsafe, and PostgreSQL 14 removed it"),
    ("sslcrldir", "put the lists into one PEM file, and set sslcrl"),
    ("sslkeylogfile", "no key of a session is written down"),
    ("sslpassword", "give a key without a password as sslkey"),
    ("sslsni", "the name of the host is always sent"),
];

/// The name of an option that is read here; none: tokio-postgres reads it.
///
/// # Errors
/// Nothing reads it, and libpq does.
pub(super) fn known(name: &str) -> Result<Option<&'static str>, InvalidAddress> {
    if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
        return Err(InvalidAddress(format!("the option {name} is not supported: {why}")));
    }
    let ours = TLS_OPTIONS.iter().map(|(ours, _)| *ours).chain(OTHERS);
    Ok(ours.into_iter().find(|ours| *ours == name))
}

/// Puts the options that are not of TLS into the configuration; `passfile` and `fallback_application_name` have
/// their turn after the environment.
///
/// # Errors
/// A value that nothing here can obey.
pub(super) fn apply(options: &Options, config: &mut Config) -> Result<(), InvalidAddress> {
    let given = |name| options.get(name).map(String::as_str);
    match given("gssencmode") {
        None | Some("disable" | "prefer") => {}
        Some(mode) => {
            return Err(InvalidAddress(format!(
                "gssencmode must be disable, got {mode:?}: {NO_GSSAPI}"
            )));
        }
    }
    if let Some(encoding) = given("client_encoding") {
        let plain = encoding.to_ascii_lowercase().replace(['-', '_'], "");
        if !matches!(plain.as_str(), "utf8" | "auto") {
            let text = format!("client_encoding must be UTF8, got {encoding:?}");
            return Err(InvalidAddress(text));
        }
    }
    if let Some(count) = given("keepalives_count") {
        let count = count.parse().map_err(|_| wrong("keepalives_count", count))?;
        config.keepalives_retries(count);
    }
    if let Some(kind) = given("target_session_attrs") {
        config.target_session_attrs(session_kind("target_session_attrs", kind)?);
    }
    Ok(())
}

/// The sessions that an address wants, by libpq's names.
///
/// # Errors
/// It is none of these names.
pub(super) fn session_kind(name: &str, kind: &str) -> Result<TargetSessionAttrs, InvalidAddress> {
    match kind {
        "any" => Ok(TargetSessionAttrs::Any),
        "read-write" | "primary" => Ok(TargetSessionAttrs::ReadWrite),
        "read-only" | "standby" => Ok(TargetSessionAttrs::ReadOnly),
        "prefer-standby" => Err(InvalidAddress(format!(
            "{name}=prefer-standby is not supported: set read-write for a worker or a server"
        ))),
        _ => Err(wrong(name, kind)),
    }
}

pub(super) fn wrong(name: &str, value: &str) -> InvalidAddress {
    InvalidAddress(format!("{name} is not understood: {value:?}"))
}
