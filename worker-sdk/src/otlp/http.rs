//! The HTTP client of the exporter. It blocks the thread that sends. This is a plain thread, so the
//! last spans of a process need no running async runtime.
//!
//! Must never: log a header, which can hold a key.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{
    OTEL_EXPORTER_OTLP_TIMEOUT, OTEL_EXPORTER_OTLP_TIMEOUT_DEFAULT,
    OTEL_EXPORTER_OTLP_TRACES_TIMEOUT,
};

/// Most bytes of an answer that are read. The clients of the exporter have the same bound.
const ANSWER_MAX: u64 = 4 * 1024 * 1024;

/// Logs when the collector stops taking spans, and when it takes them again.
#[derive(Debug)]
pub(super) struct Client {
    agent: ureq::Agent,
    away: AtomicBool,
}

impl Client {
    pub fn from_env() -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(timeout()))
            .http_status_as_error(false)
            .max_redirects(0);
        #[cfg(feature = "tls")]
        let config = config.tls_config(tls());
        Self { agent: config.build().into(), away: AtomicBool::new(false) }
    }

    fn post(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ureq::Error> {
        let (parts, body) = request.into_parts();
        let answer = self.agent.run(Request::from_parts(parts, &body[..]))?;
        let (parts, body) = answer.into_parts();
        let body = body.into_with_config().limit(ANSWER_MAX).read_to_vec()?;
        Ok(Response::from_parts(parts, body.into()))
    }

    fn tell(&self, collector: &str, sent: &Result<Response<Bytes>, ureq::Error>) {
        let refusal = match sent {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("it answers {}", answer.status())),
            Err(error) => Some(error.to_string()),
        };
        let was_away = self.away.swap(refusal.is_some(), Ordering::Relaxed);
        match refusal {
            Some(reason) if !was_away => tracing::warn!(
                collector,
                reason,
                "the collector takes no spans: they are dropped, and no task waits for it"
            ),
            None if was_away => tracing::info!(collector, "the collector takes spans again"),
            Some(_) | None => {}
        }
    }
}

#[async_trait::async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let collector = request.uri().host().unwrap_or_default().to_owned();
        let sent = self.post(request);
        self.tell(&collector, &sent);
        Ok(sent?)
    }
}

/// Timeout of one request. The exporter has the same setting, but applies it only to clients of its
/// own.
fn timeout() -> Duration {
    let names = [OTEL_EXPORTER_OTLP_TRACES_TIMEOUT, OTEL_EXPORTER_OTLP_TIMEOUT];
    let given = names.iter().find_map(|name| std::env::var(name).ok()?.parse().ok());
    given.map_or(OTEL_EXPORTER_OTLP_TIMEOUT_DEFAULT, Duration::from_millis)
}

/// Trusts the authorities of the system, as a connection to the database does.
#[cfg(feature = "tls")]
fn tls() -> ureq::tls::TlsConfig {
    use std::sync::Arc;

    use ureq::tls::{Certificate, RootCerts, TlsConfig};

    let roots = rustls_native_certs::load_native_certs().certs;
    let roots: Vec<_> = roots.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
    TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&roots))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build()
}
