//! One certificate for all subjects of a run, and a client that trusts nothing else.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Files of a certificate for `localhost`.
#[derive(Debug)]
pub struct Certificate {
    pub chain: PathBuf,
    pub key: PathBuf,
}

impl Certificate {
    pub fn make(directory: &Path) -> Result<Certificate> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).context("cannot make a certificate")?;
        let files = Certificate {
            chain: directory.join("chain.pem"),
            key: directory.join("key.pem"),
        };
        std::fs::write(&files.chain, made.cert.pem())?;
        std::fs::write(&files.key, made.signing_key.serialize_pem())?;
        Ok(files)
    }

    pub fn connector(&self) -> Result<TlsConnector> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.chain)?)?;
        let config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(TlsConnector::from(Arc::new(config)))
    }

    pub fn acceptor(&self) -> Result<TlsAcceptor> {
        let chain = vec![CertificateDer::from_pem_file(&self.chain)?];
        let key = PrivateKeyDer::from_pem_file(&self.key)?;
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}
