//! Connects with rustls.

use std::io;
use std::iter::successors;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{Error as Pem, PemObject};
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime,
};
use rustls::version::{TLS12, TLS13};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    SupportedProtocolVersion,
};
use tokio_postgres::Socket;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::db::tls::{Mode, Roots, TlsSettings, Versions};
use crate::error::TlsRefusal;

/// Makes the TLS of connections.
pub type Connector = MakeRustlsConnect;
/// The stream of a connection, with TLS or without.
pub type Stream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// The name of the protocol, by which a server recognises TLS without a request for it.
const ALPN: &[u8] = b"postgresql";

impl TlsSettings {
    /// How a host is connected to. Files are read for each connection: they may be renewed meanwhile.
    ///
    /// # Errors
    /// A file that cannot be read or has no PEM, or a system without root certificates.
    pub(crate) fn connector(&self, mode: Mode) -> Result<Connector, TlsRefusal> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let proves = match mode {
            Mode::VerifyCa | Mode::VerifyFull => {
                let roots = Arc::new(self.roots()?);
                let verifier =
                    WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
                let verifier = verifier.with_crls(self.revoked_lists()?);
                let verifier = verifier.enforce_revocation_expiration().build();
                Some(verifier.map_err(|error| TlsRefusal::new(error.to_string()))?)
            }
            Mode::Disable | Mode::Prefer | Mode::Require => None,
        };
        let named = mode == Mode::VerifyFull;
        let verifier = Arc::new(Verifier { proves, named, provider: Arc::clone(&provider) });
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(self.versions.spoken())
            .map_err(|error| TlsRefusal::new(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match self.identity.as_ref().filter(|_| mode > Mode::Disable) {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates(certificate, "sslcert")?;
                let secret = PrivateKeyDer::from_pem_file(key)
                    .map_err(|error| unreadable("sslkey", "a key", key, &error))?;
                builder
                    .with_client_auth_cert(chain, secret)
                    .map_err(|error| unusable(&error, certificate, key))?
            }
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(MakeRustlsConnect::new(config))
    }

    /// None: nothing is asked of them.
    fn revoked_lists(&self) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsRefusal> {
        let Some(file) = &self.revoked else { return Ok(Vec::new()) };
        all(file, "sslcrl", "a list of revoked certificates")
    }

    fn roots(&self) -> Result<RootCertStore, TlsRefusal> {
        let Roots::File(file) = &self.roots else { return system_roots() };
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(certificates(file, "sslrootcert")?);
        match store.is_empty() {
            false => Ok(store),
            true => Err(TlsRefusal::new(format!(
                "sslrootcert={} has no certificate that can be an authority",
                file.display()
            ))),
        }
    }
}

impl Versions {
    fn spoken(self) -> &'static [&'static SupportedProtocolVersion] {
        static NEWEST_FIRST: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
        match self {
            Self::From12 => &NEWEST_FIRST,
            Self::Only12 => &NEWEST_FIRST[1..],
            Self::Only13 => &NEWEST_FIRST[..1],
        }
    }
}

/// Read once: there are about 140.
fn system_roots() -> Result<RootCertStore, TlsRefusal> {
    static ROOTS: OnceLock<RootCertStore> = OnceLock::new();
    let roots = ROOTS.get_or_init(|| {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        store
    });
    match roots.is_empty() {
        false => Ok(roots.clone()),
        true => Err(TlsRefusal::new("this system has no root certificates")
            .hinting("install them (Debian: ca-certificates), or set sslrootcert=FILE")),
    }
}

fn certificates(file: &Path, option: &str) -> Result<Vec<CertificateDer<'static>>, TlsRefusal> {
    all(file, option, "a certificate")
}

/// All of one kind that a file holds: one at least.
fn all<T: PemObject>(file: &Path, option: &str, what: &str) -> Result<Vec<T>, TlsRefusal> {
    let found = T::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match found {
        Ok(found) if found.is_empty() => Err(unreadable(option, what, file, &Pem::NoItemsFound)),
        found => found.map_err(|error| unreadable(option, what, file, &error)),
    }
}

/// Why a certificate and a key cannot be shown together.
fn unusable(error: &Error, certificate: &Path, key: &Path) -> TlsRefusal {
    let (certificate, key) = (certificate.display(), key.display());
    match error {
        Error::InconsistentKeys(_) => {
            TlsRefusal::new(format!("the key of sslkey={key} does not fit sslcert={certificate}"))
        }
        error if is_old_version(error) => {
            TlsRefusal::new(format!("sslcert={certificate} is a certificate of X.509 v1"))
                .hinting(format!("let the authority sign it again: {AS_VERSION_3}"))
        }
        error => TlsRefusal::new(format!("sslcert={certificate} cannot be used: {error}")),
    }
}

/// How a certificate gets the version that is read.
pub(super) const AS_VERSION_3: &str =
    "`openssl x509 -req` makes version 3 if -extfile names a file of extensions";

/// True: the certificate is of X.509 v1, which has no extensions, and so no names of hosts.
pub(super) fn is_old_version(error: &Error) -> bool {
    matches!(error, Error::InvalidCertificate(CertificateError::Other(other))
        if other.to_string().contains("UnsupportedCertVersion"))
}

fn unreadable(option: &str, what: &str, file: &Path, error: &Pem) -> TlsRefusal {
    let file = file.display();
    TlsRefusal::new(match error {
        Pem::Io(error) => format!("{option}={file} cannot be read: {error}"),
        Pem::NoItemsFound => format!("{option}={file} does not hold {what} in PEM"),
        error => format!("{option}={file} does not hold {what} in PEM: {error}"),
    })
}

/// Verifies a server as much as the mode demands. The handshake itself is verified in each mode: the server
/// has the key of the certificate that it shows.
#[derive(Debug)]
struct Verifier {
    /// None: any certificate passes.
    proves: Option<Arc<WebPkiServerVerifier>>,
    /// The certificate must name the host.
    named: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(proves) = &self.proves else { return Ok(ServerCertVerified::assertion()) };
        match proves.verify_server_cert(end_entity, intermediates, name, stapled, now) {
            // The name is looked at last, so the authority and the dates are as they should be.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.named => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The error of rustls in a chain of errors, if there is one.
pub(super) fn cause<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e Error> {
    let next = |error: &&'e (dyn std::error::Error + 'static)| {
        // An io::Error hides the error that it carries.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        inner.map(|inner| inner as _).or_else(|| error.source())
    };
    successors(Some(error), next).find_map(|error| error.downcast_ref())
}
