//! TLS of the port: certificates and a key from files, read once at start.
//!
//! Must never: print a key.

use std::path::Path;

use tokio::net::TcpStream;

/// Certificates and the key.
#[derive(Clone)]
pub struct PortTls {
    #[cfg(feature = "tls")]
    acceptor: tokio_rustls::TlsAcceptor,
    #[cfg(not(feature = "tls"))]
    never: std::convert::Infallible,
}

impl std::fmt::Debug for PortTls {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("PortTls")
    }
}

/// The first byte of a connection with TLS.
pub const FIRST_BYTE: u8 = 0x16;

#[cfg(feature = "tls")]
impl PortTls {
    /// Reads the files.
    ///
    /// # Errors
    /// The sentence that says which file is not what it should be.
    pub fn read(cert: &Path, key: &Path) -> Result<Self, String> {
        use rustls::pki_types::pem::PemObject as _;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};
        let of = |file: &Path, what: &str, error: &dyn std::fmt::Display| {
            format!("{}: {what}: {error}", file.display())
        };
        let chain = CertificateDer::pem_file_iter(cert)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| of(cert, "no certificates in PEM", &error))?;
        if chain.is_empty() {
            return Err(format!("{}: no certificates in PEM", cert.display()));
        }
        let secret =
            PrivateKeyDer::from_pem_file(key).map_err(|error| of(key, "no key in PEM", &error))?;
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_no_client_auth()
            .with_single_cert(chain, secret)
            .map_err(|error| of(key, "does not fit the first certificate", &error))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { acceptor: std::sync::Arc::new(config).into() })
    }

    /// Greets a client.
    ///
    /// # Errors
    /// The client does not speak TLS as we do.
    pub async fn accept(
        &self,
        stream: TcpStream,
    ) -> std::io::Result<tokio_rustls::server::TlsStream<TcpStream>> {
        self.acceptor.accept(stream).await
    }
}

#[cfg(not(feature = "tls"))]
impl PortTls {
    /// This build has no TLS.
    ///
    /// # Errors
    /// Always.
    pub fn read(_: &Path, _: &Path) -> Result<Self, String> {
        Err("this build has no TLS (feature tls)".to_owned())
    }

    /// Nobody can have one.
    ///
    /// # Errors
    /// None.
    pub async fn accept(&self, _: TcpStream) -> std::io::Result<TcpStream> {
        match self.never {}
    }
}
