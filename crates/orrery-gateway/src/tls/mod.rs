//! TLS: certificates of a local authority that every name gets on demand, or certificates the operator brings.
//!
//! All cryptography is `ring`'s. Both HTTP/2 and HTTP/1.1 are offered; the client chooses.

mod authority;
mod leaves;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use authority::Authority;
use leaves::Leaves;
use orrery_node::Clock;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ResolvesServerCert;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_rustls::TlsAcceptor;

/// Why TLS cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot use {path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("cannot read {path}: {source}")]
    Pem {
        path: PathBuf,
        source: rustls::pki_types::pem::Error,
    },
    #[error("{path} holds no certificate")]
    NoCertificate { path: PathBuf },
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot use the certificate: {0}")]
    Rustls(#[from] rustls::Error),
}

/// Certificates of the local authority, for whatever name a client asks.
pub fn acceptor(authority: Arc<Authority>, clock: Arc<dyn Clock>) -> Result<TlsAcceptor, TlsError> {
    offer(Arc::new(Leaves::new(authority, clock)?))
}

/// A certificate chain and its key from PEM files.
pub fn acceptor_from_files(chain: &Path, key: &Path) -> Result<TlsAcceptor, TlsError> {
    let pem = |path: &Path| {
        let path = path.to_owned();
        move |source| TlsError::Pem { path, source }
    };
    let certificates = CertificateDer::pem_file_iter(chain).map_err(pem(chain))?;
    let certificates: Vec<_> = certificates.collect::<Result<_, _>>().map_err(pem(chain))?;
    if certificates.is_empty() {
        return Err(TlsError::NoCertificate { path: chain.to_owned() });
    }
    let key = PrivateKeyDer::from_pem_file(key).map_err(pem(key))?;
    let certified = CertifiedKey::from_der(certificates, key, &default_provider())?;
    offer(Arc::new(SingleCertAndKey::from(certified)))
}

fn offer(resolver: Arc<dyn ResolvesServerCert>) -> Result<TlsAcceptor, TlsError> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests;
